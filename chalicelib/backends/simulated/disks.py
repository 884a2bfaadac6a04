"""The simulated cloud's volumes: disks in a zone that outlive the machines they are attached to.

A volume is attached to one machine at a time, and in some regions to several. Where machines are processes, a machine
gets a drive on this computer: a loop device, or a folder if the kernel has none. In memory it gets nothing. A machine
that has ended has no volumes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from chalicelib.backends.kit.owners import owned_volume
from chalicelib.backends.simulated import catalog
from chalicelib.backends.simulated.script import Call, FaultPoint, Script
from chalicelib.backends.simulated.state import ResourceStore
from chalicelib.backends.spi import OwnedVolume, VolumeRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import Micros
from chalicelib.domain.owner import OFFERED
from chalicelib.domain.volumes import Device, ProviderDisk
from chalicelib.errors import Gone, InsufficientCapacity, InUse, QuotaExceeded, Unfit

Body = dict[str, Any]


class VolumeDevices(Protocol):
    """The volumes' drives on this computer."""

    def make(self, volume_id: str, size_gib: int) -> None:
        """Creates the drive. Does nothing if it exists."""

    def plug(self, volume_id: str, *, read_only: bool) -> Device:
        """Makes the volume visible to this computer's machines. Does nothing if it is plugged in. Raises Unfit if
        that's impossible."""

    def unplug(self, volume_id: str, *, pulled: bool) -> bool:
        """Removes it from the machines. False if something still uses it: call again. `pulled`: its machines have
        ended, so nothing of theirs uses it."""

    def drop(self, volume_id: str) -> None:
        """Deletes the drive. Does nothing if there is none."""


class NoDevices:
    """Volumes that exist only in the cloud's state."""

    def make(self, volume_id: str, size_gib: int) -> None:
        return None

    def plug(self, volume_id: str, *, read_only: bool) -> Device:
        return Device(serial=volume_id, read_only=read_only)

    def unplug(self, volume_id: str, *, pulled: bool) -> bool:
        return True

    def drop(self, volume_id: str) -> None:
        return None


class Disks:
    def __init__(
        self,
        now: Callable[[], Micros],
        store: ResourceStore,
        devices: VolumeDevices,
        script: Callable[[], Script],
        zone_of: Callable[[str], str | None],
        *,
        by_token: bool,
    ) -> None:
        """`zone_of`: a machine's zone; None if there is no such machine. `by_token`: does the token find at once what
        an earlier call created, or only the name, which is delayed?"""
        self._now, self._store, self._devices, self._script = now, store, devices, script
        self._zone_of, self._by_token = zone_of, by_token
        self._lock = threading.RLock()
        self._count = 0

    # --- the protocol ------------------------------------------------------------------------------------------------

    def create(self, request: VolumeRequest) -> Handle:
        self._maybe_fail("create_volume", "before", request.region)
        with self._lock:
            body = self._adopt(request) or self._create(request)
            self._devices.make(body["id"], body["size_gib"])
        self._maybe_fail("create_volume", "after", request.region)
        return _handle(body)

    def register(self, volume_id: str, region: str, zone: str) -> ProviderDisk:
        self._maybe_fail("register_volume", "before", region)
        with self._lock:
            body = self._visible(volume_id)
            if body["region"] != region or (zone and body["zone"] != zone):
                raise Gone(f"Volume {volume_id} isn't in {zone or region}: it is in {body['zone']}.")
            return self._described(body)

    def describe(self, handle: Handle) -> ProviderDisk:
        self._maybe_fail("describe_volume", "before")
        with self._lock:
            body = self._visible(handle.id)
            if self._script().take("forgets"):
                raise Gone(f"Volume {handle.id} not found")
            return self._described(body)

    def attach(self, handle: Handle, machine_id: str, *, read_only: bool) -> None:
        self._maybe_fail("attach_volume", "before")
        script = self._script()
        with self._lock:
            body = self._visible(handle.id)
            zone, others = self._zone_of(machine_id), body["attached"].keys() - {machine_id}
            if zone is None:
                raise Unfit(f"There is no machine {machine_id or 'without a handle'}.")
            if zone != body["zone"]:
                raise Unfit(f"Volume {body['id']} is in {body['zone']}, and the machine {machine_id} is in {zone}.")
            if others and not body["multi_attach"]:
                raise InUse(f"Volume {body['id']} is attached to {', '.join(sorted(others))}.")
            if body["ends_at"] is not None or body["ready_at"] > self._now():
                raise InUse(f"Volume {body['id']} is {self._described(body).state}.")
            known = body["attached"].get(machine_id)
            if (known is None or known["until"] is not None) and not script.take("lies"):
                device = self._devices.plug(body["id"], read_only=read_only)
                since = self._now() + script.attach
                plugged = {"device": device.model_dump(), "since": since, "until": None}
                self._store.put(body["id"], {**body, "attached": {**body["attached"], machine_id: plugged}})
        self._maybe_fail("attach_volume", "after")

    def detach(self, handle: Handle, machine_id: str) -> None:
        self._maybe_fail("detach_volume", "before")
        script = self._script()
        with self._lock:
            body = self._visible(handle.id)
            known = body["attached"].get(machine_id)
            if known is not None and known["until"] is None and not script.take("lies"):
                leaving = {**known, "until": self._now() + script.detach}
                self._store.put(body["id"], {**body, "attached": {**body["attached"], machine_id: leaving}})
        self._maybe_fail("detach_volume", "after")

    def delete(self, handle: Handle) -> None:
        self._maybe_fail("delete_volume", "before")
        script = self._script()
        with self._lock:
            body = self._live(handle.id)
            if body is None:
                raise Gone(f"Volume {handle.id} not found")
            if body["attached"]:
                raise InUse(f"Volume {body['id']} is attached to {', '.join(sorted(body['attached']))}.")
            if body["ends_at"] is None and not script.take("lies"):
                self._store.put(body["id"], {**body, "ends_at": self._now() + script.end})
                self._live(body["id"])
        self._maybe_fail("delete_volume", "after")

    def list_owned(self, volume_id: str | None, region: str) -> Iterator[OwnedVolume]:
        self._maybe_fail("list_volumes", "before")
        with self._lock:
            bodies = [body for body in self.all() if body["visible_at"] <= self._now()]
        for body in (body for body in bodies if region in ("", body["region"])):
            for found in owned_volume(_handle(body), dict(body["tags"]), body["name"]):
                if volume_id in (None, found.volume_id):
                    yield found

    # --- for scripts and tests ---------------------------------------------------------------------------------------

    def all(self) -> list[Body]:
        """Every volume that exists, including those that aren't listed yet."""
        with self._lock:
            return [body for body in map(self._aged, self._store.all()) if body is not None]

    def add(self, volume_id: str, region: str, zone: str = "", size_gib: int = 1, projects: str = "") -> None:
        """Adds a volume that somebody else created and offers to these projects."""
        tags = ((OFFERED, projects),) if projects else ()
        with self._lock:
            self._put(volume_id, VolumeRequest("", volume_id, tags, region, zone, size_gib))
            self._devices.make(volume_id, size_gib)

    def lose(self, volume_id: str) -> None:
        """It disappears without notice."""
        with self._lock:
            self._devices.drop(volume_id)
            self._store.drop(volume_id)

    def resume(self) -> None:
        """Plugs in the drives that were plugged in when this cloud's computer went down."""
        for body in self.all():
            for each in body["attached"].values():
                self._devices.plug(body["id"], read_only=each["device"]["read_only"])

    # --- inside ------------------------------------------------------------------------------------------------------

    def _maybe_fail(self, call: Call, when: FaultPoint, region: str = "") -> None:
        error = self._script().fault(call, when, region=region, type="volume")
        if error is not None:
            raise error

    def _visible(self, volume_id: str) -> Body:
        body = self._live(volume_id)
        if body is None or body["visible_at"] > self._now():
            raise Gone(f"Volume {volume_id} not found")
        return body

    def _live(self, volume_id: str) -> Body | None:
        body = self._store.get(volume_id)
        return None if body is None else self._aged(body)

    def _aged(self, body: Body) -> Body | None:
        """The volume in its present state: without the machines that have ended or detached it."""
        if body["ends_at"] is not None and body["ends_at"] <= self._now():
            self._devices.drop(body["id"])
            self._store.drop(body["id"])
            return None
        stays = {machine: each for machine, each in body["attached"].items() if not self._left(machine, each)}
        pulled = all(self._zone_of(machine) is None for machine in body["attached"])
        if stays != body["attached"] and (stays or self._devices.unplug(body["id"], pulled=pulled)):
            body = {**body, "attached": stays}
            self._store.put(body["id"], body)
        return body

    def _left(self, machine_id: str, attached: Body) -> bool:
        ended = attached["until"] is not None and attached["until"] <= self._now()
        return ended or self._zone_of(machine_id) is None

    def _adopt(self, request: VolumeRequest) -> Body | None:
        for body in self.all():
            if body["ends_at"] is not None:
                continue
            if self._by_token and body["token"] == request.token:
                return body
            if body["name"] == request.name and body["visible_at"] <= self._now():
                return body
        return None

    def _create(self, request: VolumeRequest) -> Body:
        self._count = max([self._count, *(body["number"] for body in self._store.all())]) + 1
        quota = self._script().quota.get("volume")
        if quota is not None and len(self.all()) >= quota:
            raise QuotaExceeded(f"the quota for volumes is {quota} (simulated)")
        return self._put(f"vol-{request.token[:8]}-{self._count}", request)

    def _put(self, volume_id: str, request: VolumeRequest) -> Body:
        zones = catalog.PLACES[request.region][1] if request.region in catalog.PLACES else ()
        if not zones or (request.zone and request.zone not in zones):
            raise InsufficientCapacity(f"there are no volumes in {request.zone or request.region} (simulated)")
        script, now = self._script(), self._now()
        body = {
            "id": volume_id,
            "number": self._count,
            "token": request.token,
            "name": request.name,
            "tags": [list(tag) for tag in request.tags],
            "region": request.region,
            "zone": request.zone or zones[0],
            "size_gib": request.size_gib,
            "multi_attach": request.region in catalog.MULTI_ATTACH,
            "visible_at": now + script.lag,
            "ready_at": now + script.ready,
            "ends_at": None,
            "attached": {},
        }
        self._store.put(volume_id, body)
        return body

    def _described(self, body: Body) -> ProviderDisk:
        """The volume's description. An attachment is shown from its completion until it has ended."""
        seen = [(machine, each) for machine, each in sorted(body["attached"].items()) if each["since"] <= self._now()]
        soon = tuple(sorted(body["attached"].keys() - {machine for machine, _ in seen}))
        creating, deleting = body["ready_at"] > self._now(), body["ends_at"] is not None
        return ProviderDisk(
            handle=_handle(body),
            state="deleting" if deleting else "creating" if creating else "in_use" if body["attached"] else "available",
            zone=body["zone"],
            size_gib=body["size_gib"],
            price=catalog.volume_price(body["region"], body["size_gib"]),
            multi_attach=body["multi_attach"],
            offered_to=tuple(dict(body["tags"]).get(OFFERED, "").split()),
            attached_to=tuple((machine, Device.model_validate(each["device"])) for machine, each in seen),
            attaching_to=soon,
        )


def _handle(body: Body) -> Handle:
    return Handle(kind="volume", id=body["id"], data={"region": body["region"], "zone": body["zone"]})


def machine_of(handles: Sequence[Handle]) -> str:
    return next((handle.id for handle in handles if handle.kind == "vm"), "")
