"""Disks that outlive their machines. A disk and the machines that it is attached to are in one zone.

The agent finds a disk by the name under which it is attached, which is its own. A disk has one name in its zone, so a
repeated request finds it, and a machine's boot disk has another. Attaching is an operation, too: it is waited for at
Google, a moment, so that a refusal is an error and not a silence.

A new disk is a balanced Persistent Disk. Families that take Hyperdisks alone can't have it, and their offers say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chalicelib.backends.gcp.client import GcpClients
from chalicelib.backends.gcp.config import GCPBackendConfig
from chalicelib.backends.gcp.errors import Body, failed
from chalicelib.backends.gcp.launch import DISK, request_id
from chalicelib.backends.gcp.machines import RUNNING, STARTING
from chalicelib.backends.gcp.operations import history, settled
from chalicelib.backends.gcp.places import RULE, GcpPlaces, handle_of, last, zone_of
from chalicelib.backends.gcp.prices import GcpPrices
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.owners import all_tags, labels, owned_volume
from chalicelib.backends.kit.volumes import DiskPrices, check_unused, disk, machine_of, running
from chalicelib.backends.spi import OwnedVolume, VolumeRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.owner import OFFERED
from chalicelib.domain.volumes import Device, ProviderDisk
from chalicelib.errors import Gone, Unfit

STATES: Mapping[str, str] = {
    "CREATING": "creating",
    "READY": "available",
    "RESTORING": "creating",
    "DELETING": "deleting",
}
SMALLEST = 10  # GiB
SHARED = ("READ_ONLY_MANY", "READ_WRITE_MANY")  # access modes of disks for several machines


class GcpVolumes:
    def __init__(
        self,
        clients: GcpClients,
        config: GCPBackendConfig,
        places: GcpPlaces,
        prices: GcpPrices,
        now: Now,
    ) -> None:
        self._clients, self._config, self._places, self._now = clients, config, places, now
        self._prices, self._months = prices, DiskPrices(now, self._month)

    def create(self, request: VolumeRequest) -> Handle:
        for body in self._clients.made("disks", "disk", request, request.region):
            return _handle(body)
        zone = request.zone or self._zone(request.region)
        self._clients.call(
            "disks.insert",
            zone=zone,
            requestId=request_id(request.token, zone),
            body={
                "name": request.name,
                "sizeGb": str(max(SMALLEST, request.size_gib)),
                "type": f"zones/{zone}/diskTypes/{DISK}",
                "labels": labels(all_tags(request, self._config.tags), RULE, "Google"),
            },
        )
        return handle_of("volume", request.name, zone)

    def _zone(self, region: str) -> str:
        """The first one. Zones for accelerators alone come after the others."""
        zones = self._places.zones(region)
        if not zones:
            raise Unfit(f"The project has no region {region}.")
        return min(zones, key=lambda zone: (len(zone), zone))

    def register(self, volume_id: str, region: str, zone: str) -> ProviderDisk:
        zones = self._places.zones(region)
        if not zones or (zone and zone not in zones):
            raise Gone(f"The project has no zone {zone or region}.")
        for each in [zone] if zone else zones:
            try:
                return self.describe(handle_of("volume", volume_id, each))
            except Gone:
                continue
        raise Gone(f"{zone or region} has no disk {volume_id}.")

    def describe(self, handle: Handle) -> ProviderDisk:
        return self._disk(self._body(handle))

    # --- attach and detach -------------------------------------------------------------------------------------------

    def attach(self, handle: Handle, machine: Sequence[Handle], *, read_only: bool) -> None:
        body, zone = self._body(handle), zone_of(handle)
        vm = machine_of(machine)
        if vm.id in map(last, body.get("users", ())):
            return
        if vm.data.get("zone") != zone:
            raise Unfit(f"Volume {handle.id} is in {zone}, and the machine {vm.id} is in {vm.data.get('zone')}.")
        host = self._host(vm.id, zone)
        fresh = host is None and history(self._clients, zone, "instances", vm.id).may_show_later
        running(vm.id, host, lambda body: str(body["status"]), STARTING, RUNNING, is_fresh=fresh)
        mode = "READ_ONLY" if read_only or body.get("accessMode") == "READ_ONLY_MANY" else "READ_WRITE"
        wanted = {"source": f"projects/{self._clients.project}/zones/{zone}/disks/{handle.id}", "mode": mode}
        attached: dict[str, Any] = {**wanted, "deviceName": handle.id, "autoDelete": False}
        operation = self._clients.call("instances.attachDisk", zone=zone, instance=vm.id, body=attached)
        if error := failed(settled(self._clients, operation), "compute.instances.attachDisk"):
            raise error

    def _host(self, machine: str, zone: str) -> Body | None:
        return self._clients.find("instances.get", zone=zone, instance=machine)

    def detach(self, handle: Handle, machine: Sequence[Handle]) -> None:
        body, vm, zone = self._body(handle), machine_of(machine), zone_of(handle)
        if vm.id not in map(last, body.get("users", ())):
            return
        device = self._device(handle.id, vm.id, zone)
        if device is not None:
            self._clients.call(
                "instances.detachDisk", zone=zone, instance=vm.id, deviceName=device.by_id[len(_BY_ID) :]
            )

    def _device(self, disk: str, machine: str, zone: str) -> Device | None:
        """How a machine has the disk; None: it doesn't, or it is gone."""
        for each in (self._host(machine, zone) or {}).get("disks", ()):
            if last(each.get("source", "")) == disk and each.get("deviceName"):
                return Device(by_id=f"{_BY_ID}{each['deviceName']}", read_only=each.get("mode") == "READ_ONLY")
        return None

    # --- delete and list ---------------------------------------------------------------------------------------------

    def delete(self, handle: Handle) -> None:
        body = self._body(handle)
        check_unused(handle.id, set(map(last, body.get("users", ()))))
        if body["status"] != "DELETING":
            self._clients.call("disks.delete", zone=zone_of(handle), disk=handle.id)

    def list_owned(self, volume_id: str | None, region: str) -> Iterator[OwnedVolume]:
        of = "labels.dstack-volume:*" if volume_id is None else f'labels.dstack-volume = "{volume_id}"'
        for body in self._clients.pages("disks.aggregatedList", within=region, filter=of):
            handle = _handle(body)
            if region in ("", handle.data["region"]):
                yield from owned_volume(handle, body.get("labels", {}))

    # --- reading -----------------------------------------------------------------------------------------------------

    def _body(self, handle: Handle) -> Body:
        zone = zone_of(handle)
        try:
            return self._clients.call("disks.get", zone=zone, disk=handle.id)
        except Gone:
            past = history(self._clients, zone, "disks", handle.id)
            if error := past.refused("compute.disks.insert"):
                raise Gone(f"Volume {handle.id} wasn't created: {error.message}", refused=type(error)) from None
            past.check_settled()
            raise

    def _disk(self, body: Body) -> ProviderDisk:
        handle, zone, gib = _handle(body), last(body["zone"]), int(body["sizeGb"])
        mode, marks = body.get("accessMode", ""), body.get("labels", {})
        return disk(
            handle,
            STATES.get(str(body["status"]), "failed"),
            gib,
            {user: self._device(handle.id, user, zone) for user in sorted(map(last, body.get("users", ())))},
            zone=zone,
            price=self._months.of(last(body.get("type", "")), handle.data["region"], gib),
            offered_to=tuple(marks[key] for key in sorted(marks) if key.startswith(OFFERED)),
            multi_attach=mode in SHARED,
            writable=mode != "READ_ONLY_MANY",
        )

    def _month(self, kind: str, region: str, gib: int) -> float | None:
        rate = self._prices.listed().disk(kind, region)
        return None if rate is None else rate * gib


_BY_ID = "google-"


def _handle(body: Body) -> Handle:
    return handle_of("volume", str(body["name"]), last(body["zone"]))
