"""Claims on the turns of a schedule, so that each turn is worked once however often the schedule fires for it."""

from __future__ import annotations

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros
from chalicelib.domain.turns import ScheduleTurn
from chalicelib.errors import Conflict
from chalicelib.store import nouns
from chalicelib.store.port import Store


def claim_turn(store: Store, schedule: str, at: Micros) -> bool:
    """Claim the turn of that time. False if that turn, or a later one, has been claimed before."""
    last = nouns.find(store, ScheduleTurn, keys.schedule(schedule)) or ScheduleTurn(schedule=schedule, at=0)
    if last.at >= at:
        return False
    try:
        store.commit([nouns.put(last.with_(at=at))])
    except Conflict:
        return False
    return True
