"""Conclusions from the sweep of an account: which resources are orphans, which instances have lost their machine, and
which volumes their disk.

An instance is committed before anything is bought for it, and its record is read by key, so a resource whose tag names
no instance is an orphan, provided that the listing is taken before the owners are read; so is the second machine that a
purchase has made by mistake, as long as no job can be on it. Conversely, an instance that is missing from a complete
listing has lost its machine, unless its agent still reports. Resources with another install's tag belong to somebody
else and are never touched.

Rule 1: nothing is done at the first sighting. Two sweeps must agree, far enough apart that neither the provider's lag
nor a call in flight can explain both; contrary evidence in between cancels the first sighting. Rule 2: a failed or
incomplete listing proves nothing, so it is never used here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from chalicelib.domain.events import EVERYWHERE, Event, EventType, Target
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Handle, Instance, InstanceStatus, Presence
from chalicelib.domain.instants import DAY, Micros
from chalicelib.domain.owner import same_install
from chalicelib.domain.sightings import Sighting
from chalicelib.domain.tenants import Project
from chalicelib.domain.volumes import Volume, VolumeStatus
from chalicelib.planning.kernel.plan import Effect, Step
from chalicelib.planning.kernel.purchases import PATIENCE, confirmation_delay, describe
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.placing.placement_groups import group_of
from chalicelib.planning.volumes.volumes import DescribeVolume

SIGHTING_LASTS: Micros = DAY  # how long a first sighting counts; afterwards the resource is reported again
LIVE = (InstanceStatus.provisioning, InstanceStatus.idle, InstanceStatus.busy)
# Bought, with each handle recorded, and without a job. If it has two machines by mistake, a job may be on either: the
# token of its agent was used by whichever started first.
JOBLESS = (InstanceStatus.provisioning, InstanceStatus.idle)


class Tagged(Protocol):
    """A listed resource: its handle, and the owner that its tags name."""

    @property
    def handle(self) -> Handle: ...
    @property
    def install(self) -> str: ...
    @property
    def project_id(self) -> str: ...


class OfInstance(Tagged, Protocol):
    @property
    def instance_id(self) -> str: ...
    @property
    def epoch(self) -> int: ...


class OfFleet(Tagged, Protocol):
    @property
    def fleet_id(self) -> str: ...
    @property
    def group_id(self) -> str: ...


class OfVolume(Tagged, Protocol):
    @property
    def volume_id(self) -> str: ...
    @property
    def epoch(self) -> int: ...


T = TypeVar("T", bound=Tagged)
V = TypeVar("V", bound=OfVolume)
I = TypeVar("I", bound=OfInstance)  # noqa: E741 - the usual letter
F = TypeVar("F", bound=OfFleet)


@dataclass(frozen=True)
class AccountSweep(Generic[T]):
    """A sweep of one account, with the first sightings of earlier sweeps."""

    account: str
    facts: BackendFacts
    began: Micros  # before the listing was requested
    now: Micros  # after it had arrived
    strays: Sequence[T] = ()  # listed resources that belong to nobody
    absent: Sequence[tuple[Instance, Presence | None]] = ()  # instances that are missing from the listing
    diskless: Sequence[Volume] = ()  # volumes that are missing from the listing
    projects: Mapping[str, Project] = field(default_factory=dict)  # those the strays' tags name, if they exist
    sightings: Iterable[Sighting] = ()


@dataclass(frozen=True)
class Finding(Generic[T]):
    """A step to commit, and what to do afterwards besides its effects."""

    step: Step
    end: T | None = None  # the resource to terminate at the provider
    gone: Instance | Volume | None = None  # the noun that has lost its machine or disk


# --- one listing ------------------------------------------------------------------------------------------------------


def strays(
    listed: Iterable[I], owners: Mapping[str, Instance], *, install_id: str, now: Micros, lag: Micros
) -> list[I]:
    """The listed resources of ours that belong to nobody. `owners`: all stored instances that they name. Until the
    provider's lag has passed, a resource of a terminated instance may be a stale entry."""
    own = (one for one in listed if same_install(one.install, install_id))
    return [one for one in own if _is_stray(one, owners.get(one.instance_id), now - lag)]


def stray_groups(listed: Iterable[F], fleets: Mapping[str, Fleet], *, install_id: str) -> list[F]:
    """The listed placement groups that no fleet has. `fleets`: all stored fleets that they name."""
    own = (one for one in listed if same_install(one.install, install_id))
    return [one for one in own if one.fleet_id not in fleets or group_of(fleets[one.fleet_id], one.group_id) is None]


def stray_volumes(
    listed: Iterable[V], owners: Mapping[str, Volume], *, install_id: str, now: Micros, lag: Micros
) -> list[V]:
    """The listed disks of ours that belong to nobody. `owners`: all stored volumes that they name."""
    own = (one for one in listed if same_install(one.install, install_id))
    return [one for one in own if _is_stray_disk(one, owners.get(one.volume_id), now - lag)]


def _is_stray_disk(disk: OfVolume, owner: Volume | None, before: Micros) -> bool:
    if owner is None or disk.epoch < owner.epoch:
        return True
    return owner.deleted and disk.epoch == owner.epoch and (owner.deleted_at or owner.last_processed_at) <= before


def without_disk(listed: Iterable[OfVolume], volumes: Iterable[Volume]) -> list[Volume]:
    """Active volumes of ours that a complete listing doesn't show, by handle or by tag."""
    shown = list(listed)
    known = {one.handle.id for one in shown} | {one.volume_id for one in shown}
    return [
        volume
        for volume in volumes
        if volume.status is VolumeStatus.active
        and not volume.external
        and volume.handle is not None
        and known.isdisjoint((volume.id, volume.handle.id))
    ]


def _is_stray(resource: OfInstance, owner: Instance | None, before: Micros) -> bool:
    if owner is None or resource.epoch < owner.epoch:  # never wanted, or from a superseded purchase
        return True
    if resource.epoch > owner.epoch:
        return False
    if owner.status in JOBLESS:
        return _is_double(resource.handle, owner.handles)
    return owner.status is InstanceStatus.terminated and (owner.finished_at or owner.last_processed_at) <= before


def _is_double(handle: Handle, recorded: Iterable[Handle]) -> bool:
    """Did an instance get it besides one of its own? After a lost reply, a repeated creation can't adopt what isn't
    listed yet. What the provider makes and lists by itself, such as a network card, has no recorded handle of its
    kind."""
    alike = {each.id for each in recorded if each.kind == handle.kind}
    return bool(alike) and handle.id not in alike


def unlisted(listed: Iterable[OfInstance], instances: Iterable[Instance]) -> list[Instance]:
    """Live instances of which a complete listing shows no resource, by handle or by tag."""
    shown = list(listed)
    handles = {(one.handle.kind, one.handle.id) for one in shown}
    named = {one.instance_id for one in shown}
    return [
        instance
        for instance in instances
        if instance.status in LIVE
        and instance.handles
        and instance.id not in named
        and handles.isdisjoint((handle.kind, handle.id) for handle in instance.handles)
    ]


# --- two listings -----------------------------------------------------------------------------------------------------


def decide_sweep(sweep: AccountSweep[T]) -> Iterator[Finding[T]]:
    """The findings of a sweep: first sightings, confirmations, and sightings that it clears."""
    known = {sighting.subject: sighting for sighting in sweep.sightings}
    suspects: dict[str, T | Instance | Volume] = {_subject(volume): volume for volume in sweep.diskless}
    suspects |= {_subject(one): one for one, presence in sweep.absent if not _reports(presence, sweep.now)}
    suspects |= {_subject(stray): stray for stray in sweep.strays}  # last, because ending many takes its time
    for subject, suspect in suspects.items():
        seen = known.get(subject)
        if seen is None or seen.until <= sweep.now:
            yield Finding(_first_sight(sweep, subject, suspect, seen))
        elif sweep.began - seen.first_at >= confirmation_delay(sweep.facts):
            yield _agreement(sweep, suspect, seen)
    for sighting in known.values():
        if sighting.subject not in suspects and sighting.until > sweep.now:
            yield Finding(Step(saves=(sighting.with_(until=sweep.now),)))


def _reports(presence: Presence | None, now: Micros) -> bool:
    """Does the agent report? Then its machine exists, whatever a listing shows."""
    return presence is not None and presence.seen_until >= now


def _subject(suspect: Tagged | Instance | Volume) -> str:
    if isinstance(suspect, Instance | Volume):
        return f"{suspect.kind}/{suspect.id}/{suspect.epoch}"
    return f"resource/{suspect.handle.kind}/{suspect.handle.id}"


def _first_sight(sweep: AccountSweep[T], subject: str, suspect: T | Instance | Volume, before: Sighting | None) -> Step:
    """Store a first sighting. `before` no longer counts, but may still be in the store."""
    fresh = Sighting(account=sweep.account, subject=subject, first_at=sweep.now, until=sweep.now + SIGHTING_LASTS)
    sighting = fresh if before is None else fresh.with_(version=before.version)
    if not isinstance(suspect, Instance | Volume):
        return _sighting_step(sweep, suspect, EventType.orphaned, sighting)
    draft = Draft(sweep.now)
    draft.save(sighting)
    draft.record(EventType.missing, suspect)
    return draft.step()


def _agreement(sweep: AccountSweep[T], suspect: T | Instance | Volume, seen: Sighting) -> Finding[T]:
    if isinstance(suspect, Instance | Volume):  # its provider is asked for it by name, too: a loss is final
        return Finding(Step(effects=(_description(sweep, suspect),)), gone=suspect)
    if seen.acted_at is not None:
        return Finding(Step(), end=suspect)  # requested again until it leaves the listing
    return Finding(_sighting_step(sweep, suspect, EventType.reclaimed, seen.with_(acted_at=sweep.now)), end=suspect)


def _description(sweep: AccountSweep[T], suspect: Instance | Volume) -> Effect:
    if isinstance(suspect, Instance):
        return describe(suspect, sweep.now, sweep.facts)
    return DescribeVolume(suspect.unit, suspect.backend, sweep.now + PATIENCE, suspect.project_id)


def _sighting_step(sweep: AccountSweep[T], stray: Tagged, type: EventType, sighting: Sighting) -> Step:
    """A step with the sighting and an event, for the project that the tag names or else for global admins."""
    project = sweep.projects.get(stray.project_id)
    named = stray.project_id[:64]
    event = Event(
        id=derive(sighting.account, "event", sighting.subject, sighting.first_at, type.value),
        project_id=EVERYWHERE if project is None else project.id,
        at=sweep.now,
        type=type,
        detail=f"{stray.handle.kind} {stray.handle.id} at {sweep.facts.title or sweep.facts.name}"[:500],
        targets=(Target(type="project", id=named, name=named if project is None else project.name),),
    )
    return Step(saves=(sighting,), events=(event,))
