"""All jobs of a unit are placed, or none. Gangs need that; for a single job it costs nothing extra.

Each job is placed before the next one of its unit is considered: the next must not get the same block, and may well get
the rest of a machine that the first one buys. When one finds no place, the floor is restored.
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
    """No job of the unit was placed: the first that found nothing, and why."""

    item: QueuedJob
    reason: Waits | Hopeless


def place_together(
    floor: Floor, unit: Sequence[QueuedJob], place: Callable[[QueuedJob, Spot | Buy], None]
) -> tuple[Spot | Buy, ...] | Unplaced:
    """Where each job of the unit goes, in order. `place` drafts a placement and updates the floor."""
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
