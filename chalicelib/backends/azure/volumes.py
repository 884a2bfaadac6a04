"""Managed disks that outlive their machines. A disk and the machines that it is attached to are in one zone.

A disk's name is its token: creating it again finds the first. Its id is its whole address in Azure, so that a disk in
any resource group can be registered. A new one is a Premium SSD, which nobody can export over the network.

The agent finds a disk by its place on the machine's controller, of which the image has links: nothing else that Azure
says of a disk shows on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from chalicelib.backends.azure.client import LATEST, AzureClient
from chalicelib.backends.azure.facts import FACTS
from chalicelib.backends.azure.network import AzureNetworks
from chalicelib.backends.azure.places import (
    TAGS,
    VM,
    VOLUME,
    Body,
    group_of,
    handle_of,
    name_of,
    number_of,
    properties,
    region_named,
    region_of,
    state_of,
    tags_of,
    zone_named,
    zone_of,
)
from chalicelib.backends.azure.prices import AzurePrices
from chalicelib.backends.kit.bodies import filled
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.owners import REQUEST_TAG, all_tags, labels, owned_volume
from chalicelib.backends.kit.regions import region_in
from chalicelib.backends.kit.tables import table
from chalicelib.backends.kit.visibility import check_time, is_fresh
from chalicelib.backends.kit.volumes import check_place, check_unused, disk, machine_of, running
from chalicelib.backends.spi import OwnedVolume, VolumeRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.owner import OFFERED
from chalicelib.domain.volumes import Device, ProviderDisk
from chalicelib.errors import BackendError, Gone, InUse, NotYet, Unfit

SKU, STEPS = "Premium_LRS", "P"  # what is created, and how the price list calls it
STATES: Mapping[str, str] = {"creating": "creating", "updating": "creating", "deleting": "deleting", "failed": "failed"}
CHANGING: Mapping[str | int, type[BackendError]] = dict.fromkeys(
    ("OperationNotAllowed", "AttachDiskWhileBeingDetached", 409), NotYet
)


class AzureVolumes:
    def __init__(self, client: AzureClient, networks: AzureNetworks, prices: AzurePrices, now: Now) -> None:
        self._client, self._ids, self._now = client, client.ids, now
        self._networks, self._prices = networks, prices

    def create(self, request: VolumeRequest) -> Handle:
        begun, path = self._now(), self._ids.of(VOLUME, request.name)
        found = self._client.find_ours(path, f"disk {request.name}", [(REQUEST_TAG, request.token)])
        if found is not None:
            return handle_of(VOLUME, path, found)
        self._networks.ensure_resource_group()
        zone = request.zone or self._first_zone(request.region)
        tags = labels(all_tags(request, self._client.config.tags), TAGS, "Azure")
        where = {"region": request.region, "zone": number_of(zone) or None}
        body = filled(table("azure/volumes.toml"), {**where, "tags": tags, "gib": request.size_gib})
        check_time(begun, self._now(), LATEST, "Azure")
        return handle_of(VOLUME, path, self._client.put(path, body, request.region))

    def _first_zone(self, region: str) -> str:
        """Empty: the region has none."""
        for each in self._client.listed(f"/subscriptions/{self._ids.subscription}/locations"):
            if region_named(str(each["name"])) == region:
                numbers = sorted(str(zone["logicalZone"]) for zone in each.get("availabilityZoneMappings") or ())
                return zone_named(region, numbers[0]) if numbers else ""
        raise Unfit(f"The subscription has no region {region}.")

    def register(self, volume_id: str, region: str, zone: str) -> ProviderDisk:
        found = self.describe(Handle(kind=VOLUME, id=volume_id, data={"region": region}))
        check_place(volume_id, region, zone, found.handle)
        return found

    def describe(self, handle: Handle) -> ProviderDisk:
        body, path = self._body(handle), self._ids.at(VOLUME, handle.id)
        holder, gib = self._holder(body), int(properties(body).get("diskSizeGB") or 1)
        return disk(
            handle_of(VOLUME, path, body),
            STATES.get(state_of(body), "available"),
            gib,
            {holder: self._device(path, holder)} if holder else {},
            zone=zone_of(body),
            price=self._price(body, gib),
            offered_to=tuple(tags_of(body).get(OFFERED, "").split()),
        )

    def _price(self, body: Body, gib: int) -> float | None:
        premium = str((body.get("sku") or {}).get("name", SKU)) == SKU
        return self._prices.of_disk(region_of(body), STEPS, gib) if premium else None

    # --- attach and detach -------------------------------------------------------------------------------------------

    def attach(self, handle: Handle, machine: Sequence[Handle], *, read_only: bool) -> None:
        body, vm = self._body(handle), machine_of(machine)
        path, host = self._ids.at(VOLUME, handle.id), self._ids.at(VM, vm.id)
        if self._holder(body) == host:
            return
        self._check_unused(body)
        fresh = is_fresh(vm, self._now(), FACTS.visibility_lag)
        running(name_of(host), self._client.find(host), _state_of, ("creating",), ("running",), is_fresh=fresh)
        if zone_of(body) != vm.data.get("zone", ""):
            where = vm.data.get("zone") or "no zone"
            raise Unfit(f"Volume {name_of(path)} is in {zone_of(body) or 'no zone'}, and the machine is in {where}.")
        wanted = {"diskId": path, "caching": "None", "deleteOption": "Detach"}
        try:
            self._change(host, vm, {"dataDisksToAttach": [wanted]})
        except BackendError as error:
            if "maximum number of data disks" in error.message:
                raise Unfit(f"The machine {name_of(host)} has no room for another volume.") from error
            raise

    def detach(self, handle: Handle, machine: Sequence[Handle]) -> None:
        body, vm = self._body(handle), machine_of(machine)
        host = self._ids.at(VM, vm.id)
        if self._holder(body) != host:
            return
        with suppress(Gone):  # the machine is, and lets go of it
            self._change(host, vm, {"dataDisksToDetach": [{"diskId": self._ids.at(VOLUME, handle.id)}]})

    def _change(self, host: str, vm: Handle, body: Mapping[str, object]) -> None:
        path = f"{host}/attachDetachDataDisks"
        self._client.call("POST", path, body=body, region=region_in(vm), meanings=CHANGING)

    # --- delete and list ---------------------------------------------------------------------------------------------

    def delete(self, handle: Handle) -> None:
        body = self._body(handle)
        self._check_unused(body)
        if state_of(body) != "deleting":
            path = self._ids.at(VOLUME, handle.id)
            self._client.call("DELETE", path, region=region_in(handle), meanings={"OperationNotAllowed": InUse})

    def list_owned(self, volume_id: str | None = None, region: str = "") -> Iterator[OwnedVolume]:
        for body in self._client.in_group(VOLUME):
            name = str(body["name"]).lower()
            if region in ("", region_of(body)):
                handle = handle_of(VOLUME, self._ids.of(VOLUME, name), body)
                yield from owned_volume(handle, tags_of(body), name, only=volume_id)

    # --- reading -----------------------------------------------------------------------------------------------------

    def _body(self, handle: Handle) -> Body:
        body = self._client.find(self._ids.at(VOLUME, handle.id))
        if body is None:
            raise Gone(f"There is no disk {name_of(handle.id)}.")
        return body

    def _check_unused(self, body: Body) -> None:
        holder = self._holder(body)
        check_unused(str(body["name"]).lower(), [name_of(holder)] if holder else [])

    def _holder(self, body: Body) -> str:
        """The id of the machine that has it, as in that machine's handle; empty if none has."""
        held = str(body.get("managedBy") or "")
        if held and group_of(held) == self._ids.group.lower():
            return self._ids.of(VM, name_of(held))
        return held

    def _device(self, disk: str, holder: str) -> Device | None:
        """None: the machine doesn't have it yet, or is gone."""
        storage = properties(self._client.find(holder) or {}).get("storageProfile") or {}
        for each in storage.get("dataDisks") or ():
            if str((each.get("managedDisk") or {}).get("id", "")).lower() == disk.lower():
                return Device(link=f"azure/scsi1/lun{each['lun']}")
        return None


def _state_of(machine: Body) -> str:
    state = state_of(machine)
    return state if state in ("creating", "deleting", "failed") else "running"
