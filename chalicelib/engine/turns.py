"""A schedule's turn, taken once however often the schedule fires for it."""

from __future__ import annotations

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros
from chalicelib.domain.turns import ScheduleTurn
from chalicelib.errors import Conflict
from chalicelib.store import nouns
from chalicelib.store.port import Store


def taken(store: Store, schedule: str, at: Micros) -> bool:
    """Has somebody taken the turn of that time, or a later one? If not, it is taken now."""
    last = nouns.find(store, ScheduleTurn, keys.schedule(schedule)) or ScheduleTurn(schedule=schedule, at=0)
    if last.at >= at:
        return True
    try:
        store.commit([nouns.put(last.with_(at=at))])
    except Conflict:
        return True
    return False
