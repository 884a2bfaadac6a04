"""What plans of runs and fleets have in common: the fleets as a plan sees them, and what waiting costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from chalicelib.domain.fleets import Fleet, FleetBody
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import Micros, sortable
from chalicelib.domain.noun import Noun
from chalicelib.domain.offers import Offer
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.errors import Bug
from chalicelib.planning.snapshots import FleetView
from chalicelib.store import keys, nouns
from chalicelib.store.port import Record, Store
from chalicelib.usecases.context import Plane
from chalicelib.usecases.listing import all_of

N = TypeVar("N", bound=Noun)

DEFAULT_OFFERS = 50
MANY_OFFERS = 200_000  # all of them, for answers that need the dearest first or every group


def fleet_views(store: Store, project_id: str) -> tuple[FleetView, ...]:
    """Every fleet of a project with its spec and its live instances."""
    fleets = [nouns.read(Fleet, record) for record in all_of(store, "gsi1", keys.fleets_of(project_id))]
    bodies = store.get_many([keys.fleet_body(fleet.id, fleet.spec_num) for fleet in fleets])
    return tuple(
        FleetView(fleet, _spec(fleet, body), instances_of(store, fleet.id))
        for fleet, body in zip(fleets, bodies, strict=True)
        if not fleet.deleted
    )


def _spec(fleet: Fleet, body: Record | None) -> FleetSpec:
    if body is None:
        raise Bug(f"fleet {fleet.id} has no spec number {fleet.spec_num}")
    return FleetSpec.model_validate_json(nouns.read(FleetBody, body).spec)


def instances_of(store: Store, fleet_id: str) -> tuple[Instance, ...]:
    """A fleet's instances that aren't terminated, in order of their numbers."""
    return tuple(nouns.read(Instance, record) for record in all_of(store, "gsi1", keys.instances_of(fleet_id)))


def highest_price(offers: Sequence[Offer]) -> float | None:
    return max((offer.price for offer in offers), default=None)


def delays(plane: Plane) -> str:
    """The longest that a start and a stop may take to reach an instance that is there already."""
    if plane.embedded:
        return "Instances hear of a start or a stop at once; one that can't be reached is given up after 2 min."
    slow, lost = plane.sync_slow, 2 * max(plane.sync_slow, 330) / 60
    return (
        f"An idle instance hears of a start within {slow:g} s and a quiet one of a stop within {slow:g} s; "
        f"one that can't be reached is given up after {lost:g} min."
    )


# --- pages ----------------------------------------------------------------------------------------------------------


def bounds(at: Micros | None, tie: str | None, *, ascending: bool) -> tuple[str, str]:
    """The sort range after the last row of the page before: `(low, high)` for a query."""
    if at is None:
        return "", ""
    if tie is None:
        return (sortable(at + 1), "") if ascending else ("", sortable(at))
    last = keys.by_time("", at, tie)[1]
    return (
        (f"{last}!", "") if ascending else ("", last)
    )  # nothing sorts between a key and itself with one more character
