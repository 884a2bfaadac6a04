"""What Azure's own SDK makes of the fake. Run by the Python that has it (`.venvs/azure`), with the fake's address.

    python -m tests.backends.azure.sdk http://127.0.0.1:1234 SUBSCRIPTION TOKEN

prints a line of JSON: what it has seen, by step.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

REGION, GROUP = "westeurope", "rg-sdk"


class Sdk:
    """Clients that call the fake without TLS, and repeat nothing by themselves."""

    def __init__(self, url: str, subscription: str, token: str) -> None:
        from azure.core.credentials import AccessToken
        from azure.core.pipeline.policies import SansIOHTTPPolicy
        from azure.mgmt.compute import ComputeManagementClient
        from azure.mgmt.network import NetworkManagementClient

        class Known:
            def get_token(self, *scopes: str, **more: Any) -> Any:
                return AccessToken(token, 2**31)

        class OverHttp(SansIOHTTPPolicy):  # type: ignore[misc,type-arg,unused-ignore]
            def on_request(self, request: Any) -> None:
                request.http_request.headers["Authorization"] = f"Bearer {token}"

        options = {"base_url": url, "authentication_policy": OverHttp(), "polling_interval": 0.05, "retry_total": 0}
        self.compute: Any = ComputeManagementClient(Known(), subscription, **options)
        self.network: Any = NetworkManagementClient(Known(), subscription, **options)
        self.machines = self.compute.virtual_machines
        self.subnet = self.closed = ""

    def seen(self) -> dict[str, Any]:
        found = {**self.shop(), **self.networks(), **self.machine(), **self.disks()}
        return {**found, **self.groups(), **self.end()}

    def shop(self) -> dict[str, Any]:
        sizes = [each for each in self.compute.resource_skus.list(filter=f"location eq '{REGION}'") if each.name]
        limits = {each.name.value: each.limit for each in self.compute.usage.list(REGION)}
        return {"sizes": len(sizes), "quotas": limits["cores"]}

    def networks(self) -> dict[str, Any]:
        inside = {"name": "machines", "properties": {"addressPrefix": "10.1.0.0/24"}}
        has = {"addressSpace": {"addressPrefixes": ["10.1.0.0/16"]}, "subnets": [inside]}
        every, groups = self.network.virtual_networks, self.network.network_security_groups
        made = every.begin_create_or_update(GROUP, "net", {"location": REGION, "properties": has}).result()
        closed = groups.begin_create_or_update(GROUP, "closed", {"location": REGION}).result()
        self.subnet, self.closed = made.subnets[0].id, closed.id
        return {"network": [made.name, made.subnets[0].name, closed.provisioning_state]}

    def machine(self) -> dict[str, Any]:
        from azure.core import MatchConditions

        new = {"etag": "*", "match_condition": MatchConditions.IfMissing}
        made = self.machines.begin_create_or_update(GROUP, "one", self.body(), **new).result()
        again = refused(lambda: self.machines.begin_create_or_update(GROUP, "one", self.body(), **new))
        view = self.machines.get(GROUP, "one", expand="instanceView").instance_view
        card = self.network.network_interfaces.get(GROUP, _name(made.network_profile.network_interfaces[0].id))
        inside = card.ip_configurations[0]
        address = self.network.public_ip_addresses.get(GROUP, _name(inside.public_ip_address.id))
        return {
            "machine": [made.name, made.provisioning_state, made.zones],
            "again": again,
            "states": [each.code for each in view.statuses],
            "listed": [each.name for each in self.machines.list(GROUP)],
            "addresses": [bool(inside.private_ip_address), bool(address.ip_address)],
        }

    def disks(self) -> dict[str, Any]:
        has = {"creationData": {"createOption": "Empty"}, "diskSizeGB": 8}
        body = {"location": REGION, "zones": ["1"], "sku": {"name": "Premium_LRS"}, "properties": has}
        disk = self.compute.disks.begin_create_or_update(GROUP, "data", body).result()
        change = self.machines.begin_attach_detach_data_disks
        change(GROUP, "one", {"dataDisksToAttach": [{"diskId": disk.id}]}).result()
        attached = [each.lun for each in self.machines.get(GROUP, "one").storage_profile.data_disks]
        held = refused(lambda: self.compute.disks.begin_delete(GROUP, "data").result())
        change(GROUP, "one", {"dataDisksToDetach": [{"diskId": disk.id}]}).result()
        return {"attached": attached, "held": held}

    def groups(self) -> dict[str, Any]:
        near = self.compute.proximity_placement_groups.create_or_update(GROUP, "near", {"location": REGION})
        aligned = {"location": REGION, "sku": {"name": "Aligned"}}
        together = self.compute.availability_sets.create_or_update(GROUP, "together", aligned)
        make = self.machines.begin_create_or_update
        wrong = [
            refused(lambda: make(GROUP, "bad", self.body(evictionPolicy="Delete"))),
            refused(lambda: make(GROUP, "bad", self.body(availabilitySet={"id": together.id}))),
            refused(lambda: self.machines.get(GROUP, "none")),
            refused(lambda: self.compute.disks.get("rg-none", "none")),
        ]
        late = refused(lambda: make(GROUP, "short", self.body()).result())
        return {"groups": [near.name, together.name], "refused": wrong, "late": late}

    def end(self) -> dict[str, Any]:
        self.machines.begin_delete(GROUP, "short").result()
        self.machines.begin_delete(GROUP, "one", force_deletion=True).result()
        self.compute.disks.begin_delete(GROUP, "data").result()
        listings = (
            self.machines.list(GROUP),
            self.network.network_interfaces.list(GROUP),
            self.network.public_ip_addresses.list(GROUP),
            self.compute.disks.list_by_resource_group(GROUP),
        )
        return {"left": [[each.name for each in listing] for listing in listings]}

    def body(self, **more: Any) -> dict[str, Any]:
        key = {"path": "/home/me/.ssh/authorized_keys", "keyData": "ssh-rsa AAAAB3NzaC1yc2E="}
        linux = {"disablePasswordAuthentication": True, "ssh": {"publicKeys": [key]}}
        image = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2204", "version": "latest"}
        disk = {"createOption": "FromImage", "name": "os", "diskSizeGB": 64, "deleteOption": "Delete"}
        has = {
            "hardwareProfile": {"vmSize": "Standard_D2s_v5"},
            "storageProfile": {"imageReference": image, "osDisk": disk},
            "osProfile": {"computerName": "one", "adminUsername": "me", "linuxConfiguration": linux},
            "networkProfile": {
                "networkApiVersion": "2022-11-01",
                "networkInterfaceConfigurations": [{"name": "nic", "properties": self.card()}],
            },
        }
        return {"location": REGION, "zones": ["1"], "properties": {**has, **more}}

    def card(self) -> dict[str, Any]:
        static = {"publicIPAllocationMethod": "Static", "deleteOption": "Delete"}
        address = {"name": "pip", "sku": {"name": "Standard"}, "properties": static}
        within = {"subnet": {"id": self.subnet}, "publicIPAddressConfiguration": address}
        return {
            "primary": True,
            "deleteOption": "Delete",
            "networkSecurityGroup": {"id": self.closed},
            "ipConfigurations": [{"name": "main", "properties": within}],
        }


def refused(call: Callable[[], object]) -> dict[str, Any]:
    from azure.core.exceptions import HttpResponseError

    try:
        call()
    except HttpResponseError as error:
        return {"status": error.status_code, "code": error.error.code if error.error else ""}
    return {}


def _name(identity: str) -> str:
    return identity.rpartition("/")[2]


if __name__ == "__main__":
    print(json.dumps(Sdk(*sys.argv[1:4]).seen()))
