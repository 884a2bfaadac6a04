"""The store port.

One table of records. A record is found by its key, through one of two secondary indexes, or because it is due. The only
write is `commit`: atomic, at most 100 changes, each with its condition. Reads by key are strongly consistent; indexes
and `due` can lag on DynamoDB, so never conclude anything from an absence there.

The adapter resolves unknown outcomes (a lost response) by repeating the same commit under the same token. So `Conflict`
always means "a condition failed and nothing was written".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from chalicelib.domain.instants import Micros
from chalicelib.domain.keys import Due, Key
from chalicelib.errors import Invalid

SHARDS = 4
MAX_CHANGES = 100
MAX_BODY = 300_000  # bytes; larger parts belong in the blob store
MAX_COMMIT = 3_500_000  # bytes of all bodies together
MAX_PARTITION = 2048  # bytes of a key's pk, and below of its sk: DynamoDB's limits
MAX_SORT = 1024

Index = Literal["main", "gsi1", "gsi2"]


@dataclass(frozen=True, slots=True)
class Record:
    key: Key
    version: int  # starts at 1
    body: bytes  # UTF-8 JSON
    gsi1: tuple[str, str] | None = None  # (partition, sort)
    gsi2: tuple[str, str] | None = None
    due: Due | None = None
    expires_at: int | None = None  # epoch seconds; may be dropped at any time after that


@dataclass(frozen=True, slots=True)
class Put:
    """Write `record`. `expect`: 0 = must not exist, n = must be at version n, None = whatever is there."""

    record: Record
    expect: int | None

    @property
    def key(self) -> Key:
        return self.record.key


@dataclass(frozen=True, slots=True)
class Delete:
    key: Key
    expect: int | None = None  # None: may already be gone


@dataclass(frozen=True, slots=True)
class Check:
    """Write nothing; fail the commit unless the record is at `expect` (0: absent)."""

    key: Key
    expect: int


Change = Put | Delete | Check


@dataclass(frozen=True, slots=True)
class Page:
    records: tuple[Record, ...]
    cursor: str | None  # opaque; None at the end


class Store(Protocol):
    def get(self, key: Key) -> Record | None:
        """The record as of the last commit."""

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        """One result per key, in order; each strongly consistent, but together not a snapshot."""

    def query(
        self,
        index: Index,
        partition: str,
        *,
        low: str = "",
        high: str = "",
        limit: int = 100,
        cursor: str | None = None,
        reverse: bool = False,
    ) -> Page:
        """Records of a partition in sort order with low <= sort < high; an empty bound is open. `main` is the table
        itself (partition = pk, sort = sk) and strongly consistent. A malformed cursor raises Invalid."""

    def scan(self, after: Key | None = None, *, limit: int = 500) -> list[Record]:
        """Records of the whole table after this key, in the store's own order; none at the end. It reads everything, so
        it is meant for one-time work. Records that are written meanwhile may be missed."""

    def commit(self, changes: Sequence[Change]) -> None:
        """Make all changes or none. Raises Conflict(key), StorageFull, or Invalid for changes that `validate` refuses:
        more than MAX_CHANGES, a repeated key, a body over MAX_BODY."""

    def due(self, kinds: Sequence[str], shard: int, now: Micros, limit: int) -> list[Due]:
        """The entries of these kinds in one shard with at <= now, earliest first. There is one entry per record, so a
        unit may occur twice."""

    def next_due(self) -> Micros | None:
        """The time of the earliest entry, or None. Stores where reading it isn't free may return 0, meaning "now"."""

    def close(self) -> None: ...


def shard_of(unit: str) -> int:
    """The shard, of SHARDS, with a unit's due entries; the same on every machine and in every version."""
    total = 0
    for char in unit.encode():
        total = (total * 31 + char) & 0xFFFFFFFF
    return total % SHARDS


def validate(changes: Sequence[Change]) -> None:
    """Raises Invalid for changes that every adapter must refuse before it writes anything."""
    if len(changes) > MAX_CHANGES:
        raise Invalid(
            f"a commit of {len(changes)} changes; at most {MAX_CHANGES} can be made in one.",
            hint="Split it into several.",
        )
    seen: set[Key] = set()
    total = 0
    for change in changes:
        key = change.key
        if key in seen:
            raise Invalid(f"{key} is named twice in one commit.", hint="Make it one change.")
        seen.add(key)
        _fits("partition", key.pk, MAX_PARTITION)
        _fits("sort key", key.sk, MAX_SORT)
        if isinstance(change, Put):
            _validate_record(change.record)
            total += len(change.record.body)
    if total > MAX_COMMIT:
        raise Invalid(f"a commit of {total} bytes; at most {MAX_COMMIT} fit.", hint="Split it into several.")


def _validate_record(record: Record) -> None:
    if len(record.body) > MAX_BODY:
        raise Invalid(
            f"{record.key} has {len(record.body)} bytes; a record takes at most {MAX_BODY}.",
            hint="Put its large part in the blob store.",
        )
    for entry in (record.gsi1, record.gsi2):
        if entry is not None:
            _fits("index partition", entry[0], MAX_PARTITION)
            _fits("index sort key", entry[1], MAX_SORT)


def _fits(what: str, text: str, most: int) -> None:
    if not text:
        raise Invalid(f"an empty {what}.", hint="Every part of a key needs at least one character.")
    if len(text) * 4 > most and len(text.encode()) > most:
        raise Invalid(
            f"the {what} {text[:40]}… has {len(text.encode())} bytes; at most {most} fit.", hint="Shorten it."
        )
