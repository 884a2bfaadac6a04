"""What every store shares, and what is stored must never come to mean something else."""

from __future__ import annotations

from collections import Counter

from chalicelib.domain.ids import derive
from chalicelib.store.port import SHARDS, shard_of


def test_a_unit_stays_in_its_shard() -> None:
    units = ("", "a", "run/1", "queue/ä", "instance/0b5e")
    assert [shard_of(unit) for unit in units] == [0, 1, 1, 3, 0], "entries are stored by it"


def test_shards_are_of_one_size() -> None:
    found = Counter(shard_of(f"run/{derive('seed', 'run', number)}") for number in range(400))
    assert set(found) == set(range(SHARDS)) and min(found.values()) > 60
