"""Plans of tasks on several nodes: whether there is or may be a cluster for them, and if not, why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chalicelib.domain.facts import BackendFacts
from chalicelib.planning.kernel.plan import Note
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.placing.capacity import Capacity
from chalicelib.planning.placing.gang_needs import Needs
from chalicelib.planning.placing.gang_placement import seek
from chalicelib.planning.placing.gang_purchases import order
from chalicelib.planning.placing.options import Unplaceable
from chalicelib.planning.placing.queue import located
from chalicelib.planning.volumes.sites import Volumes


def nowhere(
    unit: Sequence[QueuedJob],
    views: Sequence[FleetView],
    book: OfferBook,
    facts: Mapping[str, BackendFacts],
    volumes: Volumes,
) -> tuple[Note, ...]:
    """Why these nodes can never start together; empty if they can, now or later."""
    (located_unit,) = located([list(unit)], volumes)
    capacity, needs = Capacity(views, book, facts), Needs(located_unit)
    found = seek(capacity, needs, None)
    if not isinstance(found, Unplaceable) or order(capacity, needs, ()) is not None:
        return ()
    return found.notes
