"""What markets have for a run, asked once while its plan waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import Micros, spoken
from chalicelib.domain.market_answers import MarketAnswer
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Offer
from chalicelib.engine.ports import PLAN_WAITS
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.market_answers import requests_of
from chalicelib.usecases.ports import RunPlanPorts


@dataclass(frozen=True)
class AskedMarket:
    """What a market was asked for, and what came of it."""

    backend: str
    request: str  # in words
    at: Micros
    answer: MarketAnswer | None  # None: it hasn't answered in time

    @property
    def error(self) -> str:
        """Why there is no answer; empty if there is one."""
        return f"no answer within {spoken(PLAN_WAITS)}" if self.answer is None else self.answer.error.rstrip(".")


def ask_markets(
    plane: RunPlanPorts, project_id: str, queries: Iterable[Query], facts: Mapping[str, BackendFacts]
) -> list[AskedMarket]:
    """Each once for each different request. One that is slow or fails costs nothing else."""
    if not any(each.live_offers for each in facts.values()):
        return []
    asks: dict[tuple[str, str], OfferRequest] = {}
    for query in queries:
        asks.update({(name, request.key): request for name, request in requests_of(query, facts)})
    keys, now = {account.facts.name: account.key for account in plane.backends.accounts(project_id)}, plane.clock.now()
    answers = plane.account_work.offers([(keys[name], request) for (name, _), request in asks.items()])
    return [
        AskedMarket(name, request.in_words, now, answer)
        for ((name, _), request), answer in zip(asks.items(), answers, strict=True)
    ]


def offers_of(asked: Iterable[AskedMarket]) -> list[Offer]:
    """What they have offered, each once."""
    answers = (each.answer for each in asked if each.answer is not None)
    return list({offer.key: offer for answer in answers for offer in answer.offers}.values())
