"""The cost of reads and writes of the table in DynamoDB's request units. Pure arithmetic, so that a store in memory can
be metered as if it were billed.

A write unit is each started kilobyte of the larger of the item before and after; a read unit is each started four
kilobytes, and half a unit if the read may lag. Every change in a transaction counts double, but only in the table:
indexes are written afterwards. An entry whose index key changes is deleted and written again, so it counts twice; one
whose key stays counts once if a projected attribute has changed. Expiry costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from chalicelib.domain.keys import Key
from chalicelib.store.packing import packed
from chalicelib.store.port import Change, Check, Delete, Put, Record

KB = 1024
OVERHEAD = 100  # bytes that storage adds to each item
TOKEN = 24  # characters of the token that every item carries
_VERSION, _NUMBER, _LANE = 3, 10, 2  # bytes of a version, of a moment and of a shard's name, at most
_ENTRY = 200  # bytes of an index entry, about


def size(record: Record) -> int:
    """Bytes of an item: the names of its attributes and their values."""
    body = packed(record.body) or record.body
    found = len("pkskversionpackedtoken") + sum(map(len, record.key)) + _VERSION + len(body) + TOKEN
    for entry in (record.gsi1, record.gsi2):
        if entry is not None:
            found += len("partition1sort1") + len(entry[0]) + len(entry[1])
    if record.due is not None:
        kind, unit, _ = record.due
        found += len("due_kinddue_unitdue_atdue_lane") + len(kind) + len(unit) + _NUMBER + _LANE
    return found + (0 if record.expires_at is None else len("expires_at") + _NUMBER)


def alone(changes: Sequence[Change]) -> Put | Delete | None:
    """The change of a commit that needs no transaction; None if it needs one. A change without a condition does:
    repeating it after an unknown outcome could overwrite a newer write, which only a transaction's token prevents."""
    one = changes[0] if len(changes) == 1 else None
    return None if one is None or isinstance(one, Check) or one.expect is None else one


@dataclass(frozen=True)
class Item:
    """Write units of one change: in the table, and by index."""

    key: Key
    table: int
    gsi1: int = 0
    gsi2: int = 0
    due: int = 0

    @property
    def units(self) -> int:
        return self.table + self.gsi1 + self.gsi2 + self.due


def items(changes: Sequence[Change], before: Sequence[Record | None]) -> list[Item]:
    """The write units of each change of a commit, given the records that they replace."""
    factor = 1 if alone(changes) is not None else 2
    return [_item(change, old, factor) for change, old in zip(changes, before, strict=True)]


def written(changes: Sequence[Change], before: Sequence[Record | None]) -> float:
    """Write units of a commit, given the records that it replaces."""
    return sum(item.units for item in items(changes, before))


def refused(changes: Sequence[Change], before: Sequence[Record | None]) -> float:
    """Write units of a commit whose condition failed: every item is counted, but no index is written."""
    factor = 1 if alone(changes) is not None else 2
    return sum(factor * _kilobytes(old, _after(change)) for change, old in zip(changes, before, strict=True))


def got(records: Iterable[Record | None]) -> float:
    """Read units of consistent reads by key; one that finds nothing costs the minimum."""
    return sum(max(1, ceil(size(record) / (4 * KB))) if record else 1 for record in records)


def listed(records: Sequence[Record], *, index: bool) -> float:
    """Read units of a query. Its items are counted together; an index returns keys, and each item is then read
    alone."""
    if not index:
        return max(1, ceil(sum(map(size, records)) / (4 * KB)))
    return entries(len(records)) + got(records) / 2


def entries(count: int) -> float:
    """Read units of `count` entries of an index."""
    return max(1, ceil(count * _ENTRY / (4 * KB))) / 2


def _item(change: Change, old: Record | None, factor: int) -> Item:
    new = _after(change)
    table = factor * _kilobytes(old, new)
    if isinstance(change, Check):
        return Item(change.key, table)
    moved = {name: _moved(getattr(old, name, None), getattr(new, name, None)) for name in ("gsi1", "gsi2", "due")}
    return Item(change.key, table, **moved)


def _after(change: Change) -> Record | None:
    return change.record if isinstance(change, Put) else None


def _kilobytes(*records: Record | None) -> int:
    return max([1, *(ceil(size(record) / KB) for record in records if record is not None)])


def _moved(left: tuple[object, ...] | None, entered: tuple[object, ...] | None) -> int:
    return 0 if left == entered else sum(entry is not None for entry in (left, entered))
