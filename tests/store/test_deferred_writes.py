"""Writes that wait are made together, and give way to whoever wrote first."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chalicelib.domain.keys import Key
from chalicelib.errors import StorageFull
from chalicelib.store.deferred_writes import DeferredWrites
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import MAX_CHANGES, Change, Delete, Put, Record


class Counting(MemoryStore):
    """Remembers how large its commits were; while it is full, it takes none."""

    full = False

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def commit(self, changes: Sequence[Change]) -> None:
        if self.full:
            raise StorageFull("the disk is full.")
        super().commit(changes)
        self.sizes.append(len(changes))


def key(number: int) -> Key:
    return Key(f"presence/{number}", "status")


def put(number: int, version: int, body: bytes = b"{}") -> Put:
    return Put(Record(key(number), version, body), expect=version - 1)


def filled(count: int) -> tuple[Counting, DeferredWrites]:
    store = Counting()
    for number in range(count):
        store.commit([put(number, 1)])
    store.sizes.clear()
    return store, DeferredWrites(store)


def versions(store: Counting, count: int) -> list[int]:
    return [record.version if record else 0 for record in store.get_many([key(number) for number in range(count)])]


def test_what_waits_is_written_in_as_few_commits_as_can_be() -> None:
    store, deferred = filled(MAX_CHANGES + 5)
    for number in range(MAX_CHANGES + 5):
        deferred.add(put(number, 2))
    assert store.sizes == []
    deferred.write()
    assert store.sizes == [MAX_CHANGES, 5] and set(versions(store, MAX_CHANGES + 5)) == {2}
    deferred.write()
    assert len(store.sizes) == 2, "nothing waits any more"


def test_whoever_wrote_first_stays_and_the_others_are_written() -> None:
    store, deferred = filled(4)
    for number in range(4):
        deferred.add(put(number, 2, b'{"waited": 1}'))
    store.commit([put(1, 2, b'{"first": 1}')])
    store.commit([Delete(key(3))])
    deferred.write()
    assert versions(store, 4) == [2, 2, 2, 0]
    first = store.get(key(1))
    assert first is not None and first.body == b'{"first": 1}'


def test_the_last_for_a_record_is_written() -> None:
    store, deferred = filled(1)
    deferred.add(put(0, 2, b'{"older": 1}'))
    deferred.add(put(0, 2, b'{"newer": 1}'))
    deferred.write()
    found = store.get(key(0))
    assert found is not None and found.body == b'{"newer": 1}' and store.sizes == [1]


def test_what_cant_be_written_waits_for_the_next_turn_unless_there_is_something_newer() -> None:
    store, deferred = filled(2)
    for number in range(2):
        deferred.add(put(number, 2, b'{"older": 1}'))
    store.full = True
    with pytest.raises(StorageFull):
        deferred.write()
    deferred.add(put(1, 2, b'{"newer": 1}'))
    store.full = False
    deferred.write()
    assert [r.body for r in store.get_many([key(0), key(1)]) if r] == [b'{"older": 1}', b'{"newer": 1}']
