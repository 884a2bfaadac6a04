"""Events of one commit share a record where they can, and each record gets its end as it is written; the rest passes
through."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from chalicelib.domain import keys
from chalicelib.domain.events import Event, EventType, Target
from chalicelib.domain.instants import DAY, SECOND
from chalicelib.domain.retention import Retention
from chalicelib.errors import Conflict
from chalicelib.store import nouns
from chalicelib.store.history import LARGEST, LATE, SPAN, HistoryStore, events_in
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import Delete, Put, Record, Store
from cli.commands import event as following
from dstack_serverless.sdk import observations
from tests.store.contract import StoreContract, add, record
from tests.world.time import NOW


class TestHistory(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return HistoryStore(MemoryStore(), Retention())


def event(id: str = "e", at: int = 0, run: str = "", fleet: str = "", project: str = "p", detail: str = "") -> Event:
    target = Target(type="run", id=run or "run", name="hello")
    return Event(
        id=id,
        project_id=project,
        at=NOW + at,
        type=EventType.created,
        detail=detail,
        targets=(target,),
        run_id=run or None,
        fleet_id=fleet or None,
    )


def stored_records(*events: Event) -> Sequence[Record]:
    """The records after a commit of these events."""
    below = MemoryStore()
    HistoryStore(below, Retention(events=12)).commit([nouns.put(each) for each in events])
    return below.records()


def grouped(*events: Event) -> list[str]:
    return ["".join(each.id for each in events_in(record)) for record in stored_records(*events)]


@pytest.mark.parametrize("project", ["project", ""])
def test_an_event_expires_when_the_operator_says(project: str) -> None:
    store = HistoryStore(MemoryStore(), Retention(events=12))
    one = nouns.put(event(run="run", project=project))
    store.commit([one, *add(record("run", gsi1=("g", "1"), expires_at=7), record("job"))])
    (found,) = store.query("main", keys.events_of(project)).records
    assert found.expires_at == (NOW + 12 * DAY) // SECOND
    assert nouns.read(Event, found).message == "submitted" and found.gsi1 == ("run-events/run", found.key.sk)
    others = [store.get(keys.Key(name, "status")) for name in ("run", "job")]
    assert [found.expires_at for found in others if found] == [7, None]
    store.commit([Delete(found.key)])
    assert store.get(found.key) is None


def test_events_of_a_commit_share_a_record_under_the_key_of_the_first() -> None:
    events = [event("c", 2, run="r", fleet="f"), event("a", 0), event("b", 1, fleet="f")]
    (found,) = stored_records(*events)
    assert events_in(found) == sorted(events, key=lambda each: each.at)
    assert found.key == keys.event("p", NOW, "a") and found.version == 1
    assert found.gsi1 == ("run-events/r", found.key.sk) and found.gsi2 == ("fleet-events/f", found.key.sk)
    assert found.expires_at == (NOW + 12 * DAY) // SECOND


def test_a_record_is_of_one_project_and_at_most_one_run_and_fleet() -> None:
    assert grouped(event("a"), event("b", 1, project="q")) == ["a", "b"]
    assert grouped(event("a", 0, run="r"), event("b", 1, run="s"), event("c", 2, run="r")) == ["ac", "b"]
    assert grouped(event("a", 0, fleet="f"), event("b", 1, fleet="g"), event("c", 2)) == ["ac", "b"]
    assert grouped(event("a", 0, run="r"), event("b", 1, fleet="f"), event("c", 2, run="r", fleet="g")) == ["ab", "c"]


def test_a_record_stays_short_in_time_and_bytes() -> None:
    assert grouped(event("a"), event("b", SPAN), event("c", SPAN + 1)) == ["ab", "c"]
    large = "x" * (LARGEST // 2)
    assert grouped(event("a", 0, detail=large), event("b", 1, detail=large), event("c", 2)) == ["ac", "b"]


def test_events_are_never_altered() -> None:
    store = HistoryStore(MemoryStore(), Retention())
    puts = [nouns.put(event("a")), nouns.put(event("b", 1))]
    store.commit(puts)
    with pytest.raises(Conflict):
        store.commit(puts)
    (found,) = store.query("main", keys.events_of("p")).records
    store.commit([Put(Record(found.key, 2, found.body, due=None), expect=1)])  # a record as a whole passes through
    assert [each.id for each in events_in(store.query("main", keys.events_of("p")).records[0])] == ["a", "b"]


def test_whoever_follows_events_waits_as_long_for_late_ones() -> None:
    """The command line and the SDK are installed without a server, so they can't import its limit."""
    assert following.LATE == LATE / SECOND
    assert timedelta(microseconds=LATE) == observations.LATE
