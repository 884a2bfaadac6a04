"""The embedded server's store, in one SQLite file.

WAL with synchronous=FULL: a commit is on disk when `commit` returns, and readers and the writer never wait for each
other. There is one writing connection behind a lock, so commits queue in this process instead of in SQLite's busy loop;
the thread that gets the lock writes all waiting commits in one transaction, because each transaction waits for the
disk. Reading connections are pooled, and each is taken for one read, so there are only as many as there were concurrent
reads, however many threads come and go. Other processes can open the file too.

A condition is in the WHERE clause of a statement: one that finds no row is the conflict. An open upper bound is an
empty BLOB, which SQLite sorts after every TEXT.

On a full disk the store can still be read. If there isn't even room for the shared memory of the connections (32 KB
beside the file, deleted with the last connection), the file is complete, and is opened as immutable until there is room
and a commit succeeds.

Deleted data is overwritten with zeros, because a file is copied and backed up with its free pages. They are reused, and
`shrink` returns the rest to the disk.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from chalicelib.domain.fences import Fence
from chalicelib.domain.instants import Micros
from chalicelib.domain.keys import EVENTS, FENCE, Due, Key, event_at
from chalicelib.errors import Bug, Conflict, DataTooNew, DstackError, Invalid, Moved, Refused, StorageFull
from chalicelib.store import cursors, nouns
from chalicelib.store.port import Change, Check, Delete, Index, Page, Put, Record, shard_of, validate

log = logging.getLogger(__name__)

SCHEMA = 1
WAY_BACK = (
    "Install the newer version again. To go back to this one, restore the backup of before the upgrade into a new "
    "folder, with `dstack server restore`."
)
APPLICATION = 0x64737461  # marks a file as ours
_BUSY_SECONDS = 30.0
_ONE_BY_ONE = 3  # up to this many keys are read without a transaction, which would cost more
_SWEEP_EVERY, _SWEPT = 50, 250  # commits between sweeps for expired records, and how many each deletes at most
_ROOM = 4_096  # free pages that are left for reuse: 16 MB
_STEP, _STEPS = 256, 64  # pages that are returned while commits wait, and how often one call does that: 64 MB
_INCREMENTAL = 2
_SMALL = 16_384  # pages: a file of 64 MB is rewritten within a second or two

_TABLE = """
CREATE TABLE records (
  pk TEXT NOT NULL, sk TEXT NOT NULL, version INTEGER NOT NULL, body BLOB NOT NULL,
  partition1 TEXT, sort1 TEXT, partition2 TEXT, sort2 TEXT,
  due_kind TEXT, due_unit TEXT, due_at INTEGER, due_shard INTEGER, expires_at INTEGER,
  PRIMARY KEY (pk, sk)
);
CREATE INDEX gsi1 ON records (partition1, sort1, pk, sk) WHERE partition1 IS NOT NULL;
CREATE INDEX gsi2 ON records (partition2, sort2, pk, sk) WHERE partition2 IS NOT NULL;
CREATE INDEX due ON records (due_at, due_unit, due_shard, due_kind) WHERE due_at IS NOT NULL;
CREATE INDEX expiry ON records (expires_at) WHERE expires_at IS NOT NULL;
"""

# The position of each record of events in the order of the commits: a number is never reused.
_FEED = "CREATE TABLE IF NOT EXISTS feed (place INTEGER PRIMARY KEY AUTOINCREMENT, pk TEXT NOT NULL, sk TEXT NOT NULL)"
COLUMNS = "pk, sk, version, body, partition1, sort1, partition2, sort2, due_kind, due_unit, due_at, expires_at"
_GET = f"SELECT {COLUMNS} FROM records WHERE pk = ? AND sk = ?"  # noqa: S608 - only constants
_VERSION = "SELECT version FROM records WHERE pk = ? AND sk = ?"
_ADD = f"INSERT INTO records ({COLUMNS}, due_shard) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_ADD_NEW = f"{_ADD} ON CONFLICT DO NOTHING"
_SETTING = """SET version = ?3, body = ?4, partition1 = ?5, sort1 = ?6, partition2 = ?7, sort2 = ?8, due_kind = ?9,
 due_unit = ?10, due_at = ?11, expires_at = ?12, due_shard = ?13"""
_ADD_OR_SET = f"{_ADD} ON CONFLICT (pk, sk) DO UPDATE {_SETTING}"
_PLACES = ("partition1", "sort1", "partition2", "sort2", "due_kind", "due_unit", "due_at", "expires_at", "due_shard")
_PLACES_AT = f"SELECT {', '.join(_PLACES)} FROM records WHERE pk = ? AND sk = ? AND version = ?"  # noqa: S608
_DROP = "DELETE FROM records WHERE pk = ? AND sk = ?"
_DROP_AT = f"{_DROP} AND version = ?"
# The index is by time first, so that it also answers "what is next?". The entries skipped here, of other kinds and
# shards, are due as well and will soon be gone.
_DUE = """SELECT due_kind, due_unit, due_at FROM records
 WHERE due_at <= ? AND due_shard = ? AND due_kind IN (SELECT value FROM json_each(?))
 ORDER BY due_at, due_unit LIMIT ?"""
_SCAN = f"SELECT {COLUMNS} FROM records WHERE (pk, sk) > (?, ?) ORDER BY pk, sk LIMIT ?"  # noqa: S608
_NEXT_DUE = "SELECT min(due_at) FROM records WHERE due_at IS NOT NULL"
_FED = "INSERT INTO feed (pk, sk) VALUES (?, ?)"
FEED_END = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'feed'"
_FEED_AFTER = f"SELECT place, {COLUMNS} FROM feed JOIN records USING (pk, sk) WHERE place > ? ORDER BY place LIMIT ?"  # noqa: S608
_NEWEST = """SELECT pk, max(sk) FROM records
 WHERE pk = (SELECT min(pk) FROM records WHERE pk >= ? AND pk < ?) GROUP BY pk"""
_TRIM = "DELETE FROM feed WHERE place <= ?"
_SWEEP = "DELETE FROM records WHERE rowid IN (SELECT rowid FROM records WHERE expires_at < ? LIMIT ?)"


def _listing(partition: str, sort: str) -> dict[bool, str]:
    """The statements that list one index, by `reverse`. Both start after a position and end at a bound."""
    head = f"SELECT {COLUMNS} FROM records WHERE {partition} = ?"  # noqa: S608
    return {
        False: f"{head} AND ({sort}, pk, sk) > (?, ?, ?) AND {sort} < ? ORDER BY {sort}, pk, sk LIMIT ?",
        True: f"{head} AND ({sort}, pk, sk) < (?, ?, ?) AND {sort} >= ? ORDER BY {sort} DESC, pk DESC, sk DESC LIMIT ?",
    }


_LISTINGS: dict[Index, dict[bool, str]] = {
    "main": _listing("pk", "sk"),
    "gsi1": _listing("partition1", "sort1"),
    "gsi2": _listing("partition2", "sort2"),
}


class _Unchanging(sqlite3.Connection):
    """A connection to a file opened as immutable, for a single read: before the next one there may be room again."""


@dataclass(eq=False)
class _Commit:
    """A caller's changes that wait to be written."""

    changes: Sequence[Change]
    over: bool = False
    refusal: Exception | None = None


def _create(path: str) -> None:
    """Make the file private, unless there is one. That isn't opened: to close it would drop the locks that this process
    holds for its other connections, and another process would take itself for the only one."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


class SqliteStore:
    """`Store` in the file at `path`, created if missing. `now` returns epoch seconds, only used for expiry. `small`:
    the number of pages up to which a file of an older version is rewritten at once."""

    def __init__(self, path: str | Path, *, now: Callable[[], float] = time.time, small: int = _SMALL) -> None:
        self._path, self.folder = str(path), Path(path).parent
        self._now, self._small = now, small
        self._writing = threading.Lock()
        self._waiting: deque[_Commit] = deque()  # commits of threads that wait for the lock, or hold it
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        self._commits = 0
        self._behind = False  # more records have expired than the last sweep deleted
        try:
            _create(self._path)
            self._writer: sqlite3.Connection | None = self._prepared()
        except sqlite3.Error as error:
            problem = self._translated(error)
            if not isinstance(problem, StorageFull) or (found := self._unchanging()) is None:
                raise problem from error
            found.close()
            log.error("%s can only be read: %s", self._path, problem)
            self._writer = None
        except OSError as error:
            raise Refused(f"{self._path} can't be opened: {error.strerror}.", hint="Check the data folder.") from error

    def get(self, key: Key) -> Record | None:
        rows = self._read(_GET, key)
        return record_in(rows[0]) if rows else None

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        if not keys:
            return []
        reader = self._take()
        try:
            if len(keys) > _ONE_BY_ONE:
                reader.execute("BEGIN")
            rows = [reader.execute(_GET, key).fetchone() for key in keys]
            if reader.in_transaction:
                reader.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._translated(error) from error
        finally:
            self._give_back(reader)
        return [None if row is None else record_in(row) for row in rows]

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
        top = high or b""
        start: tuple[str | bytes, str, str] = (top if reverse else low, "", "")
        if cursor is not None:
            position = cursors.decode(cursor, index, partition)
            # A cursor from outside the bounds must not widen them.
            inside = not high or position[0] < high if reverse else position[0] >= low
            start = position if inside else start
        end = low if reverse else top
        rows = self._read(_LISTINGS[index][reverse], (partition, *start, end, limit + 1))
        records = tuple(record_in(row) for row in rows[:limit])
        more = cursors.encode(index, partition, records[-1]) if len(rows) > limit else None
        return Page(records, more)

    def scan(self, after: Key | None = None, *, limit: int = 500) -> list[Record]:
        return [record_in(row) for row in self._read(_SCAN, (*(after or ("", "")), limit))]

    def commit(self, changes: Sequence[Change]) -> None:
        validate(changes)
        if not changes:
            return
        commit = _Commit(changes)
        self._waiting.append(commit)
        with self._writing:
            if not commit.over:  # else the previous holder of the lock has written it
                self._write(list(dict.fromkeys((*self._take_waiting(), commit))))
        if commit.refusal is not None:
            raise commit.refusal

    def _take_waiting(self) -> Iterator[_Commit]:
        while self._waiting:
            yield self._waiting.popleft()

    def _write(self, commits: Sequence[_Commit]) -> None:
        """Write all these commits in one transaction."""
        if self._closed:
            raise Bug(f"{self._path} is written after it was closed.")
        writer = None
        try:
            writer = self._to_write()
            writer.execute("BEGIN IMMEDIATE")
            for commit in commits:
                commit.refusal = _attempt(writer, commit.changes)
            self._sweep(writer)
            writer.execute("COMMIT")
        except sqlite3.Error as error:
            for commit in commits:
                commit.refusal = self._translated(error)
                commit.refusal.__cause__ = error
        finally:
            if writer is not None and writer.in_transaction:
                writer.execute("ROLLBACK")
        for commit in commits:
            commit.over = True

    def newest_event(self) -> Micros:
        """The time of the latest event of all projects; 0 if there is none."""
        newest, low = 0, EVENTS
        while rows := self._read(_NEWEST, (low, f"{EVENTS}~")):
            key = Key(*rows[0])
            newest, low = max(newest, event_at(key)), f"{key.pk} "
        return newest

    def feed_end(self) -> int:
        place: int = self._read(FEED_END, ())[0][0]
        return place

    def feed_after(self, place: int, limit: int) -> list[tuple[int, Record]]:
        return [(row[0], record_in(row[1:])) for row in self._read(_FEED_AFTER, (place, limit))]

    def trim_feed(self, place: int) -> None:
        """Remove the entries up to this position from the feed. The records themselves stay."""
        with self._writing:
            if self._closed:
                return
            try:
                self._to_write().execute(_TRIM, (place,))
            except sqlite3.Error as error:
                raise self._translated(error) from error

    def due(self, kinds: Sequence[str], shard: int, now: Micros, limit: int) -> list[Due]:
        return [Due(*row) for row in self._read(_DUE, (now, shard, orjson.dumps(kinds).decode(), limit))]

    def next_due(self) -> Micros | None:
        at: Micros | None = self._read(_NEXT_DUE, ())[0][0]
        return at

    def shrink(self, *, room: int = _ROOM) -> None:
        """Return free pages beyond `room` to the disk: a bounded number, in steps between which commits get their turn.
        Has no effect on a file of an older version that was too large to be rewritten."""
        for _ in range(_STEPS):
            with self._writing:
                if self._closed:
                    return
                try:
                    writer = self._to_write()
                    free = writer.execute("PRAGMA freelist_count").fetchone()[0] - room
                    if free <= 0:
                        return
                    writer.executescript(f"PRAGMA incremental_vacuum({min(free, _STEP)})")  # `execute` does one
                except sqlite3.Error as error:
                    raise self._translated(error) from error

    def close(self) -> None:
        """Close all connections, which merges the WAL into the file. A read in progress closes its own one when it is
        done."""
        with self._writing:
            self._closed = True
            if self._writer is not None:
                self._writer.close()
        while self._idle:
            self._idle.pop().close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")
        return connection

    def _to_write(self) -> sqlite3.Connection:
        """The writing connection. Called with the lock held."""
        if self._writer is None:
            self._writer = self._prepared()
        return self._writer

    def _prepared(self) -> sqlite3.Connection:
        writer = self._connect()
        try:
            self._prepare(writer)
        except sqlite3.Error:
            writer.close()
            raise
        return writer

    def _unchanging(self) -> sqlite3.Connection | None:
        """A connection without shared memory, if the file is ours and its WAL is empty."""
        wal = Path(f"{self._path}-wal")
        if wal.exists() and wal.stat().st_size:
            return None
        address = f"{Path(self._path).resolve().as_uri()}?immutable=1"
        found = sqlite3.connect(address, isolation_level=None, check_same_thread=False, factory=_Unchanging, uri=True)
        marks = [found.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        if marks == [APPLICATION, SCHEMA]:
            return found
        found.close()
        return None

    def _prepare(self, writer: sqlite3.Connection) -> None:
        """Check before writing: a file that isn't ours, or is from a newer version, stays untouched."""
        version = writer.execute("PRAGMA user_version").fetchone()[0]
        application = writer.execute("PRAGMA application_id").fetchone()[0]
        empty = writer.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if application != APPLICATION and not empty:
            writer.close()
            raise Refused(f"{self._path} is a database of another program.", hint="Choose another data folder.")
        if version > SCHEMA:
            writer.close()
            raise DataTooNew(
                f"{self._path} was written by a newer version of this program: "
                f"its format is {version}, this version reads up to {SCHEMA}.",
                hint=WAY_BACK,
            )
        if empty:  # later the setting has no effect without a rewrite
            writer.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
        writer.execute("PRAGMA journal_mode = WAL")
        self._make_shrinkable(writer)
        writer.execute("BEGIN IMMEDIATE")
        if writer.execute("PRAGMA user_version").fetchone()[0] == 0:  # checked again, with the lock held
            for statement in filter(str.strip, _TABLE.split(";")):
                writer.execute(statement)
            writer.execute(f"PRAGMA application_id = {APPLICATION}")
            writer.execute(f"PRAGMA user_version = {SCHEMA}")
        writer.execute(_FEED)  # of every file: an older version leaves it alone
        writer.execute("COMMIT")

    def _make_shrinkable(self, writer: sqlite3.Connection) -> None:
        """Rewrite a file of an older version: until then it can't shrink, and its free pages still contain deleted
        data. Rewriting takes time and, temporarily, the space of a second file; so a large one waits for a start at
        which a quarter of it is free."""
        mode, pages, free = (
            writer.execute(f"PRAGMA {name}").fetchone()[0] for name in ("auto_vacuum", "page_count", "freelist_count")
        )
        if mode == _INCREMENTAL or (pages > self._small and free * 4 < pages):
            return
        try:
            writer.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
            writer.execute("VACUUM")
        except sqlite3.Error as error:  # no space for a second file, or another reader: use it as it is
            log.warning("%s can't be rewritten, so it doesn't shrink: %s", self._path, error)

    def _take(self) -> sqlite3.Connection:
        if self._closed:
            raise Bug(f"{self._path} is read after it was closed.")
        try:
            return self._idle.pop()
        except IndexError:
            return (self._unchanging() if self._writer is None else None) or self._connect()

    def _give_back(self, reader: sqlite3.Connection) -> None:
        if reader.in_transaction:
            reader.execute("ROLLBACK")
        if self._closed or isinstance(reader, _Unchanging):
            reader.close()
        else:
            self._idle.append(reader)

    def _read(self, sql: str, values: Sequence[Any]) -> list[Any]:
        reader = self._take()
        try:
            return reader.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._translated(error) from error
        finally:
            self._give_back(reader)

    def _sweep(self, writer: sqlite3.Connection) -> None:
        """Delete expired records now and then; when behind, with every commit, because fifty commits can write more
        than one sweep deletes."""
        self._commits += 1
        if self._behind or self._commits % _SWEEP_EVERY == 0:
            self._behind = writer.execute(_SWEEP, (int(self._now()), _SWEPT)).rowcount == _SWEPT

    def _translated(self, error: sqlite3.Error) -> DstackError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            return StorageFull(
                f"{self._path} can't be written ({error}); nothing was changed.",
                hint="Make room on its disk and try again.",
            )
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Refused(
                f"{self._path} was held by another process for {_BUSY_SECONDS:.0f} s.", hint="Is a backup running?"
            )
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            return Refused(
                f"{self._path} can't be opened for writing ({error}).", hint="Check its owner and permissions."
            )
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return Refused(
                f"{self._path} is damaged, or isn't a database ({error}).",
                hint="Restore it from a copy, or choose another data folder.",
            )
        return DstackError(f"{self._path}: {error}")


def _attempt(writer: sqlite3.Connection, changes: Sequence[Change]) -> Exception | None:
    """Make all these changes, or none of them and return the reason. While a fence says that this store doesn't decide,
    only changes are made that name the fence."""
    fenced = writer.execute(_GET, FENCE).fetchone()
    if fenced is not None and all(change.key != FENCE for change in changes):
        fence = nouns.read(Fence, record_in(fenced))
        if not fence.decides:
            return Moved(fence.problem, hint=fence.hint)
    writer.execute("SAVEPOINT attempt")
    refusal: Exception | None = None
    try:
        refused = next((change for change in changes if not _apply(writer, change)), None)
        if refused is not None:
            refusal = Conflict(str(refused.key))
    except (OverflowError, UnicodeError) as unstorable:
        refusal = unstorable
    if refusal is not None:
        writer.execute("ROLLBACK TO attempt")
    writer.execute("RELEASE attempt")
    return refusal


def _apply(writer: sqlite3.Connection, change: Change) -> bool:
    """Make one change if its condition holds. Returns whether it does."""
    if isinstance(change, Put):
        row = _row(change.record)
        if change.expect is None:
            writer.execute(_ADD_OR_SET, row)
            return True
        if change.expect == 0:
            added = writer.execute(_ADD_NEW, row).rowcount == 1
            if added and change.key.pk.startswith(EVENTS):
                writer.execute(_FED, change.key)
            return added
        return _set(writer, row, change.expect)
    if isinstance(change, Delete) and change.expect is None:
        writer.execute(_DROP, change.key)
        return True
    if isinstance(change, Delete) and change.expect != 0:
        return writer.execute(_DROP_AT, (*change.key, change.expect)).rowcount == 1
    assert isinstance(change, Check | Delete)
    found = writer.execute(_VERSION, change.key).fetchone()
    return (0 if found is None else found[0]) == change.expect


def _set(writer: sqlite3.Connection, row: tuple[Any, ...], expect: int) -> bool:
    """Replace a record if it is at this version. Returns whether it is."""
    pk, sk, version, body, *after = row
    before = writer.execute(_PLACES_AT, (pk, sk, expect)).fetchone()
    if before is None:
        return False
    moved = {name: new for name, old, new in zip(_PLACES, before, after, strict=True) if new != old}
    writer.execute(_setting(tuple(moved)), (version, body, *moved.values(), pk, sk))
    return True


@cache
def _setting(moved: tuple[str, ...]) -> str:
    """The UPDATE statement for a record that changes in these index columns. SQLite rewrites an index if an update
    names one of its columns, even if the value doesn't change, and most updates change few of them."""
    columns = ", ".join(f"{name} = ?" for name in ("version", "body", *moved))
    return f"UPDATE records SET {columns} WHERE pk = ? AND sk = ?"  # noqa: S608 - only constants


def _row(record: Record) -> tuple[Any, ...]:
    due = record.due
    return (
        *record.key,
        record.version,
        record.body,
        *(record.gsi1 or (None, None)),
        *(record.gsi2 or (None, None)),
        *(due or (None, None, None)),
        record.expires_at,
        None if due is None else shard_of(due.unit),
    )


def record_in(row: tuple[Any, ...]) -> Record:
    pk, sk, version, body, partition1, sort1, partition2, sort2, due_kind, due_unit, due_at, expires_at = row
    return Record(
        Key(pk, sk),
        version,
        body,
        None if partition1 is None else (partition1, sort1),
        None if partition2 is None else (partition2, sort2),
        None if due_at is None else Due(due_kind, due_unit, due_at),
        expires_at,
    )
