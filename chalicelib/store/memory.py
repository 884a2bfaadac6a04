"""The simulation's store: everything in memory, with the lag and the faults of real stores.

Reads by key and of `main` show the last commit. The two indexes and `due` show a write only after some virtual time,
drawn for every write and index between 0 and `max_lag`; until then they show the old record, like DynamoDB's. Two
writes of one record never overtake each other.

Faults are injected by two hooks: `before` is called with the changes of every commit that is about to happen, `after`
once it is written. `commit` raises whatever they raise: a crash, a conflict, a full disk.
"""

from __future__ import annotations

import heapq
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import count

from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.keys import Due, Key
from chalicelib.errors import Conflict, Invalid
from chalicelib.store import cursors
from chalicelib.store.port import Change, Check, Index, Page, Put, Record, shard_of, validate

_SWEPT = 250  # expired records that one commit drops at most
Hook = Callable[[Sequence[Change]], None]


def nothing(changes: Sequence[Change]) -> None:
    """The hook of a store without faults."""


class MemoryStore:
    def __init__(
        self,
        *,
        clock: Callable[[], Micros] = lambda: 0,
        rng: random.Random | None = None,
        max_lag: Micros = 0,
        before: Hook = nothing,
        after: Hook = nothing,
    ) -> None:
        self._clock = clock
        self._rng = rng or random.Random(0)  # noqa: S311 - for lag, not for secrets
        self.max_lag = max_lag
        self.before, self.after = before, after
        self.commits = 0
        self._lock = threading.RLock()
        self._main = _View(lambda record: record.key)
        self._views: dict[str, _View] = {
            "gsi1": _View(lambda record: record.gsi1),
            "gsi2": _View(lambda record: record.gsi2),
            "due": _View(_lane),
        }
        self._expiries: list[tuple[int, Key]] = []

    def get(self, key: Key) -> Record | None:
        with self._lock:
            return self._main.records.get(key)

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        return [self.get(key) for key in keys]

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
        if limit < 1:
            raise Invalid(f"a page of {limit} records.", hint="Ask for at least one.")
        passed = None if cursor is None else cursors.decode(cursor, index, partition)
        found: list[tuple[cursors.Position, Record]] = []
        with self._lock:
            for record in self._view(index).partition(partition):
                position = cursors.position_of(index, record)
                inside = position[0] >= low and (not high or position[0] < high)
                if inside and (passed is None or (position < passed if reverse else position > passed)):
                    found.append((position, record))
        found.sort(key=lambda item: item[0], reverse=reverse)
        records = tuple(record for _, record in found[:limit])
        return Page(records, cursors.encode(index, partition, records[-1]) if len(found) > limit else None)

    def scan(self, after: Key | None = None, *, limit: int = 500) -> list[Record]:
        return [record for record in self.records() if after is None or record.key > after][:limit]

    def commit(self, changes: Sequence[Change]) -> None:
        validate(changes)
        if not changes:
            return
        with self._lock:
            for change in changes:
                found = self._main.records.get(change.key)
                if change.expect is not None and change.expect != (0 if found is None else found.version):
                    raise Conflict(str(change.key))
            self.before(changes)
            for change in changes:
                if not isinstance(change, Check):
                    self._write(change.key, change.record if isinstance(change, Put) else None)
            self.commits += 1
            self._expire()
        self.after(changes)

    def due(self, kinds: Sequence[str], shard: int, now: Micros, limit: int) -> list[Due]:
        with self._lock:
            entries = [record.due for record in self._view("due").partition(str(shard))]
        found = [due for due in entries if due and due.at <= now and due.kind in kinds]
        return sorted(found, key=lambda due: (due.at, due.unit))[:limit]

    def next_due(self) -> Micros | None:
        """When `due` will next show a new entry, so that a simulation knows where to move its clock: the entry's time,
        or the later moment at which the index shows it."""
        shown = self._views["due"].shown_at
        with self._lock:
            entries = [(key, record.due) for key, record in self._main.records.items()]
            return min((max(due.at, shown[key]) for key, due in entries if due), default=None)

    def close(self) -> None:
        """Do nothing: the records stay, so that a simulation can open "another process" on them."""

    def records(self) -> list[Record]:
        """Everything, in key order, for a simulation's checks."""
        with self._lock:
            return [self._main.records[key] for key in sorted(self._main.records)]

    def settled_at(self) -> Micros:
        """When indexes and `due` will show every commit made so far."""
        return max((write[0] for view in self._views.values() for write in view.pending), default=self._clock())

    def _view(self, name: str) -> _View:
        if name == "main":
            return self._main
        view = self._views[name]
        view.catch_up(self._clock())
        return view

    def _write(self, key: Key, record: Record | None) -> None:
        self._main.show(key, record)
        now = self._clock()
        for view in self._views.values():
            view.write(now + self._rng.randint(0, self.max_lag), key, record)
        if record is not None and record.expires_at is not None:
            heapq.heappush(self._expiries, (record.expires_at, key))

    def _expire(self) -> None:
        for _ in range(_SWEPT):
            if not self._expiries or self._expiries[0][0] * SECOND >= self._clock():
                return
            at, key = heapq.heappop(self._expiries)
            found = self._main.records.get(key)
            if found is not None and found.expires_at == at:
                self._write(key, None)


def _lane(record: Record) -> tuple[str, str] | None:
    return None if record.due is None else (str(shard_of(record.due.unit)), record.due.unit)


class _View:
    """The records as one index shows them now, by partition, and the writes that it doesn't show yet."""

    def __init__(self, place: Callable[[Record], tuple[str, str] | None]) -> None:
        self._place = place
        self.records: dict[Key, Record] = {}
        self.shown_at: dict[Key, Micros] = {}
        self.pending: list[tuple[Micros, int, Key, Record | None]] = []
        self._partitions: dict[str, dict[Key, Record]] = {}
        self._order = count()

    def partition(self, name: str) -> Iterable[Record]:
        return self._partitions.get(name, {}).values()

    def write(self, at: Micros, key: Key, record: Record | None) -> None:
        at = max(at, self.shown_at.get(key, at))
        self.shown_at[key] = at
        heapq.heappush(self.pending, (at, next(self._order), key, record))

    def catch_up(self, now: Micros) -> None:
        while self.pending and self.pending[0][0] <= now:
            _, _, key, record = heapq.heappop(self.pending)
            self.show(key, record)

    def show(self, key: Key, record: Record | None) -> None:
        old = self.records.pop(key, None)
        if old is not None and (place := self._place(old)) is not None:
            del self._partitions[place[0]][key]
        if record is not None:
            self.records[key] = record
            if (place := self._place(record)) is not None:
                self._partitions.setdefault(place[0], {})[key] = record
