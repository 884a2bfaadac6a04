"""The answer of a market to one request for offers, and who waits for it."""

from __future__ import annotations

from dataclasses import dataclass

from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Value
from chalicelib.domain.offers import Offer

MOST_LISTINGS = 100  # of an answer, the best of them


@dataclass(frozen=True)
class MarketAnswer:
    at: Micros
    offers: tuple[Offer, ...] = ()
    error: str = ""  # why there is no answer
    lacking: str = ""  # what the provider lacks, if it knows, or what isn't known of it
    request: str = ""  # in words
    took: Micros = 0  # from `at`, when it was asked


class MarketQuery(Value):
    """That the decision about a job or a gateway waits for a market's answer, or has waited."""

    backend: str
    key: str  # of the request
    at: Micros  # an older answer is none
    until: Micros  # from then on, the decision goes on without it
    attempts: int = 0  # that had failed by then: the next failure asks anew
    retried: bool = False  # the second, after one without an answer
