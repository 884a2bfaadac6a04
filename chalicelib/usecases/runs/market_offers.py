"""What markets have for a run, asked once while its plan waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.domain.offers import Offer
from chalicelib.engine.ports import PLAN_WAITS
from chalicelib.planning.kernel.plan import Note
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.market_answers import requests_of, silence
from chalicelib.usecases.ports import RunPlanPorts


def ask_markets(
    plane: RunPlanPorts, project_id: str, queries: Iterable[Query], facts: Mapping[str, BackendFacts]
) -> tuple[list[Offer], list[Note]]:
    """Their offers, each once, and a note on each market that has none, is slow or fails, which costs nothing else."""
    if not any(each.live_offers for each in facts.values()):
        return [], []
    asks: dict[tuple[str, str], OfferRequest] = {}
    for query in queries:
        asks.update({(name, request.key): request for name, request in requests_of(query, facts)})
    keys = {account.facts.name: account.key for account in plane.backends.accounts(project_id)}
    answers = plane.account_work.offers([(keys[name], request) for (name, _), request in asks.items()])
    offers: dict[str, Offer] = {}
    notes: dict[Note, None] = {}
    for (name, _), answer in zip(asks, answers, strict=True):
        if note := silence(name, answer, PLAN_WAITS):
            notes[note] = None
        offers.update({offer.key: offer for offer in (answer.offers if answer is not None else ())})
    return list(offers.values()), list(notes)
