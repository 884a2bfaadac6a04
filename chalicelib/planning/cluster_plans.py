"""What a plan says of a task on several nodes: whether there is or may be a cluster for it, and if not, why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chalicelib.domain.facts import BackendFacts
from chalicelib.planning.asking import Hopeless
from chalicelib.planning.floor import Floor
from chalicelib.planning.gangs import Needs
from chalicelib.planning.gathering import seek
from chalicelib.planning.offers import OfferBook
from chalicelib.planning.ordering import order
from chalicelib.planning.plan import Note
from chalicelib.planning.queue import located
from chalicelib.planning.sites import Volumes
from chalicelib.planning.snapshots import FleetView, QueuedJob


def nowhere(
    unit: Sequence[QueuedJob],
    views: Sequence[FleetView],
    book: OfferBook,
    facts: Mapping[str, BackendFacts],
    volumes: Volumes,
) -> tuple[Note, ...]:
    """Why these nodes can never start together; empty if they can, now or later."""
    (located_unit,) = located([list(unit)], volumes)
    floor, needs = Floor(views, book, facts), Needs(located_unit)
    found = seek(floor, needs, None)
    if not isinstance(found, Hopeless) or order(floor, needs, ()) is not None:
        return ()
    return found.notes
