"""Events get their end as they are written; the rest passes through."""

from __future__ import annotations

import pytest

from chalicelib.domain import keys
from chalicelib.domain.events import Event, EventType, Target
from chalicelib.domain.instants import DAY, SECOND
from chalicelib.domain.retention import Retention
from chalicelib.store import nouns
from chalicelib.store.expiring import ExpiringStore
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import Delete, Store
from tests.store.contract import StoreContract, add, record
from tests.world.time import NOW


class TestExpiring(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return ExpiringStore(MemoryStore(), Retention())


def event(project_id: str) -> Event:
    run = Target(type="run", id="run", name="hello")
    return Event(id="e", project_id=project_id, at=NOW, type=EventType.created, targets=(run,), run_id="run")


@pytest.mark.parametrize("project_id", ["project", ""])
def test_an_event_expires_when_the_operator_says(project_id: str) -> None:
    store = ExpiringStore(MemoryStore(), Retention(events=12))
    store.commit([nouns.put(event(project_id)), *add(record("run", gsi1=("g", "1"), expires_at=7), record("job"))])
    (kept,) = store.query("main", keys.events_of(project_id)).records
    assert kept.expires_at == (NOW + 12 * DAY) // SECOND
    assert nouns.read(Event, kept).message == "submitted" and kept.gsi1 == ("run-events/run", kept.key.sk)
    others = [store.get(keys.Key(name, "status")) for name in ("run", "job")]
    assert [found.expires_at for found in others if found] == [7, None]
    store.commit([Delete(kept.key)])
    assert store.get(kept.key) is None
