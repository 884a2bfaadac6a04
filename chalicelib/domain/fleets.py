"""A fleet: a template for instances and the pool of those it has."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun, Value


class FleetStatus(StrEnum):
    submitted = "submitted"
    active = "active"
    terminating = "terminating"
    terminated = "terminated"
    failed = "failed"


class PlacementGroup(Value):
    """A group in which a provider keeps the machines of a cluster close together. It is created with its first machine;
    `Instance.placement_group` is its id."""

    id: str
    backend: str
    region: str
    handle: Handle | None = None  # None: not known to exist yet
    made_at: Micros | None = None
    leaving: bool = False  # it is being deleted: it is empty, and no machine will join
    asked: int = 0  # how often its deletion was requested
    look_at: Micros | None = None  # leaving: when its deletion is requested again
    message: str = ""  # why it isn't deleted yet


class Fleet(Noun):
    """The status item of a fleet; its spec is a `FleetBody`."""

    kind: ClassVar[str] = "fleet"
    in_fleet: ClassVar[str] = "id"

    id: str
    project_id: str
    name: str
    user_id: str = ""  # who created it; empty for a server's own, and for those of earlier versions
    status: FleetStatus = FleetStatus.active
    message: str = ""
    ended_by: tuple[str, str] | None = None  # the id and name of who deleted it
    created_at: Micros
    last_processed_at: Micros
    spec_num: int = 0  # which FleetBody is in force; one higher with every update in place
    next_instance_num: int = 0
    to_create: int = 0  # instances that an apply requested and that don't exist yet (target, then min)
    to_add: tuple[str, ...] = ()  # hosts that an apply requested and that have no instance yet, as OnPrem.key
    failed: tuple[str, ...] = ()  # ids of instances whose hosts couldn't be added, until the next apply
    networks: tuple[str, ...] = ()  # in a cluster of hosts: those that all of them share; empty before the first
    groups: tuple[PlacementGroup, ...] = ()  # of a cluster: those that exist or are intended
    consolidation_attempt: int = 0  # failed attempts to reach `nodes.min` since the last success or update
    tried: tuple[
        str, ...
    ] = ()  # keys of offers that failed for the fleet's own instances; cleared when all have failed
    paused_until: Micros | None = None  # after failed attempts
    due_at: Micros | None = None
    deleted: bool = False

    @property
    def ended(self) -> bool:
        return self.status in (FleetStatus.terminated, FleetStatus.failed)

    def place(self) -> keys.Place:
        listed = None if self.deleted else keys.by_time(keys.fleets_of(self.project_id), self.created_at, self.id)
        over = keys.by_time(keys.ENDED_FLEETS, self.last_processed_at, self.id) if self.ended else None
        return keys.Place(keys.fleet(self.id), listed, over, keys.due(f"fleet/{self.id}", self.due_at))


class FleetBody(Noun):
    """The immutable spec of a fleet at one `spec_num`, as JSON text of a FleetSpec."""

    fleet_id: str
    spec_num: int = 0
    spec: str

    def place(self) -> keys.Place:
        return keys.Place(keys.fleet_body(self.fleet_id, self.spec_num))
