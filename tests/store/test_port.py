"""What every store shares, and what is stored must never come to mean something else."""

from __future__ import annotations

from collections import Counter

import pytest

from chalicelib.domain.ids import derive
from chalicelib.domain.keys import Key
from chalicelib.errors import Invalid
from chalicelib.store.port import SHARDS, Put, Record, shard_of, validate


def test_a_unit_stays_in_its_shard() -> None:
    units = ("", "a", "run/1", "queue/ä", "instance/0b5e")
    assert [shard_of(unit) for unit in units] == [0, 1, 1, 3, 0], "entries are stored by it"


def test_shards_are_of_one_size() -> None:
    found = Counter(shard_of(f"run/{derive('seed', 'run', number)}") for number in range(400))
    assert set(found) == set(range(SHARDS)) and min(found.values()) > 60


@pytest.mark.parametrize("letter", ["a", "é", "\U0001f600"])
def test_a_key_takes_as_many_bytes_as_it_may_and_no_more(letter: str) -> None:
    size = len(letter.encode())
    for pk, sk in ((2048, 1024), (600, 300)):
        long = Key(letter * (pk // size), letter * (sk // size))
        validate([Put(Record(long, 1, b"", gsi1=(long.pk, long.sk)), 0)])
    most, wrong = {"partition": 2048, "sort key": 1024}, letter * (2048 // size + 1)
    for index in ("", "index "):
        for part, bytes_ in most.items():
            names = {each: wrong[: bytes_ // size + 1] if each == part else each for each in most}
            place = names["partition"], names["sort key"]
            record = Record(Key("p", "s"), 1, b"", gsi1=place) if index else Record(Key(*place), 1, b"")
            with pytest.raises(Invalid, match=f"the {index}{part} .* bytes; at most {bytes_} fit"):
                validate([Put(record, 0)])
