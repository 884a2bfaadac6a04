"""All jobs of a unit are placed, or none. Gangs need that; for a single job it has no extra cost.

Each job is placed before the next one of its unit is considered: the next must not get the same block, and may get the
remaining blocks of a machine that the first one buys. If a job finds no place, the capacity is restored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chalicelib.domain.instants import Micros
from chalicelib.domain.reasons import JobReason
from chalicelib.planning.kernel.plan import Note
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.placing.buying import Purchase
from chalicelib.planning.placing.capacity import Capacity
from chalicelib.planning.placing.options import FreePlace, Unplaceable, Verdict, Waiting, find
from chalicelib.planning.volumes.sites import Volumes, active, busy, free, sites, why_none


@dataclass(frozen=True)
class Unplaced:
    """No job of the unit was placed: the first one that found no place, and why."""

    item: QueuedJob
    reason: Waiting | Unplaceable

    def verdict(self, now: Micros) -> Waiting | Unplaceable:
        return self.reason if isinstance(self.reason, Waiting) else self.reason.so_far(self.item.job, now)


def place_together(
    capacity: Capacity, unit: Sequence[QueuedJob], place: Callable[[QueuedJob, FreePlace | Purchase], None]
) -> tuple[FreePlace | Purchase, ...] | Unplaced:
    """Find a place for each job of the unit, in order. `place` drafts a placement and updates the capacity."""
    mark = capacity.mark()
    verdicts: list[FreePlace | Purchase] = []
    for item in unit:
        verdict = find(capacity, item.requirements, item.job) if item.sites is None else _with_volumes(capacity, item)
        if isinstance(verdict, Waiting | Unplaceable):
            capacity.roll_back(mark)
            return Unplaced(item, verdict)
        place(item, verdict)
        verdicts.append(verdict)
    return tuple(verdicts)


def _with_volumes(capacity: Capacity, item: QueuedJob) -> Verdict:
    """A place where its volumes are free or, to know what it waits for, one where they are at all."""
    if not item.sites:
        return nowhere(item, capacity.volumes)
    now = sites(item.volumes, capacity.volumes, free)
    found = find(capacity, item.requirements.at(now), item.job) if now else None
    if isinstance(found, FreePlace | Purchase):
        return found
    ever = find(capacity, item.requirements, item.job)
    if isinstance(ever, Unplaceable) or isinstance(found, Waiting):
        return ever if isinstance(ever, Unplaceable) or found is None else found
    return Waiting("", busy(item.volumes, capacity.volumes))


def nowhere(item: QueuedJob, volumes: Volumes) -> Unplaceable:
    """The verdict that no site has all of its volumes; a missing or inactive volume is an error of its own."""
    there = all(any(name in volumes and active(volumes[name]) for name in each) for each in item.volumes)
    reason = JobReason.failed_to_start_due_to_no_capacity if there else JobReason.volume_error
    return Unplaceable((Note("", why_none(item.volumes, volumes)),), reason)
