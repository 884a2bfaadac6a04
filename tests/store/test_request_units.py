"""What DynamoDB would bill, by its own rules."""

from __future__ import annotations

import random
from typing import Any

from chalicelib.domain.keys import Due, Key
from chalicelib.store import request_units
from chalicelib.store.port import Check, Delete, Put, Record
from tests.store.contract import record

AT = Due("run", "run/a", 5)


def noise(length: int) -> bytes:
    """What can't be packed."""
    return random.Random(length).randbytes(length)


def put(expect: int | None = 0, **more: Any) -> Put:
    return Put(record("a", **more), expect)


def test_an_item_counts_by_the_kilobyte_begun_of_what_is_larger() -> None:
    assert request_units.written([put()], [None]) == 1
    assert request_units.written([put(body=noise(1000))], [None]) == 2
    assert request_units.written([put(1)], [record("a", body=noise(2100))]) == 3
    assert request_units.written([Delete(Key("a", "status"), 1)], [record("a", body=noise(1500))]) == 2


def test_an_item_has_the_bytes_of_its_names_and_values() -> None:
    entered = {"gsi1": ("p1", "s12"), "gsi2": ("p234", "s2345"), "due": Due("run", "run/abc", 10**17), "expires_at": 9}
    values = {"pk": 1, "sk": len("status"), "version": 3, "packed": 300, "token": 24}
    values |= {"partition1": 2, "sort1": 3, "partition2": 4, "sort2": 5, "expires_at": 10}
    values |= {"due_kind": 3, "due_unit": 7, "due_at": 10, "due_lane": 2}
    complete = record("a", version=9_999, body=noise(300), **entered)
    assert request_units.size(complete) == sum(len(name) + length for name, length in values.items())


def test_what_is_packed_counts_as_it_is_stored() -> None:
    assert request_units.written([put(body=b"x" * 100_000)], [None]) == 1


def test_a_transaction_doubles_the_table_and_not_the_indexes() -> None:
    entered = {"gsi1": ("p", "1"), "gsi2": ("q", "1"), "due": AT}
    assert request_units.written([put(**entered)], [None]) == 1 + 3
    assert request_units.written([put(**entered), Check(Key("b", "x"), 1)], [None, None]) == 2 + 3 + 2
    assert request_units.written([put(None, **entered)], [None]) == 2 + 3  # without a condition it takes a transaction


def test_an_index_is_written_only_when_its_key_moves() -> None:
    before = record("a", gsi1=("p", "1"), due=AT)
    assert request_units.written([put(1, body=b"other", gsi1=("p", "1"), due=AT)], [before]) == 1
    assert request_units.written([put(1, gsi1=("p", "2"), due=AT._replace(at=6))], [before]) == 1 + 2 + 2
    assert request_units.written([put(1)], [before]) == 1 + 1 + 1


def test_a_refused_commit_costs_what_the_table_looked_at() -> None:
    assert request_units.refused([put(1, due=AT)], [record("a", version=3)]) == 1
    assert request_units.refused([put(1), Check(Key("b", "x"), 1)], [record("a"), None]) == 4


def test_reads_count_by_four_kilobytes() -> None:
    large: Record = record("a", body=noise(5000))
    assert request_units.got([record("a"), None, large]) == 1 + 1 + 2
    assert request_units.listed([], index=False) == request_units.listed([record("a")] * 9, index=False) == 1
    assert request_units.listed([large] * 4, index=False) == 5
    assert request_units.listed([], index=True) == 0.5
    assert request_units.listed([record("a"), large], index=True) == 0.5 + 0.5 + 1
    assert request_units.entries(100) == 2.5
