"""A simulated cloud. It sells machines that don't exist, keeps its own state of them, and fails on request.

The same class has three uses: tests (state in memory, time from the test), the simulation (random faults) and
`dstack server --fake-cloud`, where machines are processes that run the real agent, and the state is in a folder.

A purchase is two resources, a disk and then a machine on it, so that something can be lost between them. With
`idempotent_create`, the token finds at once what an earlier call created. Without it, only the name in the listing
does, and the listing is delayed like real ones: then only waiting prevents a repeated create from buying twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from chalicelib.backends.kit.owners import owned, owned_group
from chalicelib.backends.kit.regions import outcomes
from chalicelib.backends.simulated import WIRE_NAME, catalog
from chalicelib.backends.simulated.disks import Disks, NoDevices, VolumeDevices, machine_of
from chalicelib.backends.simulated.script import Call, FaultPoint, Script
from chalicelib.backends.simulated.state import MemoryResources, ResourceStore
from chalicelib.backends.spi import (
    Container,
    CreateRequest,
    CreateResult,
    GroupRequest,
    Machine,
    Owned,
    OwnedGroup,
    OwnedVolume,
    VolumeRequest,
)
from chalicelib.domain.boot_script import read_user_data
from chalicelib.domain.bundles import worker
from chalicelib.domain.container_script import read_settings
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.offers import Availability, Offer, Resources
from chalicelib.domain.volumes import ProviderDisk
from chalicelib.errors import BackendError, ContainerFailed, Gone, InsufficientCapacity, InUse, QuotaExceeded, Unfit

NEVER: Micros = 1 << 60  # of a container that waits for the others of its gang
NOTICE = 2 * MINUTE  # between the notice that a spot machine is reclaimed and its end

FACTS = BackendFacts(
    name=WIRE_NAME,
    title="Simulated cloud",
    visibility_lag=2 * SECOND,
    create_timeout=20 * SECOND,
    provisioning_timeout=2 * MINUTE,
    multinode=True,
    batch=8,
    describes=50,
    multi_attach=True,
    read_only_attach=True,
    largest_volume=16_000,  # a file of ext4 has less than 16 TB
    volume_zones=True,
    gateways=True,
    grants=frozenset(catalog.GRANTS),
    simulated=True,
)

Body = dict[str, Any]


@dataclass(frozen=True)
class Boot:
    """What a launcher needs to start a machine, or a container."""

    machine_id: str
    user_data: str
    resources: Resources
    delay: Micros
    internal_ip: str
    container: Body | None = None

    @property
    def settings(self) -> tuple[str, str, str]:
        """The server's URL, the instance's id and the token of its agent."""
        return read_settings(self.container["env"]) if self.container else read_user_data(self.user_data)


class Launcher(Protocol):
    def launch(self, boot: Boot) -> None:
        """Starts the machine after `boot.delay`. Does nothing if it is already running."""

    def kill(self, machine_id: str) -> None:
        """Ends the machine and everything that runs on it. Does nothing if there is none."""


class NoLauncher:
    """Machines that exist only in the cloud's state."""

    def launch(self, boot: Boot) -> None:
        return None

    def kill(self, machine_id: str) -> None:
        return None


class FakeCloud:
    facts = FACTS

    def __init__(
        self,
        now: Callable[[], Micros],
        *,
        store: ResourceStore | None = None,
        launcher: Launcher | None = None,
        volumes: ResourceStore | None = None,
        devices: VolumeDevices | None = None,
        script: Script | Callable[[], Script] | None = None,
        facts: BackendFacts = FACTS,
        hostname: str = "",
    ) -> None:
        """`hostname`: of all machines, where they are processes of one computer; else each is called by its id.
        If its facts have `containers`, it has a region that sells them; if they have `bundles`, it sells such."""
        self.facts, self._now, self._hostname = facts, now, hostname
        self._store, self._launcher = store or MemoryResources(), launcher or NoLauncher()
        given = script or Script()
        read_script: Callable[[], Script] = given if callable(given) else lambda: given
        self._script = read_script
        self._lock = threading.RLock()
        self._count = 0
        self.disks = Disks(
            now,
            volumes or MemoryResources(),
            devices or NoDevices(),
            read_script,
            partial(FakeCloud._zone_of, self),
            by_token=facts.idempotent_create,
        )

    # --- the protocol ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        self._maybe_fail("check", "before")

    def offers(self) -> Sequence[Offer]:
        self._maybe_fail("offers", "before")
        with self._lock:
            sold = catalog.offers(self.facts.name, containers=self.facts.containers, bundles=self.facts.bundles)
            return [self._stated(offer) for offer in sold]

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        offer = request.offer
        place = {"region": offer.region, "type": offer.instance.name}
        self._maybe_fail("create", "before", **place)
        with self._lock:
            self._check(request)
            disk = self._adopt("disk", request)
            if disk is None and self._adopt("vm", request) is None:
                self._admit(request)
            disk = disk or self._make("disk", request)
        yield _handle(disk)
        self._maybe_fail("create", "between", **place)
        with self._lock:
            machine = self._adopt("vm", request)
            if machine is None:
                self._join(request)
                machine = self._make("vm", request)
            for each in self._gang(machine):
                self._start(each)
        self._maybe_fail("create", "after", **place)
        yield _handle(machine)
        for mount in request.container.mounts if request.container else ():
            self.disks.attach(mount.volume, machine["id"], read_only=mount.read_only)

    def create_several(self, requests: Sequence[CreateRequest]) -> Iterator[CreateResult]:
        """Creates everything that it can before it yields the first result."""
        self._maybe_fail("create", "before")
        results: list[CreateResult] = []
        for request in requests:
            try:
                making = self.create(request)  # what it yields is kept, even if it fails afterwards
                while (handle := next(making, None)) is not None:
                    results.append(CreateResult(request.token, handle))
            except BackendError as error:
                results.append(CreateResult(request.token, error=error))
        self._maybe_fail("create", "after")
        yield from results

    def describe(self, handles: Sequence[Handle]) -> Machine:
        self._maybe_fail("describe", "before")
        return self._described(handles)

    def describe_several(self, machines: Sequence[Sequence[Handle]]) -> Sequence[Machine | BackendError]:
        self._maybe_fail("describe", "before")
        return outcomes(machines, self._described)

    def _described(self, handles: Sequence[Handle]) -> Machine:
        with self._lock:
            bodies = [self._live(handle.id) for handle in handles if handle.kind == "vm"]
            machine = next((body for body in bodies if body is not None and body["visible_at"] <= self._now()), None)
            if machine is not None and machine.get("short") and machine["running_at"] <= self._now():
                raise Gone(f"no {machine['type']} was left (simulated)", refused=InsufficientCapacity)
            if machine is not None and (why := self._failure(machine)):
                raise Gone(why, refused=ContainerFailed)
            if machine is None or (machine["ends_at"] is not None and not machine.get("short")):
                raise Gone(f"there is no machine {' or '.join(h.id for h in handles) or 'without a handle'}")
            announced = machine["interrupted_at"] is not None and machine["interrupted_at"] <= self._now()
            up = machine["running_at"] <= self._now()
            number = next(worker(handle) for handle in handles if handle.id == machine["id"])
            boot = self._boots(machine)[number]
            name = self._hostname or boot.machine_id
            return Machine("running" if up else "pending", name, boot.internal_ip, interrupted=announced)

    def terminate(self, handle: Handle) -> None:
        self._maybe_fail("terminate", "before")
        script = self._script()
        with self._lock:
            body = self._live(handle.id)
            if body is None:
                raise Gone(f"there is no {handle.kind} {handle.id}")
            if body["ends_at"] is None and not script.take("lies"):
                self._store.put(body["id"], {**body, "ends_at": self._now() + script.end})
                if script.end == 0:
                    self._live(handle.id)
        self._maybe_fail("terminate", "after")

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        self._maybe_fail("list", "before")
        with self._lock:
            bodies = [b for b in self._all() if b["kind"] in ("disk", "vm") and b["visible_at"] <= self._now()]
        for body in (body for body in bodies if region in ("", body["region"])):
            for found in owned(_handle(body), dict(body["tags"]), body["name"]):
                if instance_id in (None, found.instance_id):
                    yield found

    # --- placement groups --------------------------------------------------------------------------------------------

    def create_group(self, request: GroupRequest) -> Handle:
        """Names are unique, so an existing group is found by its name at once."""
        self._maybe_fail("create_group", "before", region=request.offer.region)
        with self._lock:
            found = next((b for b in self._groups() if b["name"] == request.name and b["ends_at"] is None), None)
            group = found or self._make_group(request)
        self._maybe_fail("create_group", "after", region=request.offer.region)
        return _handle(group)

    def delete_group(self, handle: Handle) -> None:
        self._maybe_fail("delete_group", "before")
        script = self._script()
        with self._lock:
            group = self._live(handle.id)
            if group is None:
                raise Gone(f"there is no placement group {handle.id}")
            if inside := self._inside(handle.id):
                raise InUse(f"{len(inside)} machines are in placement group {handle.id} (simulated)")
            if group["ends_at"] is None and not script.take("lies"):
                self._store.put(handle.id, {**group, "ends_at": self._now() + script.end})
                self._live(handle.id)
        self._maybe_fail("delete_group", "after")

    def list_owned_groups(self) -> Iterator[OwnedGroup]:
        self._maybe_fail("list_groups", "before")
        with self._lock:
            shown = [body for body in self._groups() if body["visible_at"] <= self._now()]
        for body in shown:
            yield from owned_group(_handle(body), dict(body["tags"]), body["name"])

    # --- volumes -----------------------------------------------------------------------------------------------------

    def create_volume(self, request: VolumeRequest) -> Handle:
        return self.disks.create(request)

    def register_volume(self, volume_id: str, region: str, zone: str) -> ProviderDisk:
        return self.disks.register(volume_id, region, zone)

    def describe_volume(self, handle: Handle) -> ProviderDisk:
        return self.disks.describe(handle)

    def attach_volume(self, handle: Handle, machine: Sequence[Handle], *, read_only: bool = False) -> None:
        self.disks.attach(handle, machine_of(machine), read_only=read_only)

    def detach_volume(self, handle: Handle, machine: Sequence[Handle]) -> None:
        self.disks.detach(handle, machine_of(machine))

    def delete_volume(self, handle: Handle) -> None:
        self.disks.delete(handle)

    def list_owned_volumes(self, volume_id: str | None = None, region: str = "") -> Iterator[OwnedVolume]:
        yield from self.disks.list_owned(volume_id, region)

    def close(self) -> None:
        """Releases nothing: machines outlive a killed server, as in any cloud."""

    # --- for scripts and tests ---------------------------------------------------------------------------------------

    def interrupt(self, instance_id: str, at: Micros | None = None) -> None:
        """Announces that this instance's machine will be reclaimed."""
        with self._lock:
            for body in self._all():
                if body["kind"] == "vm" and dict(body["tags"])["dstack-instance"] == instance_id:
                    self._store.put(body["id"], {**body, "interrupted_at": self._now() if at is None else at})

    def exit(self, instance_id: str, why: str) -> None:
        """This instance's container exits by itself."""
        with self._lock:
            for body in self._all():
                if body["kind"] == "vm" and dict(body["tags"])["dstack-instance"] == instance_id:
                    self._kill(body)
                    self._store.put(body["id"], {**body, "exited": why})

    def resume(self) -> None:
        """Restarts the machines that were running when this cloud's computer went down."""
        with self._lock:
            for body in self._all():
                if body["kind"] == "vm" and body["started"] and body["ends_at"] is None:
                    self._launch(body)
        self.disks.resume()

    def switch_off(self) -> int:
        """Ends all machines at once, and returns how many there were."""
        with self._lock:
            running = [body for body in self._all() if body["kind"] == "vm" and body["ends_at"] is None]
            for body in running:
                self._store.put(body["id"], {**body, "ends_at": self._now()})
                self._live(body["id"])
        return len(running)

    def lose(self, machine_id: str) -> None:
        """The machine disappears without notice."""
        with self._lock:
            if (body := self._store.get(machine_id)) is not None:
                self._kill(body)
            self._store.drop(machine_id)

    def machines(self) -> list[Body]:
        """Every machine that exists, including those that aren't listed yet, for tests to compare with."""
        with self._lock:
            return [body for body in self._all() if body["kind"] == "vm"]

    def resources(self) -> list[Body]:
        with self._lock:
            return self._all()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _maybe_fail(self, call: Call, when: FaultPoint, *, region: str = "", type: str = "") -> None:
        error = self._script().fault(call, when, region=region, type=type)
        if error is not None:
            raise error

    def _zone_of(self, machine_id: str) -> str | None:
        with self._lock:
            body = self._live(machine_id)
            return None if body is None else str(body["zone"])

    def _all(self) -> list[Body]:
        return [body for body in map(self._aged, self._store.all()) if body is not None]

    def _live(self, resource_id: str) -> Body | None:
        body = self._store.get(resource_id)
        return None if body is None else self._aged(body)

    def _aged(self, body: Body) -> Body | None:
        """The resource as it is by now; None, and removed from the store, once it has ended."""
        ends = body["ends_at"]
        if body["interrupted_at"] is not None:
            taken = body["interrupted_at"] + NOTICE
            ends = taken if ends is None else min(ends, taken)
        if ends is None or ends > self._now():
            return body
        if body["kind"] == "vm":
            self._kill(body)
        self._store.drop(body["id"])
        return None

    def _adopt(self, kind: str, request: CreateRequest) -> Body | None:
        for body in self._all():
            if body["kind"] != kind or (body["ends_at"] is not None and not body.get("short")):
                continue
            if self.facts.idempotent_create and body["token"] == request.token:
                return body
            if body["name"] == request.name and body["visible_at"] <= self._now():
                return body
        return None

    def _groups(self) -> list[Body]:
        return [body for body in self._all() if body["kind"] == "group"]

    def _inside(self, group_id: str) -> list[Body]:
        return [body for body in self._all() if body["kind"] == "vm" and body.get("group") == group_id]

    def _join(self, request: CreateRequest) -> None:
        """Checks that the machine can be created in its placement group."""
        handle, room = request.placement_group, self._script().group
        if handle is None:
            return
        group = self._live(handle.id)
        if group is None or group["ends_at"] is not None or group["visible_at"] > self._now():
            raise Gone(f"there is no placement group {handle.id}")
        if group["region"] != request.offer.region or (request.zones and group["zone"] not in request.zones):
            raise InsufficientCapacity(f"placement group {handle.id} is in {group['zone']} (simulated)")
        if room is not None and len(self._inside(handle.id)) >= room:
            raise QuotaExceeded(f"placement group {handle.id} takes {room} machines (simulated)")

    def _make_group(self, request: GroupRequest) -> Body:
        number, now = self._number(), self._now()
        zones = request.zones or catalog.PLACES[request.offer.region][1]
        body = {
            "id": f"group-{request.token[:8]}-{number}",
            "number": number,
            "kind": "group",
            "name": request.name,
            "tags": [list(tag) for tag in request.tags],
            "region": request.offer.region,
            "zone": zones[number % len(zones)],
            "visible_at": now + self._script().lag,
            "ends_at": None,
            "interrupted_at": None,
        }
        self._store.put(str(body["id"]), body)
        return body

    def _number(self) -> int:
        self._count = max([self._count, *(body["number"] for body in self._store.all())]) + 1
        return self._count

    def _check(self, request: CreateRequest) -> None:
        """Is there such a thing?"""
        offer, known = request.offer, catalog.PLACES if self.facts.containers else catalog.REGIONS
        if offer.region not in known or offer.instance.name not in catalog.TYPES:
            raise InsufficientCapacity(f"{offer.instance.name} in {offer.region} isn't sold here")
        if (offer.region == catalog.CONTAINERS) != (request.container is not None):
            raise Unfit(f"{offer.region} sells {'containers' if request.container is None else 'machines'} (simulated)")

    def _failure(self, machine: Body) -> str:
        """Why a container isn't running; empty if it is, or may still start."""
        container = machine.get("container")
        if container and container["image"] in self._script().bad_images and machine["running_at"] <= self._now():
            return f"the image {container['image']} can't be pulled (simulated)"
        return str(machine.get("exited", ""))

    def _admit(self, request: CreateRequest) -> None:
        self._join(request)
        machines = [body for body in self._all() if body["kind"] == "vm"]
        script, offer = self._script(), request.offer
        name = offer.instance.name
        room = script.capacity.get(f"{offer.region}/{name}")
        if room is not None and sum((b["region"], b["type"]) == (offer.region, name) for b in machines) >= room:
            raise InsufficientCapacity(f"no {name} is left in {offer.region} (simulated)")
        quota = script.quota.get(name)
        if quota is not None and sum(b["type"] == name for b in machines) >= quota:
            raise QuotaExceeded(f"the quota for {name} is {quota} (simulated)")

    def _make(self, kind: str, request: CreateRequest) -> Body:
        number, script, now = self._number(), self._script(), self._now()
        short = kind == "vm" and script.take("short")
        bad = request.container is not None and request.container.image in script.bad_images
        zones = request.zones or catalog.PLACES[request.offer.region][1]
        body = {
            "id": f"{kind}-{request.token[:8]}-{number}",
            "number": number,
            "kind": kind,
            "token": request.token,
            "name": request.name,
            "tags": [list(tag) for tag in request.tags],
            "region": request.offer.region,
            "zone": zones[number % len(zones)],
            "type": request.offer.instance.name,
            "spot": request.offer.instance.resources.spot,
            "open_ports": list(request.open_ports),
            "group": request.placement_group and request.placement_group.id,
            "user_data": request.user_data,
            "bundle": list(request.bundle),
            "container": request.container and _contained(request.container),
            "disk_mib": request.disk_mib,
            # of the loopback, where local machines reach each other at any address
            "ip": f"127.{64 + (number >> 16 & 63)}.{number >> 8 & 255}.{number & 255}",
            "made_at": now,
            "visible_at": now + script.lag,
            "running_at": NEVER if request.container and request.container.gang else now + script.boot,
            "ends_at": now + script.boot + MINUTE if short else None,
            "interrupted_at": None,
            "short": short,
            "comes_up": kind == "vm" and not short and not bad and not script.take("absent"),
            "started": False,
        }
        self._store.put(str(body["id"]), body)
        return body

    def _start(self, machine: Body) -> None:
        """Starts the machine. This happens after it is saved, so that a repeated create repairs a crash in between."""
        if machine["running_at"] == NEVER:
            machine = {**machine, "running_at": self._now() + self._script().boot}
            self._store.put(machine["id"], machine)
        if machine["started"] or not machine["comes_up"]:
            return
        self._launch(machine)
        self._store.put(machine["id"], {**machine, "started": True})

    def _gang(self, machine: Body) -> list[Body]:
        """All containers that start together with this one: itself, or its gang; none until that is complete."""
        gang = (machine.get("container") or {}).get("gang")
        if not gang:
            return [machine]
        there = [each for each in self.machines() if each["ends_at"] is None or each["short"]]
        of_gangs = [(each["container"]["gang"], each) for each in there if (each["container"] or {}).get("gang")]
        found = {own["rank"]: each for own, each in of_gangs if own["token"] == gang["token"]}
        return list(found.values()) if len(found) == gang["nodes"] else []

    def _launch(self, machine: Body) -> None:
        for boot in self._boots(machine):
            self._launcher.launch(boot)

    def _boots(self, machine: Body) -> list[Boot]:
        """Of each machine of a bundle, or of the only one."""
        resources = catalog.resources(machine["type"], spot=machine["spot"])
        delay = max(0, machine["running_at"] - self._now())
        first = Boot(machine["id"], machine["user_data"], resources, delay, machine["ip"], machine.get("container"))
        scripts, (*_, high, low) = machine.get("bundle", ()), machine["ip"].split(".")
        ips = (f"127.{128 + at}.{high}.{low}" for at in range(1, len(scripts)))
        others = zip(_ids(machine)[1:], scripts[1:], ips, strict=True)
        return [first, *(Boot(id, script, resources, delay, ip) for id, script, ip in others)]

    def _kill(self, machine: Body) -> None:
        for machine_id in _ids(machine):
            self._launcher.kill(machine_id)

    def _stated(self, offer: Offer) -> Offer:
        left = self._script().capacity.get(f"{offer.region}/{offer.instance.name}")
        if left is None:
            return offer
        taken = sum((b["region"], b["type"]) == (offer.region, offer.instance.name) for b in self.machines())
        return offer.with_(availability=Availability.available if taken < left else Availability.not_available)


def _ids(machine: Body) -> list[str]:
    """Of each machine of a bundle, or of the only one."""
    return [machine["id"], *(f"{machine['id']}-{at}" for at in range(1, len(machine.get("bundle", ()))))]


def _contained(container: Container) -> Body:
    """As JSON."""
    mounts = [[mount.volume.id, mount.path, mount.read_only] for mount in container.mounts]
    login = container.login and [container.login.username, container.login.password]
    gang = container.gang and vars(container.gang)
    return {**vars(container), "env": dict(container.env), "login": login, "mounts": mounts, "gang": gang}


def _handle(body: Body) -> Handle:
    data: dict[str, str] = {name: body[name] for name in ("region", "zone") if name in body}  # an older one has no zone
    return Handle(kind=body["kind"], id=body["id"], data=data)
