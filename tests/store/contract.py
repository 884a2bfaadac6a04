"""What every store must do. A test class inherits `StoreContract` and gives it a `store`; nothing here may be skipped.

Indexes and `due` may lag, so an adapter under test also says how to wait for them: `settle(store)`.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable

import pytest

from chalicelib.domain.keys import Due, Key
from chalicelib.errors import Conflict, DstackError, Invalid
from chalicelib.store.port import (
    MAX_BODY,
    MAX_CHANGES,
    SHARDS,
    Change,
    Check,
    Delete,
    Index,
    Page,
    Put,
    Record,
    Store,
    shard_of,
)
from tests.harness.conformance import Conformance

BODY = b'{"n":1}'


def record(pk: str, sk: str = "status", version: int = 1, body: bytes = BODY, **more: object) -> Record:
    return Record(Key(pk, sk), version, body, **more)  # type: ignore[arg-type]


def add(*records: Record) -> list[Change]:
    return [Put(item, 0) for item in records]


def walk(fetch_page: Callable[[str | None], Page]) -> list[Page]:
    """Every page of a listing, first to last."""
    pages = [fetch_page(None)]
    while pages[-1].cursor is not None:
        assert len(pages) < 200, "a listing without an end"
        pages.append(fetch_page(pages[-1].cursor))
    return pages


class StoreContract(Conformance):
    racers = 8
    rounds = 25  # increments a racer makes

    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError

    def settle(self, store: Store) -> None:
        """Returns when indexes and `due` show every commit."""

    def test_its_calls_are_the_ports_with_the_same_defaults(self, store: Store) -> None:
        for name, call in inspect.getmembers(Store, inspect.isfunction):
            if not name.startswith("_"):
                _, *parameters = inspect.signature(call).parameters.values()
                assert list(inspect.signature(getattr(store, name)).parameters.values()) == parameters, name

    # --- reading and writing by key

    def test_a_record_comes_back_as_it_was_written(self, store: Store) -> None:
        full = Record(
            Key("run/ü", "job/00000"),
            1,
            '{"text":"\\u00e9 ☃ \\u0000"}'.encode(),
            ("queue/p", "500#7"),
            ("live/p", "7"),
            Due("run", "run/ü", 1_763_000_000_000_001),
            4_000_000_000,
        )
        bare = record("run/b", body=b"")
        store.commit(add(full, bare))
        assert store.get(full.key) == full
        assert store.get(bare.key) == bare
        assert store.get(Key("run/b", "other")) is None

    def test_get_many_answers_in_order_and_none_for_what_is_not_there(self, store: Store) -> None:
        many = [record(f"r/{n:03d}") for n in range(120)]
        for part in range(0, 120, 60):
            store.commit(add(*many[part : part + 60]))
        keys = [item.key for item in reversed(many)]
        keys.insert(7, Key("r/nothing", "here"))
        found = store.get_many([*keys, keys[0]])
        assert found[7] is None
        assert [item for item in found if item] == [*reversed(many), many[-1]]
        assert store.get_many([]) == []

    def test_a_put_replaces_every_part_of_a_record(self, store: Store) -> None:
        store.commit(
            add(record("a", gsi1=("g", "1"), gsi2=("h", "1"), due=Due("run", "a", 5), expires_at=4_000_000_000))
        )
        store.commit([Put(record("a", version=2, body=b"{}"), 1)])
        self.settle(store)
        assert store.get(Key("a", "status")) == record("a", version=2, body=b"{}")
        assert store.query("gsi1", "g").records == store.query("gsi2", "h").records == ()
        assert [store.due(["run"], shard, 100, 10) for shard in range(SHARDS)] == [[]] * SHARDS

    # --- conditions

    def test_expect_0_claims_what_is_free_once(self, store: Store) -> None:
        store.commit(add(record("name/x")))
        with pytest.raises(Conflict) as raised:
            store.commit(add(record("name/x", body=b'{"n":2}')))
        assert raised.value.key == "name/x:status"
        found = store.get(Key("name/x", "status"))
        assert found is not None and found.body == BODY

    def test_expect_n_wants_that_version(self, store: Store) -> None:
        store.commit(add(record("a")))
        store.commit([Put(record("a", version=2), 1)])
        for stale in (1, 3):
            with pytest.raises(Conflict, match="a:status"):
                store.commit([Put(record("a", version=9), stale)])
        with pytest.raises(Conflict, match="b:status"):
            store.commit([Put(record("b", version=2), 1)])
        assert store.get(Key("a", "status")) == record("a", version=2)

    def test_expect_none_writes_over_anything(self, store: Store) -> None:
        store.commit([Put(record("a", version=4), None)])
        store.commit([Put(record("a", version=2, gsi1=("g", "1")), None)])
        assert store.get(Key("a", "status")) == record("a", version=2, gsi1=("g", "1"))

    def test_delete_with_and_without_a_condition(self, store: Store) -> None:
        store.commit(add(record("a"), record("b")))
        with pytest.raises(Conflict, match="a:status"):
            store.commit([Delete(Key("a", "status"), 2)])
        with pytest.raises(Conflict, match="c:status"):
            store.commit([Delete(Key("c", "status"), 1)])
        store.commit([Delete(Key("a", "status"), 1), Delete(Key("b", "status")), Delete(Key("c", "status"))])
        assert store.get_many([Key("a", "status"), Key("b", "status")]) == [None, None]

    def test_check_guards_and_writes_nothing(self, store: Store) -> None:
        store.commit(add(record("guard")))
        store.commit([Check(Key("guard", "status"), 1), Check(Key("free", "status"), 0), *add(record("a"))])
        assert store.get(Key("guard", "status")) == record("guard")
        for guard in (
            Check(Key("guard", "status"), 2),
            Check(Key("guard", "status"), 0),
            Check(Key("free", "status"), 1),
        ):
            with pytest.raises(Conflict) as raised:
                store.commit([*add(record("b")), guard])
            assert raised.value.key == str(guard.key)
        assert store.get(Key("b", "status")) is None

    def test_one_failed_condition_undoes_the_whole_commit(self, store: Store) -> None:
        store.commit(add(record("last"), record("doomed")))
        changes: list[Change] = add(*(record(f"n/{n}", gsi1=("g", str(n))) for n in range(20)))
        changes += [Delete(Key("doomed", "status")), Put(record("last", version=3), 2)]
        with pytest.raises(Conflict, match="last:status"):
            store.commit(changes)
        self.settle(store)
        assert store.get_many([Key(f"n/{n}", "status") for n in range(20)]) == [None] * 20
        assert store.get(Key("doomed", "status")) is not None
        assert store.query("gsi1", "g").records == ()

    # --- what is refused

    def test_a_hundred_changes_fit_and_one_more_is_refused(self, store: Store) -> None:
        store.commit(add(*(record("pk", f"{n:03d}") for n in range(MAX_CHANGES))))
        assert len(store.query("main", "pk", limit=200).records) == MAX_CHANGES
        with pytest.raises(Invalid, match="101"):
            store.commit(add(*(record("other", f"{n:03d}") for n in range(MAX_CHANGES + 1))))
        assert store.query("main", "other").records == ()

    def test_a_key_named_twice_is_refused(self, store: Store) -> None:
        twice: list[list[Change]] = [
            add(record("a"), record("a")),
            [*add(record("a")), Delete(Key("a", "status"))],
            [Check(Key("a", "status"), 0), *add(record("a"))],
        ]
        for changes in twice:
            with pytest.raises(Invalid, match="a:status is named twice"):
                store.commit(changes)
        assert store.get(Key("a", "status")) is None

    def test_a_body_too_large_is_refused(self, store: Store) -> None:
        store.commit(add(record("fits", body=b"x" * MAX_BODY)))
        with pytest.raises(Invalid, match="blob"):
            store.commit(add(record("a"), record("large", body=b"x" * (MAX_BODY + 1))))
        assert store.get(Key("a", "status")) is None

    def test_bodies_that_are_too_large_together_are_refused(self, store: Store) -> None:
        store.commit(add(*(record(f"fits/{n}", body=b"x" * 290_000) for n in range(12))))
        with pytest.raises(Invalid, match="Split it"):
            store.commit(add(*(record(f"large/{n}", body=b"x" * 290_000) for n in range(13))))
        assert store.get(Key("large/0", "status")) is None

    @pytest.mark.parametrize("key", [Key("", "s"), Key("p", ""), Key("p" * 2049, "s"), Key("p", "ü" * 513)])
    def test_a_key_that_no_table_takes_is_refused(self, store: Store, key: Key) -> None:
        with pytest.raises(Invalid):
            store.commit([Put(Record(key, 1, BODY), 0)])

    def test_an_empty_commit_is_nothing(self, store: Store) -> None:
        store.commit([])

    # --- listings

    def test_listings_are_in_text_order_both_ways(self, store: Store) -> None:
        sorts = ["0", "00", "01", "1", "A", "Z", "a", "z", "é", "☃", "\U0001f600"]
        store.commit(add(*(record("pk", sort, gsi1=("g", sort)) for sort in reversed(sorts)), record("pk2", "x")))
        self.settle(store)
        assert [item.key.sk for item in store.query("main", "pk").records] == sorts
        assert [item.key.sk for item in store.query("main", "pk", reverse=True).records] == sorts[::-1]
        assert [item.key.sk for item in store.query("gsi1", "g").records] == sorts
        assert [item.key.sk for item in store.query("gsi1", "g", reverse=True).records] == sorts[::-1]

    @pytest.mark.parametrize("index", ["main", "gsi1", "gsi2"])
    def test_bounds(self, store: Store, index: str) -> None:
        letters = "abcdef"
        store.commit(add(*(record("p", c, gsi1=("p", c), gsi2=("p", c)) for c in letters), record("q", "c")))
        self.settle(store)

        def listed(**bounds: object) -> str:
            return "".join(item.key.sk for item in store.query(index, "p", **bounds).records)  # type: ignore[arg-type]

        for reverse in (False, True):
            step = -1 if reverse else 1
            assert listed(reverse=reverse) == letters[::step]
            assert listed(low="b", high="e", reverse=reverse) == "bcd"[::step]
            assert listed(low="c", reverse=reverse) == "cdef"[::step]
            assert listed(high="c", reverse=reverse) == "ab"[::step]
            assert listed(low="bb", high="dd", reverse=reverse) == "cd"[::step]
            assert listed(low="c", high="c", reverse=reverse) == ""
            assert listed(low="e", high="b", reverse=reverse) == ""
            assert listed(low="x", reverse=reverse) == ""

    @pytest.mark.parametrize("index", ["main", "gsi1"])
    @pytest.mark.parametrize("reverse", [False, True])
    def test_pages_show_each_record_once(self, store: Store, index: str, reverse: bool) -> None:
        store.commit(add(*(record("p", f"{n:03d}", gsi1=("p", f"{n // 3:03d}")) for n in range(50))))
        self.settle(store)
        for limit in (1, 7, 25, 50, 99):
            pages = walk(
                lambda cursor, limit=limit: store.query(index, "p", limit=limit, cursor=cursor, reverse=reverse)  # type: ignore[misc, arg-type]
            )
            shown = [item.key.sk for page in pages for item in page.records]
            assert sorted(shown) == [f"{n:03d}" for n in range(50)]
            order = shown if index == "main" else [f"{int(sk) // 3:03d}" for sk in shown]
            assert order == sorted(order, reverse=reverse)
            assert all(len(page.records) <= limit for page in pages)

    def test_pages_keep_their_bounds(self, store: Store) -> None:
        store.commit(add(*(record("p", f"{n:03d}") for n in range(40))))
        for reverse in (False, True):
            pages = walk(
                lambda cursor, reverse=reverse: store.query(  # type: ignore[misc]
                    "main", "p", low="010", high="020", limit=4, cursor=cursor, reverse=reverse
                )
            )
            shown = [item.key.sk for page in pages for item in page.records]
            assert sorted(shown) == [f"{n:03d}" for n in range(10, 20)]

    @pytest.mark.parametrize("index", ["main", "gsi1"])
    @pytest.mark.parametrize("reverse", [False, True])
    def test_a_cursor_of_a_wider_listing_widens_no_other(self, store: Store, index: Index, reverse: bool) -> None:
        """A client may keep its cursor and ask for less than before."""
        store.commit(add(*(record("p", f"{n // 3}{n % 3}", gsi1=("p", f"{n // 3}")) for n in range(12))))
        self.settle(store)
        pages = walk(lambda cursor: store.query(index, "p", limit=1, cursor=cursor, reverse=reverse))
        everything = [item for page in pages for item in page.records]
        for place, page in enumerate(pages[:-1], 1):
            remaining = store.query(index, "p", low="1", high="3", cursor=page.cursor, reverse=reverse)
            assert list(remaining.records) == [item for item in everything[place:] if "1" <= item.key.sk < "3"]

    def test_a_page_is_of_a_hundred_unless_another_size_is_asked_for(self, store: Store) -> None:
        for start in (0, 100):
            store.commit(add(*(record("p", f"{start + n:03d}") for n in range(100 if start == 0 else 1))))
        assert len(store.query("main", "p").records) == 100
        assert len(store.query("main", "p", limit=101).records) == 101

    def test_a_page_of_nothing_is_refused(self, store: Store) -> None:
        for limit in (0, -1):
            with pytest.raises(Invalid, match=f"a page of {limit} records"):
                store.query("main", "p", limit=limit)

    def test_a_cursor_holds_while_records_come_and_go(self, store: Store) -> None:
        store.commit(add(*(record("p", f"{n:03d}") for n in range(10))))
        first = store.query("main", "p", limit=5)
        store.commit([*add(record("p", "000a"), record("p", "007a")), Delete(Key("p", "004")), Delete(Key("p", "005"))])
        remaining = store.query("main", "p", limit=50, cursor=first.cursor)
        assert [item.key.sk for item in remaining.records] == ["006", "007", "007a", "008", "009"]

    @pytest.mark.parametrize("cursor", ["", "?", "AAAA", "WzFd", "ü", "x" * 4000])
    def test_a_malformed_cursor_is_refused(self, store: Store, cursor: str) -> None:
        with pytest.raises(Invalid, match="cursor"):
            store.query("main", "p", cursor=cursor)

    def test_a_cursor_of_another_listing_is_refused(self, store: Store) -> None:
        store.commit(add(*(record("p", str(n), gsi1=("g", str(n))) for n in range(3))))
        cursor = store.query("main", "p", limit=1).cursor
        assert cursor is not None
        for index, partition in (("main", "q"), ("gsi1", "p")):
            with pytest.raises(Invalid, match="another listing"):
                store.query(index, partition, cursor=cursor)  # type: ignore[arg-type]

    def test_a_scan_shows_every_record_once(self, store: Store) -> None:
        assert store.scan(limit=5) == []
        there = [record(f"r/{n % 7}", f"s/{n:02d}", expires_at=4_000_000_000 if n % 2 else None) for n in range(40)]
        store.commit(add(*there))
        found: list[Record] = []
        while page := store.scan(found[-1].key if found else None, limit=9):
            found += page
        assert len(found) == 40 and {each.key: each for each in found} == {each.key: each for each in there}

    def test_a_scan_goes_on_where_the_last_record_was_deleted(self, store: Store) -> None:
        store.commit(add(*[record(f"r/{n}") for n in range(8)]))
        first = store.scan(limit=4)
        store.commit([Delete(each.key) for each in first])
        remaining = store.scan(first[-1].key, limit=100)
        assert len(first) == len(remaining) == 4 and not {each.key for each in first} & {each.key for each in remaining}

    def test_an_index_follows_its_record(self, store: Store) -> None:
        store.commit(add(record("a", gsi1=("g", "1"), gsi2=("free", "a"))))
        store.commit([Put(record("a", version=2, gsi1=("g", "2")), 1)])
        self.settle(store)
        assert [item.version for item in store.query("gsi1", "g").records] == [2]
        assert store.query("gsi2", "free").records == ()
        store.commit([Delete(Key("a", "status"), 2)])
        self.settle(store)
        assert store.query("gsi1", "g").records == ()

    # --- due

    def test_due_gives_the_earliest_of_one_kind_and_shard(self, store: Store) -> None:
        units = [f"run/{n}" for n in range(12)]
        store.commit(add(*(record(unit, due=Due("run", unit, 1000 - n)) for n, unit in enumerate(units))))
        store.commit(add(record("i", due=Due("instance", "instance/1", 1))))
        self.settle(store)
        for shard in range(SHARDS):
            expected = [Due("run", unit, 1000 - n) for n, unit in enumerate(units) if shard_of(unit) == shard]
            earliest = sorted(expected, key=lambda due: due.at)
            assert store.due(["run"], shard, 1000, 50) == earliest
            assert store.due(["run"], shard, 1000, 1) == earliest[:1]
            assert store.due(["run"], shard, 995, 50) == [due for due in earliest if due.at <= 995]
            assert store.due(["run"], shard, 0, 50) == []

    def test_due_leaves_out_other_kinds_however_many(self, store: Store) -> None:
        """All kinds of a shard share an index."""
        units = [unit for unit in (f"instance/{n}" for n in range(40)) if shard_of(unit) == shard_of("run/a")]
        store.commit(add(*(record(unit, due=Due("instance", unit, n)) for n, unit in enumerate(units))))
        store.commit(add(record("a", due=Due("run", "run/a", 1000))))
        self.settle(store)
        shard = shard_of("run/a")
        assert store.due(["run"], shard, 1000, 2) == [Due("run", "run/a", 1000)]
        assert [due.unit for due in store.due(["run", "instance"], shard, 1000, 50)] == [*units, "run/a"]

    def test_due_forgets_what_was_done(self, store: Store) -> None:
        store.commit(add(record("a", due=Due("run", "run/a", 5)), record("b", due=Due("run", "run/a", 6))))
        store.commit([Put(record("a", version=2, due=Due("run", "run/a", 50)), 1), Delete(Key("b", "status"))])
        self.settle(store)
        shard = shard_of("run/a")
        assert store.due(["run"], shard, 49, 10) == []
        assert store.due(["run"], shard, 50, 10) == [Due("run", "run/a", 50)]

    def test_next_due_is_never_late(self, store: Store) -> None:
        """It names the earliest moment, or answers 0 where looking isn't free."""
        assert store.next_due() in (None, 0)
        store.commit(add(record("a", due=Due("run", "run/a", 70)), record("b", due=Due("fleet", "fleet/b", 60))))
        self.settle(store)
        assert store.next_due() in (60, 0)
        store.commit([Delete(Key("b", "status"))])
        self.settle(store)
        assert store.next_due() in (70, 0)

    # --- races

    def test_no_update_is_lost_between_writers(self, store: Store) -> None:
        """Each racer adds to a counter it shares with all, and to one of its own, in one commit."""
        store.commit(add(record("counter", body=b"0")))
        failures: list[Exception] = []

        def race(me: int) -> None:
            try:
                for turn in range(self.rounds):
                    increment(store, Key("counter", "status"), Key(f"racer/{me}", f"{turn:03d}"))
            except DstackError as error:
                failures.append(error)

        threads = [threading.Thread(target=race, args=(me,)) for me in range(self.racers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        total = self.racers * self.rounds
        assert store.get(Key("counter", "status")) == record("counter", version=total + 1, body=str(total).encode())
        for me in range(self.racers):
            assert len(store.query("main", f"racer/{me}").records) == self.rounds

    def test_one_of_many_claims_a_name(self, store: Store) -> None:
        won: list[int] = []
        ready = threading.Barrier(self.racers)

        def claim(me: int) -> None:
            ready.wait()
            try:
                store.commit(add(record("name/x", body=str(me).encode()), record(f"owner/{me}")))
                won.append(me)
            except Conflict as conflict:
                assert conflict.key == "name/x:status"

        threads = [threading.Thread(target=claim, args=(me,)) for me in range(self.racers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        found = store.get(Key("name/x", "status"))
        assert found is not None and found.body == str(won[0]).encode()
        owners = store.get_many([Key(f"owner/{me}", "status") for me in range(self.racers)])
        assert [me for me, owner in enumerate(owners) if owner] == won


def increment(store: Store, counter: Key, mark: Key) -> None:
    """Adds one to `counter` and writes `mark` beside it, however often somebody else is faster."""
    while True:
        found = store.get(counter)
        assert found is not None
        body = str(int(found.body) + 1).encode()
        try:
            store.commit([Put(Record(counter, found.version + 1, body), found.version), Put(Record(mark, 1, BODY), 0)])
            return
        except Conflict as conflict:
            assert conflict.key == str(counter)
