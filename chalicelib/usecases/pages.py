"""What plans of runs and fleets share: prices, and pages of lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros, sortable
from chalicelib.domain.noun import Noun
from chalicelib.domain.offers import Offer

N = TypeVar("N", bound=Noun)

DEFAULT_OFFERS = 50
MANY_OFFERS = 200_000  # no limit in practice: to show the most expensive first, or every group


def highest_price(offers: Sequence[Offer]) -> float | None:
    return max((offer.price for offer in offers), default=None)


# --- pages ----------------------------------------------------------------------------------------------------------


def bounds(at: Micros | None, tie: str | None, *, ascending: bool) -> tuple[str, str]:
    """The sort range after the last row of the previous page: `(low, high)` for a query."""
    if at is None:
        return "", ""
    if tie is None:
        return (sortable(at + 1), "") if ascending else ("", sortable(at))
    last = keys.by_time("", at, tie)[1]
    return (
        (f"{last}!", "") if ascending else ("", last)
    )  # nothing sorts between a key and itself with one more character
