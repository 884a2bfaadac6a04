"""All jobs of a unit are placed, or none. Gangs need that; for a single job it costs nothing extra.

Each job is placed before the next one of its unit is considered: the next must not get the same block, and may well get
the rest of a machine that the first one buys. When one finds no place, the floor is restored.
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
    """No job of the unit was placed: the first that found nothing, and why."""

    item: QueuedJob
    reason: Waiting | Unplaceable

    def verdict(self, now: Micros) -> Waiting | Unplaceable:
        return self.reason if isinstance(self.reason, Waiting) else self.reason.so_far(self.item.job, now)


def place_together(
    capacity: Capacity, unit: Sequence[QueuedJob], place: Callable[[QueuedJob, FreePlace | Purchase], None]
) -> tuple[FreePlace | Purchase, ...] | Unplaced:
    """Where each job of the unit goes, in order. `place` drafts a placement and updates the floor."""
    mark = capacity.mark()
    verdicts: list[FreePlace | Purchase] = []
    for item in unit:
        verdict = find(capacity, item.wants, item.job) if item.sites is None else _with_volumes(capacity, item)
        if isinstance(verdict, Waiting | Unplaceable):
            capacity.roll_back(mark)
            return Unplaced(item, verdict)
        place(item, verdict)
        verdicts.append(verdict)
    return tuple(verdicts)


def _with_volumes(capacity: Capacity, item: QueuedJob) -> Verdict:
    """First where its volumes are free; then, for what it waits, where they are at all."""
    if not item.sites:
        return nowhere(item, capacity.volumes)
    now = sites(item.volumes, capacity.volumes, free)
    found = find(capacity, item.wants.at(now), item.job) if now else None
    if isinstance(found, FreePlace | Purchase):
        return found
    ever = find(capacity, item.wants, item.job)
    if isinstance(ever, Unplaceable) or isinstance(found, Waiting):
        return ever if isinstance(ever, Unplaceable) or found is None else found
    return Waiting("", busy(item.volumes, capacity.volumes))


def nowhere(item: QueuedJob, volumes: Volumes) -> Unplaceable:
    """Its volumes are nowhere together; one that is missing, or isn't active, is an error of its own."""
    there = all(any(name in volumes and active(volumes[name]) for name in each) for each in item.volumes)
    reason = JobReason.failed_to_start_due_to_no_capacity if there else JobReason.volume_error
    return Unplaceable((Note("", why_none(item.volumes, volumes)),), reason)
