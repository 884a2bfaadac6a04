"""Offers for the containers of a gateway, from a backend that has no list of offers: it is asked, as it is for jobs.

The gateway waits for the answer, which wakes it. One that is too old by then is asked for again.
"""

from __future__ import annotations

from dataclasses import dataclass

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.gateways import Gateway, Orders
from chalicelib.domain.instants import MINUTE, Micros
from chalicelib.domain.market_answers import MarketAnswer, MarketQuery
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.planning.gateways.gateway_machines import Missing, queries_of
from chalicelib.planning.matching.market_answers import Answers, origin, requests_of, silence
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.placing.markets import ANSWER_WITHIN, AskMarket

ASK_AGAIN_EVERY: Micros = MINUTE  # after an answer without offers, or none


@dataclass(frozen=True)
class Asked:
    orders: Orders
    found: OfferBook | Missing
    effects: tuple[AskMarket, ...] = ()
    origin: str = ""  # what the offers were asked for, and when


def ask(gateway: Gateway, facts: BackendFacts, answers: Answers, now: Micros) -> Asked:
    """What the backend offers for the gateway now, or what has to be asked or awaited."""
    orders, backend = gateway.orders, gateway.backend
    if orders.paused_until is not None and now < orders.paused_until:
        return Asked(orders, Missing(orders.refused, orders.paused_until))
    known = {query.key: query for query in orders.markets}
    requests = [each for query in queries_of(gateway, facts) for _, each in requests_of(query, {backend: facts})]
    due = [each for each in requests if _is_due(known.get(each.key), _answer(known.get(each.key), answers), facts, now)]
    if due:
        asked = [MarketQuery(backend=backend, key=each.key, at=now, until=now + ANSWER_WITHIN) for each in due]
        wanted = {each.key for each in requests} - {each.key for each in due}
        kept = [query for query in orders.markets if query.key in wanted]
        effects = tuple(_effect(gateway, each, now + ANSWER_WITHIN) for each in due)
        return Asked(orders.with_(markets=(*kept, *asked)), _waiting(backend, now + ANSWER_WITHIN), effects)
    found = [(known[each.key], _answer(known[each.key], answers)) for each in requests]
    late = [query.until for query, answer in found if answer is None and now < query.until]
    if late:
        return Asked(orders, _waiting(backend, max(late)))
    useful = [answer for _, answer in found if answer is not None and answer.offers]
    if useful:
        offers = [offer for answer in useful for offer in answer.offers]
        return Asked(orders, OfferBook(offers), origin="; ".join(filter(None, map(origin, useful))))
    notes = [note for _, answer in found if (note := silence(backend, answer, ANSWER_WITHIN))]
    again = min(query.at for query, _ in found) + ASK_AGAIN_EVERY
    return Asked(orders, Missing(f"the {notes[0].subject} {notes[0].text}", again))


def _waiting(backend: str, until: Micros) -> Missing:
    return Missing(f"waiting for offers of `{backend}`", until)


def _answer(query: MarketQuery | None, answers: Answers) -> MarketAnswer | None:
    answer = None if query is None else answers.get((query.backend, query.key))
    return answer if query is not None and answer is not None and answer.at >= query.at else None


def _is_due(query: MarketQuery | None, answer: MarketAnswer | None, facts: BackendFacts, now: Micros) -> bool:
    if query is None:
        return True
    if answer is not None and answer.offers:
        return now - answer.at >= facts.offers_last
    return now - query.at >= ASK_AGAIN_EVERY


def _effect(gateway: Gateway, request: OfferRequest, until: Micros) -> AskMarket:
    unit = f"market/{gateway.backend}/{gateway.id}"
    return AskMarket(unit, gateway.backend, until, gateway.project_id, request.model_dump_json(), gateway.unit)
