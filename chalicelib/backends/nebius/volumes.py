"""Volumes: network disks. A disk and its machine are in one project, so in one region; there are no zones.

What is attached to a machine is a list in its specification, which is replaced as a whole: the machine's version makes
sure that nobody else has changed it meanwhile. A disk has a device id of our choice there, by which the agent finds it.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.offers import HOURS
from chalicelib.backends.kit.owners import owned_volume
from chalicelib.backends.kit.regions import listed_everywhere, region_in
from chalicelib.backends.kit.volumes import DiskPrices, check_unused, disk, machine_of, running
from chalicelib.backends.nebius.client import NebiusClient, idempotency_key
from chalicelib.backends.nebius.config import NebiusBackendConfig
from chalicelib.backends.nebius.labels import marks_of
from chalicelib.backends.nebius.launch import DISK
from chalicelib.backends.nebius.machines import DISKS, INSTANCES, STARTING, state_of
from chalicelib.backends.nebius.named import Named
from chalicelib.backends.nebius.operations import Operations
from chalicelib.backends.nebius.places import Places
from chalicelib.backends.nebius.prices import create, hourly
from chalicelib.backends.spi import OwnedVolume, VolumeRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.owner import OFFERED
from chalicelib.domain.volumes import Device, ProviderDisk
from chalicelib.errors import BackendError, Gone, NotYet, Unfit

STATES: Mapping[str, str] = {
    "CREATING": "creating",
    "READY": "available",
    "UPDATING": "available",
    "DELETING": "deleting",
    "ERROR": "failed",
    "BROKEN": "failed",
}
_LIST = "spec.secondary_disks"
_CHANGED: Mapping[str | int, type[BackendError]] = {"resource_conflict": NotYet}  # by somebody else, since it was read

Body = Mapping[str, Any]


class NebiusVolumes:
    def __init__(self, client: NebiusClient, config: NebiusBackendConfig, places: Places, now: Now) -> None:
        self._client, self._places, self._named = client, places, Named(client, places, config.tags)
        self._operations, self._prices = Operations(client, now), DiskPrices(now, self._price)

    def create(self, request: VolumeRequest) -> Handle:
        spec, key = {"type": DISK, "size_gibibytes": str(request.size_gib)}, idempotency_key(request.token, "volume")
        made = self._named.made(DISKS, "disk", request, request.region, lambda: spec, key=key)
        if made.failed is not None:
            raise made.failed
        return _handle(made.id, request.region)

    def register(self, volume_id: str, region: str, zone: str) -> ProviderDisk:
        project = self._places.projects().get(region)
        if project is None or zone:
            raise Gone(f"The account has no {f'zone {zone} in ' if zone else 'region '}{region}.")
        body = self._operations.found(DISKS, _handle(volume_id, region))
        if body["metadata"]["parent_id"] != project:
            raise Gone(f"Disk {volume_id} isn't in the project {project} of {region}.")
        if machine := body["status"].get("managed_by"):
            raise Gone(f"Disk {volume_id} belongs to the machine {machine}, and is deleted with it.")
        return self._disk(body, region)

    def describe(self, handle: Handle) -> ProviderDisk:
        return self._disk(self._operations.found(DISKS, handle), region_in(handle))

    # --- attach and detach -------------------------------------------------------------------------------------------

    def attach(self, handle: Handle, machine: Sequence[Handle], *, read_only: bool) -> None:
        body, vm = self._operations.found(DISKS, handle), machine_of(machine)
        status = body["status"]
        if vm.id in _users(status):
            return
        host = running(vm.id, self._host(vm), state_of, STARTING, ("RUNNING",))
        if host["metadata"]["parent_id"] != body["metadata"]["parent_id"]:
            raise Unfit(f"Disk {handle.id} and the machine {vm.id} are in different projects.")
        if status["state"] == "CREATING":
            raise NotYet(f"Disk {handle.id} is still being created.")
        if not read_only or status.get("read_write_attachment"):
            check_unused(handle.id, _users(status))
        attached = {
            "attach_mode": "READ_ONLY" if read_only else "READ_WRITE",
            "existing_disk": {"id": handle.id},
            "device_id": device_id(handle.id),
        }
        listed = [each for each in _listed(host) if _disk_of(each) != handle.id]
        self._replace(host, [*listed, attached], vm)

    def detach(self, handle: Handle, machine: Sequence[Handle]) -> None:
        self._operations.found(DISKS, handle)
        vm = machine_of(machine)
        host = self._host(vm)
        if host is None:  # so is what was attached to it
            return
        left = [each for each in _listed(host) if _disk_of(each) != handle.id]
        if len(left) < len(_listed(host)) and host["status"]["state"] != "DELETING":
            self._replace(host, left, vm)

    def _host(self, vm: Handle) -> Body | None:
        return self._client.find(INSTANCES, vm.id, region_in(vm))

    def _replace(self, host: Body, disks: Sequence[Body], vm: Handle) -> None:
        """The specification as it was read, with these disks. What isn't in a request stays as it is, so a list that
        is empty has to be named."""
        self._client.started(
            INSTANCES,
            "Update",
            {"metadata": host["metadata"], "spec": {**host["spec"], "secondary_disks": disks}},
            region=region_in(vm),
            what=vm.id,
            reset="" if disks else _LIST,
            meanings=_CHANGED,
        )

    # --- delete and list ---------------------------------------------------------------------------------------------

    def delete(self, handle: Handle) -> None:
        body = self._operations.found(DISKS, handle)
        check_unused(handle.id, _users(body["status"]))
        if body["status"]["state"] != "DELETING":
            with contextlib.suppress(NotYet):  # another operation is under way, such as its creation
                self._client.started(DISKS, "Delete", {"id": handle.id}, region=region_in(handle), what=handle.id)

    def list_owned(self, volume_id: str | None = None, region: str = "") -> Iterator[OwnedVolume]:
        found = listed_everywhere((region,) if region else self._places.regions(), self._owned)
        return (each for each in found if volume_id in (None, each.volume_id))

    def _owned(self, region: str) -> Iterator[OwnedVolume]:
        for body in self._places.listed(DISKS, region):
            yield from owned_volume(_handle(str(body["metadata"]["id"]), region), *marks_of(body))

    # --- reading -----------------------------------------------------------------------------------------------------

    def _disk(self, body: Body, region: str) -> ProviderDisk:
        identity, spec, status = str(body["metadata"]["id"]), body["spec"], body["status"]
        known = status.get("size_bytes")  # not while it is being created
        gib = int(known) >> 30 if known else int(spec.get("size_gibibytes", 0))
        device, readers = Device(by_id=f"virtio-{device_id(identity)}"), status.get("read_only_attachments", ())
        users = {each: device.with_(read_only=each in readers) for each in _users(status)}
        return disk(
            _handle(identity, region),
            STATES.get(status["state"], "creating"),
            gib,
            users or dict.fromkeys(self._awaiting(identity, body, region)),
            price=self._prices.of(str(spec["type"]), str(body["metadata"]["parent_id"]), gib),
            offered_to=tuple(body["metadata"].get("labels", {}).get(OFFERED, "").split()),
        )

    def _awaiting(self, identity: str, body: Body, region: str) -> Iterator[str]:
        """The machines whose specification has the disk, which doesn't show it yet."""
        if body["status"]["state"] != "READY":
            return
        for host in self._client.listed(INSTANCES, {"parent_id": body["metadata"]["parent_id"]}, region=region):
            if identity in map(_disk_of, _listed(host)) and host["status"]["state"] != "DELETING":
                yield str(host["metadata"]["id"])

    def _price(self, kind: str, project: str, gib: int) -> float | None:
        wanted = create("Disk", project, kind, {"type": kind, "size_gibibytes": str(gib)})
        hour = hourly(self._client, "", [wanted]).get(kind)
        return None if hour is None else hour * HOURS


def device_id(disk: str) -> str:
    """Twenty characters at most."""
    return f"d{hashlib.sha256(disk.encode()).hexdigest()[:19]}"


def _users(status: Body) -> set[str]:
    return {each for each in (status.get("read_write_attachment"), *status.get("read_only_attachments", ())) if each}


def _listed(host: Body) -> Sequence[Body]:
    found: Sequence[Body] = host["spec"].get("secondary_disks", ())
    return found


def _disk_of(attached: Body) -> str:
    return str(attached.get("existing_disk", {}).get("id", ""))


def _handle(identity: str, region: str) -> Handle:
    return Handle(kind="volume", id=identity, data={"region": region})
