"""What markets have answered, as decisions see it, and the requests that queries become."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import SECOND, Micros, clock, spoken
from chalicelib.domain.market_answers import MarketAnswer
from chalicelib.domain.offer_requests import OfferRequest
from chalicelib.planning.kernel.plan import Note
from chalicelib.planning.matching.containers import MULTINODE
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.offer_options import for_backend

QueryKey = tuple[str, str]  # a backend, and the key of a request
Answers = Mapping[QueryKey, MarketAnswer]


def requests_of(query: Query, facts: Mapping[str, BackendFacts]) -> Iterable[tuple[str, OfferRequest]]:
    """What to ask each market that the query takes. Its machines are no clusters; its containers may be."""
    for name, each in sorted(facts.items()):
        taken = query.backends is None or name.lower() in query.backends
        enough = each.multinode and query.nodes > 1 if MULTINODE in query.container else query.nodes < 2
        if each.live_offers and taken and enough and query.reservation is None:
            yield (
                name,
                OfferRequest(
                    resources=query.machine or query.resources,
                    spot=query.spot,
                    max_price=query.max_price if query.blocks == 1 else None,
                    regions=_ordered(query.regions),
                    zones=_ordered(query.zones),
                    instance_types=_ordered(query.instance_types),
                    nodes=max(1, query.nodes),
                    options=for_backend(query.options, name),
                ),
            )


def silence(backend: str, answer: MarketAnswer | None, waited: Micros) -> Note | None:
    """What a plan or a refusal says of a market that gave nothing; None: it did."""
    subject = f"backend `{backend}`"
    if answer is None:
        return Note(subject, f"was asked for offers and didn't answer within {spoken(waited)}", "try again later")
    if answer.error:
        return Note(subject, f"was asked for offers and couldn't answer: {answer.error.rstrip('.')}", "try again later")
    if answer.offers:
        return None
    why = f": {answer.lacking.rstrip('.')}" if answer.lacking else ""
    return Note(subject, f"was asked for offers and has nothing that fits now{why}")


def origin(answer: MarketAnswer) -> str:
    """What a market was asked for when it offered what is bought, and when; empty if an earlier version asked."""
    if not answer.request:
        return ""
    count = len(answer.offers)
    found = f"{count} offer{'' if count == 1 else 's'} in {seconds(answer.took)}"
    return f"asked at {clock(answer.at)} for {answer.request}: {found}"


def seconds(took: Micros) -> str:
    return f"{took / SECOND:.1f} s"


def _ordered(names: frozenset[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(sorted(names))
