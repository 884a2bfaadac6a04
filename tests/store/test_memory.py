"""The simulation's store: the contract, with and without lag, and its faults."""

from __future__ import annotations

import random

import pytest

from chalicelib.domain.keys import Due, Key
from chalicelib.errors import Conflict, StorageFull
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import Change, Delete, Put, Record, Store, shard_of
from tests.store.contract import StoreContract, add, record


class Clock:
    def __init__(self) -> None:
        self.at = 0

    def __call__(self) -> int:
        return self.at


class TestMemory(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


class TestMemoryThatLags(StoreContract):
    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def store(self, clock: Clock) -> Store:
        return MemoryStore(clock=clock, rng=random.Random(1), max_lag=20)

    @pytest.fixture(autouse=True)
    def _remember(self, clock: Clock) -> None:
        self.clock = clock

    def settle(self, store: Store) -> None:
        assert isinstance(store, MemoryStore)
        self.clock.at = store.settled_at()


def test_indexes_show_a_write_some_time_after_it() -> None:
    clock, seen = Clock(), set()
    for seed in range(30):
        clock.at = 0
        store = MemoryStore(clock=clock, rng=random.Random(seed), max_lag=10)
        store.commit(add(record("a", gsi1=("g", "1"), due=Due("run", "run/a", 0))))
        assert store.get(Key("a", "status")) is not None
        assert store.query("main", "a").records != ()
        while not store.due(["run"], shard_of("run/a"), 100, 1):
            clock.at += 1
        seen.add(clock.at)
        clock.at = 10
        assert store.query("gsi1", "g").records != ()
    assert min(seen) == 0 and max(seen) > 5 and max(seen) <= 10


def test_a_lagging_index_shows_the_record_as_it_was() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock, max_lag=10)
    store.commit(add(record("a", gsi1=("g", "1"))))
    clock.at = 10
    store.query("gsi1", "g")
    store.max_lag = 10**6
    for version in range(2, 20):
        store.commit([Put(record("a", version=version, gsi1=("g", "1")), version - 1)])
    versions = []
    while clock.at < 10**6 + 10:
        clock.at += 20_000
        versions += [item.version for item in store.query("gsi1", "g").records]
    assert versions == sorted(versions), "writes of one record overtook each other"
    assert versions[0] < 19 and versions[-1] == 19


def test_next_due_tells_when_due_will_show_it() -> None:
    clock = Clock()
    for seed in range(30):
        clock.at = 0
        store = MemoryStore(clock=clock, rng=random.Random(seed), max_lag=50)
        store.commit(add(record("a", due=Due("run", "run/a", 20))))
        at = store.next_due()
        assert at is not None and 20 <= at <= 50
        clock.at = at
        assert store.due(["run"], shard_of("run/a"), at, 1)
        if at > 20:
            clock.at = at - 1
            fresh = MemoryStore(clock=clock, rng=random.Random(seed), max_lag=50)
            clock.at = 0
            fresh.commit(add(record("a", due=Due("run", "run/a", 20))))
            clock.at = at - 1
            assert not fresh.due(["run"], shard_of("run/a"), at, 1)


def test_the_same_seed_lags_the_same() -> None:
    def history() -> list[object]:
        clock = Clock()
        store = MemoryStore(clock=clock, rng=random.Random(7), max_lag=9)
        store.commit(add(*(record(str(n), gsi1=("g", str(n))) for n in range(20))))
        shown: list[object] = []
        for clock.at in range(10):
            shown.append(store.query("gsi1", "g").records)
        return shown

    assert history() == history()


class Crash(Exception):
    pass


def raises(error: Exception) -> object:
    def hook(changes: object) -> None:
        raise error

    return hook


@pytest.mark.parametrize("error", [Crash(), Conflict("x"), StorageFull("full")])
def test_a_fault_before_leaves_nothing_and_a_fault_after_leaves_all(error: Exception) -> None:
    store = MemoryStore()
    store.before = raises(error)  # type: ignore[assignment]
    with pytest.raises(type(error)):
        store.commit(add(record("a"), record("b")))
    assert store.records() == [] and store.commits == 0
    store = MemoryStore(after=raises(error))  # type: ignore[arg-type]
    with pytest.raises(type(error)):
        store.commit(add(record("a"), record("b")))
    assert len(store.records()) == 2 and store.commits == 1


def test_a_hook_sees_only_commits_that_would_happen() -> None:
    seen: list[object] = []
    store = MemoryStore(before=seen.append)
    store.commit(add(record("a")))
    with pytest.raises(Conflict):
        store.commit(add(record("a")))
    assert len(seen) == 1


def test_expired_records_go_with_the_next_commit() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    store.commit(add(record("old", expires_at=5), record("kept", expires_at=5)))
    store.commit([Put(record("kept", version=2, expires_at=500), 1)])
    clock.at = 6_000_000
    store.commit(add(record("a")))
    assert [item.key.pk for item in store.records()] == ["a", "kept"]


def test_a_commit_drops_a_bounded_number_of_expired_records() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    for start in range(0, 300, 100):
        store.commit(add(*(record(f"old-{n}", expires_at=5) for n in range(start, start + 100))))
    clock.at = 6_000_000
    store.commit(add(record("a")))
    assert len(store.records()) == 51
    store.commit(add(record("b")))
    assert len(store.records()) == 2


@pytest.mark.slow
def test_any_history_reads_alike_in_memory_and_in_sqlite(tmp_path: object) -> None:
    """Seeded: random commits and listings; both stores must answer the same, page for page."""
    from chalicelib.store.sqlite import SqliteStore

    for seed in range(8):
        rng = random.Random(seed)
        both: list[Store] = [MemoryStore(), SqliteStore(f"{tmp_path}/{seed}.db")]
        for _ in range(60):
            changes = _random_changes(rng)
            outcomes = [_outcome(store, changes) for store in both]
            assert outcomes[0] == outcomes[1], (seed, changes)
            index, partition = rng.choice([("main", "p1"), ("main", "p2"), ("gsi1", "g"), ("gsi2", "h")])
            low, high = (rng.choice(["", "", "b", "bb", "c", "e"]) for _ in range(2))
            reverse, limit, cursor = rng.random() < 0.5, rng.randint(1, 4), None
            while True:
                pages = [
                    store.query(index, partition, low=low, high=high, limit=limit, cursor=cursor, reverse=reverse)  # type: ignore[arg-type]
                    for store in both
                ]
                assert pages[0] == pages[1], (seed, index, partition, low, high)
                cursor = pages[0].cursor
                if cursor is None:
                    break
            shard, now = rng.randrange(4), rng.randrange(20)
            assert both[0].due(["run"], shard, now, 3) == both[1].due(["run"], shard, now, 3)
            assert both[0].next_due() == both[1].next_due()
        both[1].close()


def _random_changes(rng: random.Random) -> list[Change]:
    keys = rng.sample([Key(p, s) for p in ("p1", "p2") for s in "abcdef"], rng.randint(1, 4))
    changes: list[Change] = []
    for key in keys:
        expect = rng.choice([None, None, 0, 1, 2])
        if rng.random() < 0.25:
            changes.append(Delete(key, expect))
            continue
        due = Due("run", f"run/{rng.randrange(4)}", rng.randrange(20)) if rng.random() < 0.5 else None
        gsi1 = ("g", rng.choice("abc")) if rng.random() < 0.7 else None
        gsi2 = ("h", rng.choice("abc")) if rng.random() < 0.5 else None
        changes.append(Put(Record(key, (expect or 0) + 1, b"%d" % rng.randrange(9), gsi1, gsi2, due), expect))
    return changes


def _outcome(store: Store, changes: list[Change]) -> str:
    try:
        store.commit(changes)
    except Conflict as conflict:
        return conflict.key
    return "written"
