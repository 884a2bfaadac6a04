"""All jobs of a unit, or none: what a gang needs, and for a single job no more than asking.

A job is placed before the next of its unit is asked for: the next must not be given the same block, and may well be
given the rest of a machine that the first one buys. When one finds nothing, the floor is put back to where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chalicelib.planning.asking import Hopeless, Spot, Waits, find
from chalicelib.planning.buying import Buy
from chalicelib.planning.combine import wants_of
from chalicelib.planning.floor import Floor
from chalicelib.planning.snapshots import QueuedJob


@dataclass(frozen=True)
class Unplaced:
    """None of the unit has a place: this was the first job that found nothing, and why."""

    item: QueuedJob
    reason: Waits | Hopeless


def place_together(
    floor: Floor, unit: Sequence[QueuedJob], place: Callable[[QueuedJob, Spot | Buy], None]
) -> tuple[Spot | Buy, ...] | Unplaced:
    """Where each job of the unit goes, in order. `place` writes a placement down and tells the floor of it."""
    mark = floor.mark()
    verdicts: list[Spot | Buy] = []
    for item in unit:
        verdict = find(floor, wants_of(item.run_spec, item.spec, item.run.fleet_id), item.job)
        if isinstance(verdict, Waits | Hopeless):
            floor.back(mark)
            return Unplaced(item, verdict)
        place(item, verdict)
        verdicts.append(verdict)
    return tuple(verdicts)
