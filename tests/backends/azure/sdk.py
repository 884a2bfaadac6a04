"""What Azure's own SDK makes of the fake. Run by the Python that has it (`.venvs/azure`), with the fake's address.

    python -m tests.backends.azure.sdk http://127.0.0.1:1234 SUBSCRIPTION TOKEN

prints a line of JSON: what it has seen, by step.
"""

from __future__ import annotations

import json
import sys
from typing import Any

REGION, GROUP = "westeurope", "rg-sdk"


def main(url: str, subscription: str, token: str) -> dict[str, Any]:
    from azure.core import MatchConditions
    from azure.core.credentials import AccessToken
    from azure.core.exceptions import HttpResponseError
    from azure.core.pipeline.policies import SansIOHTTPPolicy
    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.network import NetworkManagementClient

    class Known:
        def get_token(self, *scopes: str, **more: Any) -> Any:
            return AccessToken(token, 2**31)

    class OverHttp(SansIOHTTPPolicy):  # type: ignore[misc,type-arg,unused-ignore]
        def on_request(self, request: Any) -> None:
            request.http_request.headers["Authorization"] = f"Bearer {token}"

    def client(kind: Any) -> Any:
        return kind(
            Known(),
            subscription,
            base_url=url,
            authentication_policy=OverHttp(),
            polling_interval=0.05,
            retry_total=0,
        )

    def refused(call: Any) -> dict[str, Any]:
        try:
            call()
        except HttpResponseError as error:
            return {"status": error.status_code, "code": error.error.code if error.error else ""}
        return {}

    compute, network, seen = client(ComputeManagementClient), client(NetworkManagementClient), dict[str, Any]()
    space = {"addressSpace": {"addressPrefixes": ["10.1.0.0/16"]}}
    inside = {"name": "machines", "properties": {"addressPrefix": "10.1.0.0/24"}}
    net = network.virtual_networks.begin_create_or_update(
        GROUP, "net", {"location": REGION, "properties": {**space, "subnets": [inside]}}
    ).result()
    closed = network.network_security_groups.begin_create_or_update(GROUP, "closed", {"location": REGION}).result()
    seen["network"] = [net.name, net.subnets[0].name, closed.provisioning_state]

    seen["sizes"] = len([e for e in compute.resource_skus.list(filter=f"location eq '{REGION}'") if e.name])
    seen["quotas"] = {e.name.value: e.limit for e in compute.usage.list(REGION)}["cores"]

    def machine(**more: Any) -> dict[str, Any]:
        key = {"path": "/home/me/.ssh/authorized_keys", "keyData": "ssh-rsa AAAAB3NzaC1yc2E="}
        linux = {"disablePasswordAuthentication": True, "ssh": {"publicKeys": [key]}}
        image = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2204", "version": "latest"}
        address = {
            "name": "pip",
            "sku": {"name": "Standard"},
            "properties": {"publicIPAllocationMethod": "Static", "deleteOption": "Delete"},
        }
        within = {"subnet": {"id": net.subnets[0].id}, "publicIPAddressConfiguration": address}
        card = {
            "primary": True,
            "deleteOption": "Delete",
            "networkSecurityGroup": {"id": closed.id},
            "ipConfigurations": [{"name": "main", "properties": within}],
        }
        return {
            "location": REGION,
            "zones": ["1"],
            "properties": {
                "hardwareProfile": {"vmSize": "Standard_D2s_v5"},
                "storageProfile": {
                    "imageReference": image,
                    "osDisk": {"createOption": "FromImage", "name": "os", "diskSizeGB": 64, "deleteOption": "Delete"},
                },
                "osProfile": {"computerName": "one", "adminUsername": "me", "linuxConfiguration": linux},
                "networkProfile": {
                    "networkApiVersion": "2022-11-01",
                    "networkInterfaceConfigurations": [{"name": "nic", "properties": card}],
                },
                **more,
            },
        }

    machines = compute.virtual_machines
    made = machines.begin_create_or_update(
        GROUP, "one", machine(), etag="*", match_condition=MatchConditions.IfMissing
    ).result()
    seen["machine"] = [made.name, made.provisioning_state, made.zones]
    seen["again"] = refused(
        lambda: machines.begin_create_or_update(
            GROUP, "one", machine(), etag="*", match_condition=MatchConditions.IfMissing
        )
    )
    seen["states"] = [each.code for each in machines.get(GROUP, "one", expand="instanceView").instance_view.statuses]
    seen["listed"] = [each.name for each in machines.list(GROUP)]
    card = network.network_interfaces.get(GROUP, made.network_profile.network_interfaces[0].id.rpartition("/")[2])
    address = network.public_ip_addresses.get(GROUP, card.ip_configurations[0].public_ip_address.id.rpartition("/")[2])
    seen["addresses"] = [bool(card.ip_configurations[0].private_ip_address), bool(address.ip_address)]

    disk = compute.disks.begin_create_or_update(
        GROUP,
        "data",
        {
            "location": REGION,
            "zones": ["1"],
            "sku": {"name": "Premium_LRS"},
            "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 8},
        },
    ).result()
    machines.begin_attach_detach_data_disks(GROUP, "one", {"dataDisksToAttach": [{"diskId": disk.id}]}).result()
    seen["attached"] = [each.lun for each in machines.get(GROUP, "one").storage_profile.data_disks]
    seen["held"] = refused(lambda: compute.disks.begin_delete(GROUP, "data").result())
    machines.begin_attach_detach_data_disks(GROUP, "one", {"dataDisksToDetach": [{"diskId": disk.id}]}).result()

    near = compute.proximity_placement_groups.create_or_update(GROUP, "near", {"location": REGION})
    together = compute.availability_sets.create_or_update(
        GROUP, "together", {"location": REGION, "sku": {"name": "Aligned"}}
    )
    seen["groups"] = [near.name, together.name]

    seen["refused"] = [
        refused(lambda: machines.begin_create_or_update(GROUP, "bad", machine(evictionPolicy="Delete"))),
        refused(lambda: machines.begin_create_or_update(GROUP, "bad", machine(availabilitySet={"id": together.id}))),
        refused(lambda: machines.get(GROUP, "none")),
        refused(lambda: compute.disks.get("rg-none", "none")),
    ]
    seen["late"] = refused(lambda: machines.begin_create_or_update(GROUP, "short", machine()).result())
    machines.begin_delete(GROUP, "short").result()
    machines.begin_delete(GROUP, "one", force_deletion=True).result()
    compute.disks.begin_delete(GROUP, "data").result()
    seen["left"] = [
        [each.name for each in listing]
        for listing in (
            machines.list(GROUP),
            network.network_interfaces.list(GROUP),
            network.public_ip_addresses.list(GROUP),
            compute.disks.list_by_resource_group(GROUP),
        )
    ]
    return seen


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:4])))
