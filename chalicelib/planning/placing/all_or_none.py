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
from chalicelib.planning.placing.buying import Buy
from chalicelib.planning.placing.capacity import Floor
from chalicelib.planning.placing.options import Hopeless, Spot, Verdict, Waits, find
from chalicelib.planning.volumes.sites import Volumes, active, busy, free, sites, why_none


@dataclass(frozen=True)
class Unplaced:
    """No job of the unit was placed: the first that found nothing, and why."""

    item: QueuedJob
    reason: Waits | Hopeless

    def verdict(self, now: Micros) -> Waits | Hopeless:
        return self.reason if isinstance(self.reason, Waits) else self.reason.so_far(self.item.job, now)


def place_together(
    floor: Floor, unit: Sequence[QueuedJob], place: Callable[[QueuedJob, Spot | Buy], None]
) -> tuple[Spot | Buy, ...] | Unplaced:
    """Where each job of the unit goes, in order. `place` drafts a placement and updates the floor."""
    mark = floor.mark()
    verdicts: list[Spot | Buy] = []
    for item in unit:
        verdict = find(floor, item.wants, item.job) if item.sites is None else _with_volumes(floor, item)
        if isinstance(verdict, Waits | Hopeless):
            floor.back(mark)
            return Unplaced(item, verdict)
        place(item, verdict)
        verdicts.append(verdict)
    return tuple(verdicts)


def _with_volumes(floor: Floor, item: QueuedJob) -> Verdict:
    """First where its volumes are free; then, for what it waits, where they are at all."""
    if not item.sites:
        return nowhere(item, floor.volumes)
    now = sites(item.volumes, floor.volumes, free)
    found = find(floor, item.wants.at(now), item.job) if now else None
    if isinstance(found, Spot | Buy):
        return found
    ever = find(floor, item.wants, item.job)
    if isinstance(ever, Hopeless) or isinstance(found, Waits):
        return ever if isinstance(ever, Hopeless) or found is None else found
    return Waits("", busy(item.volumes, floor.volumes))


def nowhere(item: QueuedJob, volumes: Volumes) -> Hopeless:
    """Its volumes are nowhere together; one that is missing, or isn't active, is an error of its own."""
    there = all(any(name in volumes and active(volumes[name]) for name in each) for each in item.volumes)
    reason = JobReason.failed_to_start_due_to_no_capacity if there else JobReason.volume_error
    return Hopeless((Note("", why_none(item.volumes, volumes)),), reason)
