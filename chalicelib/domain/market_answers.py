"""The answer of a market to one request for offers."""

from __future__ import annotations

from dataclasses import dataclass

from chalicelib.domain.instants import Micros
from chalicelib.domain.offers import Offer

MOST_LISTINGS = 100  # of an answer, the best of them


@dataclass(frozen=True)
class MarketAnswer:
    at: Micros
    offers: tuple[Offer, ...] = ()
    error: str = ""  # why there is no answer
    lacking: str = ""  # what the provider lacks, if it knows, where there are no offers
