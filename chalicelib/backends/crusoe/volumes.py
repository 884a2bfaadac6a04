"""Volumes: persistent disks. One is attached to a running machine of its location, to one for writing.

They have no tags. Whoever owns an existing one offers it to projects by its name: `data-dstack-projects--main--other`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from chalicelib.backends.crusoe.client import VMS, Body, CrusoeClient
from chalicelib.backends.crusoe.disks import PERSISTENT, CrusoeDisks, gib_of, handle_of
from chalicelib.backends.crusoe.facts import FACTS
from chalicelib.backends.crusoe.launch import SERIAL
from chalicelib.backends.crusoe.machines import find_machine, state_of
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.operators_prices import OperatorsPrices
from chalicelib.backends.kit.owners import owned_volume
from chalicelib.backends.kit.visibility import is_fresh
from chalicelib.backends.kit.volumes import check_unused, disk, machine_of, running
from chalicelib.backends.spi import OwnedVolume, VolumeRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.owner import OFFERED
from chalicelib.domain.volumes import Device, ProviderDisk
from chalicelib.errors import Gone, Unfit

VOLUME = "volume"  # the kind of their handles
STARTING = ("CREATING", "STARTING", "INITIALIZING")  # states of a machine
FIRST, BETWEEN = FACTS.offers_disks
_OFFER = re.compile(rf"(?:^|-){OFFERED}{FIRST}(.+)$")


class CrusoeVolumes:
    def __init__(self, client: CrusoeClient, disks: CrusoeDisks, prices: OperatorsPrices, now: Now) -> None:
        self._client, self._disks, self._prices, self._now = client, disks, prices, now

    def create(self, request: VolumeRequest) -> Handle:
        return self._disks.made(request.name, request.size_gib, request.region, VOLUME)

    def register(self, volume_id: str, region: str, zone: str) -> ProviderDisk:
        body = self._disks.body(Handle(kind=VOLUME, id=volume_id))
        if body["location"] != region or zone:
            raise Gone(f"The disk {volume_id} is in {body['location']}, and Crusoe's locations have no zones.")
        if body["type"] != PERSISTENT:
            raise Unfit(f"The disk {volume_id} is of type {body['type']}.", hint=f"A volume is of type {PERSISTENT}.")
        return self._disk(body)

    def describe(self, handle: Handle) -> ProviderDisk:
        return self._disk(self._disks.body(handle))

    def attach(self, handle: Handle, machine: Sequence[Handle], *, read_only: bool) -> None:
        body, vm = self._disks.ready(handle), machine_of(machine)
        if vm.id in _users(body):
            return
        check_unused(handle.id, _users(body))
        fresh = is_fresh(vm, self._now(), FACTS.visibility_lag)
        host = running(vm.id, find_machine(self._client, vm), state_of, STARTING, ("RUNNING",), is_fresh=fresh)
        if host["location"] != body["location"]:
            raise Unfit(f"The disk {handle.id} is in {body['location']}, and {vm.id} is in {host['location']}.")
        mode = "read-only" if read_only else "read-write"
        attachment = {"disk_id": handle.id, "mode": mode, "attachment_type": "data"}
        self._client.call("POST", *VMS, vm.id, "attach-disks", body={"attach_disks": [attachment]})

    def detach(self, handle: Handle, machine: Sequence[Handle]) -> None:
        body, vm = self._disks.body(handle), machine_of(machine)
        if vm.id in _users(body):
            self._client.call("POST", *VMS, vm.id, "detach-disks", body={"detach_disks": [handle.id]})

    def delete(self, handle: Handle) -> None:
        self._disks.end(handle)

    def list_owned(self, volume_id: str | None, region: str) -> Iterator[OwnedVolume]:
        for body in list(self._disks.listed(region)):
            yield from owned_volume(handle_of(body, VOLUME), {}, str(body["name"]), only=volume_id)

    def _disk(self, body: Body) -> ProviderDisk:
        size, making = gib_of(body), not body["attached_to"] and self._disks.is_being_made(body)
        month = self._prices.of_disk(PERSISTENT, str(body["location"]))
        offered = _OFFER.search(str(body["name"]))
        return disk(
            handle_of(body, VOLUME),
            "creating" if making else "available",
            size,
            _users(body),
            price=None if month is None else round(month * size, 6),
            offered_to=tuple(offered[1].split(BETWEEN)) if offered else (),
        )


def _users(body: Body) -> dict[str, Device | None]:
    name = f"{SERIAL}{body['serial_number']}"
    return {
        str(each["vm_id"]): Device(by_id=name, read_only=each.get("mode") == "read-only")
        for each in body["attached_to"]
    }
