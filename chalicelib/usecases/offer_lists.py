"""Lists of offers in plans: how many to show, and the highest price among all of them."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.domain.offers import Offer

DEFAULT_OFFERS = 50


def highest_price(offers: Sequence[Offer]) -> float | None:
    return max((offer.price for offer in offers), default=None)
