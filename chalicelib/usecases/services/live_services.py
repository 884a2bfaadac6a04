"""A service as it is now: its groups with their rules, its replicas, and the traffic at its doors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from chalicelib.domain import keys
from chalicelib.domain.instants import MINUTE, Micros
from chalicelib.domain.jobs import Job
from chalicelib.domain.latencies import merged
from chalicelib.domain.runs import Run
from chalicelib.domain.services import BUCKET, SERVER, STEP, Answers, Bucket, Scale, Traffic, doors_of
from chalicelib.domain.specs.services import ScalingSpec, ServiceConfiguration
from chalicelib.engine.read import RunRow
from chalicelib.errors import NotFound
from chalicelib.planning.jobs.replica_groups import groups_of
from chalicelib.planning.runs.replicas import was_removed
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from chalicelib.usecases.ports import RecordPorts
from chalicelib.usecases.services.traffic import recent


@dataclass(frozen=True)
class LiveGroup:
    """Replicas with one spec, and by which rule they are counted."""

    scale: Scale
    fewest: int
    most: int
    rule: ScalingSpec | None


@dataclass(frozen=True)
class LiveService:
    row: RunRow
    config: ServiceConfiguration
    groups: tuple[LiveGroup, ...]
    replicas: tuple[Job, ...]  # the newest job of each; not those that weren't needed any more
    traffic: tuple[Traffic, ...]

    @property
    def held(self) -> int:
        return sum(door.held for door in self.traffic)

    def counts(self, now: Micros) -> list[Bucket]:
        """Requests at all doors, oldest first. A quiet door reports no more, so its last report may be old."""
        found: dict[int, Bucket] = {}
        for each in recent(chain.from_iterable(door.buckets for door in self.traffic), BUCKET, now):
            at = each.at // BUCKET * BUCKET
            known = found.get(at, Bucket(at=at))
            found[at] = Bucket(at=at, requests=known.requests + each.requests, busy=known.busy + each.busy)
        return [found[at] for at in sorted(found)]

    def answers(self, now: Micros) -> list[Answers]:
        """How long answers took at all doors, oldest first."""
        found: dict[Micros, list[Answers]] = {}
        for each in recent(chain.from_iterable(door.answers for door in self.traffic), STEP, now):
            found.setdefault(each.at // STEP * STEP, []).append(each)
        return [_together(at, found[at]) for at in sorted(found)]

    def last_minute(self, now: Micros) -> Answers:
        """The answers of the steps that lie in the last minute, even if only in part."""
        return _together(now, [each for each in self.answers(now) if each.at + STEP > now - MINUTE])


def _together(at: Micros, parts: Sequence[Answers]) -> Answers:
    first_byte, whole = merged(each.first_byte for each in parts), merged(each.whole for each in parts)
    return Answers(at=at, first_byte=first_byte, whole=whole)


def live_service(plane: RecordPorts, row: RunRow) -> LiveService:
    run = row.run
    config = plane.read.run_spec(run.id, run.deployment_num).configuration
    if not isinstance(config, ServiceConfiguration):
        raise NotFound(f"The run {run.name} is a {config.type}, not a service.")
    return LiveService(row, config, _groups(run, config), _replicas(row), _traffic(plane, run))


def _groups(run: Run, config: ServiceConfiguration) -> tuple[LiveGroup, ...]:
    rules = {group.name or str(at): group.scaling for at, group in enumerate(config.groups or ())}
    bounds = groups_of(config)
    found = []
    for scale in run.scales:
        count = bounds.get(scale.group)
        fewest, most = (0, 0) if count is None else (count.min or 0, count.max or 0)
        found.append(LiveGroup(scale, fewest, most, rules.get(scale.group, config.scaling)))
    return tuple(found)


def _replicas(row: RunRow) -> tuple[Job, ...]:
    latest = (history[-1] for history in row.histories())
    return tuple(job for job in latest if not (job.finished and was_removed(job)))


def _traffic(plane: RecordPorts, run: Run) -> tuple[Traffic, ...]:
    """What the doors that clients use have reported. One of a gateway that the service has left doesn't count."""
    if run.finished:
        return ()
    doors = SERVER if run.gateway_id is None else doors_of(run.gateway_id)
    found = all_of(plane.store, "main", keys.traffic(run.id, "").pk)
    return tuple(nouns.read(Traffic, record) for record in found if record.key.sk.startswith(doors))
