"""Persistent disks: the data disks of machines, and volumes. They are billed with or without a machine.

A volume is attached to a running machine of its location, to one for writing. Disks have no tags. Whoever owns an
existing one offers it to projects by its name: `data-dstack-projects--main--other`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from chalicelib.backends.crusoe.client import DISKS, VMS, Body, CrusoeClient, state_of
from chalicelib.backends.crusoe.facts import FACTS
from chalicelib.backends.crusoe.launch import SERIAL
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.handles import located
from chalicelib.backends.kit.operators_prices import OperatorsPrices
from chalicelib.backends.kit.owners import owned_volume
from chalicelib.backends.kit.volumes import check_place, check_unused, disk, machine_of, running
from chalicelib.backends.spi import OwnedVolume, VolumeRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import MINUTE, from_iso
from chalicelib.domain.owner import OFFERED
from chalicelib.domain.volumes import Device, ProviderDisk
from chalicelib.errors import Gone, InUse, NotYet, Unfit

VOLUME = "volume"  # the kind of volumes' handles
PERSISTENT = "persistent-ssd"  # the type; `shared-volume` is a network file system
SETTLED = 10 * MINUTE  # after which a disk isn't asked about any more whether it is still being made
STARTING = ("CREATING", "STARTING", "INITIALIZING")  # states of a machine
FIRST, BETWEEN = FACTS.offers_disks
_OFFER = re.compile(rf"(?:^|-){OFFERED}{FIRST}(.+)$")


class CrusoeDisks:
    def __init__(self, client: CrusoeClient, prices: OperatorsPrices, now: Now) -> None:
        self._client, self._prices, self._now = client, prices, now

    def made(self, name: str, gib: int, region: str, kind: str) -> Handle:
        """By its name, what an earlier call made: the one that is attached, or else the oldest. Deletes any other. If
        its creation has failed already, `body` says why."""
        named = self._client.named(DISKS, name, **_wanted(region, disk_names=name))
        named.sort(key=lambda each: not each["attached_to"])
        for other in named[1:]:  # of a creation whose answer was lost, and which was listed late
            if not other["attached_to"]:
                with suppress(Gone):
                    self._delete(other)
        if named:
            return handle_of(named[0], kind)
        body = {"name": name, "size": f"{gib}GiB", "location": region, "type": PERSISTENT}
        return self._client.begun(kind, DISKS, body, f"{PERSISTENT} for {name}")

    def ready(self, handle: Handle) -> Body:
        """The disk, which can be attached. Raises NotYet while it is being made."""
        body = self.body(handle)
        if self._is_being_made(body):
            raise NotYet(f"Crusoe is still making the disk {handle.id}.")
        return body

    def body(self, handle: Handle) -> Body:
        """Raises Gone, with the reason if it couldn't be made."""
        body = self._client.found(DISKS, handle.id, disk_ids=handle.id)
        if body is not None:
            return body
        self._client.check_creation(DISKS, handle, f"{PERSISTENT} of {handle.id}")
        raise self._client.lag.gone("disk", [handle])

    def delete(self, handle: Handle) -> None:
        body = self.body(handle)
        if users := ", ".join(_users(body)):
            raise InUse(f"The disk {handle.id} is still attached to {users}.")
        self._delete(body)

    def listed(self, region: str) -> Iterator[Body]:
        """Those that aren't machines' own, which end with these."""
        return self._client.listed(DISKS, **_wanted(region))

    def _is_being_made(self, body: Body) -> bool:
        """The disk itself has no state."""
        if body["attached_to"] or self._now() - from_iso(str(body["created_at"])) >= SETTLED:
            return False
        return any(each["state"] == "IN_PROGRESS" for each in self._client.operations(DISKS, str(body["id"]))[:1])

    def _delete(self, body: Body) -> None:
        self._client.call("DELETE", *DISKS, str(body["id"]))

    # --- volumes ------------------------------------------------------------------------------------------------------

    def create(self, request: VolumeRequest) -> Handle:
        return self.made(request.name, request.size_gib, request.region, VOLUME)

    def register(self, volume_id: str, region: str, zone: str) -> ProviderDisk:
        body = self.body(Handle(kind=VOLUME, id=volume_id))
        check_place(volume_id, region, zone, handle_of(body, VOLUME))
        if body["type"] != PERSISTENT:
            raise Unfit(f"The disk {volume_id} is of type {body['type']}.", hint=f"A volume is of type {PERSISTENT}.")
        return self._disk(body)

    def describe(self, handle: Handle) -> ProviderDisk:
        return self._disk(self.body(handle))

    def attach(self, handle: Handle, machine: Sequence[Handle], *, read_only: bool) -> None:
        body, vm = self.ready(handle), machine_of(machine)
        if vm.id in _users(body):
            return
        check_unused(handle.id, _users(body))
        fresh = self._client.lag.is_fresh(vm)
        host = running(vm.id, self._client.machine(vm), state_of, STARTING, ("RUNNING",), is_fresh=fresh)
        if host["location"] != body["location"]:
            raise Unfit(f"The disk {handle.id} is in {body['location']}, and {vm.id} is in {host['location']}.")
        mode = "read-only" if read_only else "read-write"
        attachment = {"disk_id": handle.id, "mode": mode, "attachment_type": "data"}
        self._client.call("POST", *VMS, vm.id, "attach-disks", body={"attach_disks": [attachment]})

    def detach(self, handle: Handle, machine: Sequence[Handle]) -> None:
        body, vm = self.body(handle), machine_of(machine)
        if vm.id in _users(body):
            self._client.call("POST", *VMS, vm.id, "detach-disks", body={"detach_disks": [handle.id]})

    def list_owned(self, volume_id: str | None, region: str) -> Iterator[OwnedVolume]:
        for body in list(self.listed(region)):
            yield from owned_volume(handle_of(body, VOLUME), {}, str(body["name"]), only=volume_id)

    def _disk(self, body: Body) -> ProviderDisk:
        size, month = _gib(body), self._prices.of_disk(PERSISTENT, str(body["location"]))
        offered = _OFFER.search(str(body["name"]))
        return disk(
            handle_of(body, VOLUME),
            "creating" if self._is_being_made(body) else "available",
            size,
            _users(body),
            price=None if month is None else round(month * size, 6),
            offered_to=tuple(offered[1].split(BETWEEN)) if offered else (),
        )


def handle_of(body: Body, kind: str) -> Handle:
    return located(kind, body["id"], str(body["location"]), created=body["created_at"])


def _wanted(region: str, **query: str) -> dict[str, str]:
    return {"exclude_os": "true", **({"location": region} if region else {}), **query}


def _gib(body: Body) -> int:
    size = str(body["size"])
    return int(size[:-3]) * (1024 if size.endswith("TiB") else 1)


def _users(body: Body) -> dict[str, Device | None]:
    name = f"{SERIAL}{body['serial_number']}"
    return {
        str(each["vm_id"]): Device(by_id=name, read_only=each.get("mode") == "read-only")
        for each in body["attached_to"]
    }
