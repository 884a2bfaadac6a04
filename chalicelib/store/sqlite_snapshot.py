"""All records of an embedded store's file as of one commit, while a server goes on writing it; and a new file of them.

SQLite's WAL keeps what a reading transaction sees, so nothing waits: neither the server for the copy, nor the copy for
the server. The WAL grows by what is written meanwhile.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

from chalicelib.errors import DataTooNew, Refused
from chalicelib.store.port import MAX_CHANGES, MAX_COMMIT, Put, Record
from chalicelib.store.sqlite import APPLICATION, COLUMNS, FEED_END, SCHEMA, WAY_BACK, SqliteStore, record_in

Entry = tuple[int, str, str]  # of the feed: its place, and the key of its record

_EVERYTHING = f"SELECT {COLUMNS} FROM records ORDER BY pk, sk"  # noqa: S608 - only constants
_FEED_ENTRIES = "SELECT place, pk, sk FROM feed ORDER BY place"
_FEED_ADD = "INSERT INTO feed (place, pk, sk) VALUES (?, ?, ?)"
_FEED_MOVED = ("DELETE FROM sqlite_sequence WHERE name = 'feed'", "INSERT INTO sqlite_sequence VALUES ('feed', ?)")
_PATIENCE = 30.0  # seconds for a server that is opening its file


class SqliteSnapshot:
    """A context: what is read within it is as of its beginning."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise Refused(f"There is no database {path}.", hint="Name the data folder of a server with --data-dir.")
        self._path = path
        self._reader = _opened(path)

    def __enter__(self) -> Self:
        try:
            self._reader.execute("BEGIN")
            self.feed_end: int = self._reader.execute(FEED_END).fetchone()[0]  # a snapshot begins with its first read
        except sqlite3.Error as error:
            self._reader.close()
            raise Refused(f"{self._path} can't be read: {error}.", hint="Check that it is a data folder.") from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._reader.close()

    def records(self) -> Iterator[Record]:
        """Every record, in the order of the keys."""
        for row in self._reader.execute(_EVERYTHING):
            yield record_in(row)

    def feed(self) -> list[Entry]:
        """The events that somebody who follows them hasn't seen yet."""
        return [(place, pk, sk) for place, pk, sk in self._reader.execute(_FEED_ENTRIES)]


def checked_format(path: Path) -> int:
    """The format of the file. Raises Refused for another program's, and DataTooNew for a newer version's."""
    with closing(_opened(path)) as reader:
        return int(reader.execute("PRAGMA user_version").fetchone()[0])


def write(path: Path, records: Iterable[Record], feed: Sequence[Entry], feed_end: int) -> int:
    """Make a new file of these records. Returns how many there are. `feed_end`: later events get later places."""
    target, count = SqliteStore(path, now=lambda: 0), 0  # at which nothing has expired
    try:
        for batch in _commits(records):
            target.commit([Put(record, expect=None) for record in batch])
            count += len(batch)
    finally:
        target.close()
    with closing(_opened(path)) as writer:
        writer.execute("BEGIN")
        writer.executemany(_FEED_ADD, feed)
        writer.execute(_FEED_MOVED[0])
        writer.execute(_FEED_MOVED[1], (feed_end,))
        writer.execute("COMMIT")
    return count


def _commits(records: Iterable[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size = 0
    for record in records:
        if len(batch) == MAX_CHANGES or (batch and size + len(record.body) > MAX_COMMIT):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += len(record.body)
    if batch:
        yield batch


def _opened(path: Path) -> sqlite3.Connection:
    found = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
    try:
        application = found.execute("PRAGMA application_id").fetchone()[0]
        version = found.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.Error as error:
        found.close()
        raise Refused(f"{path} is damaged, or isn't a database ({error}).", hint="Restore it from a backup.") from error
    if application == APPLICATION and version <= SCHEMA:
        return found
    found.close()
    if application != APPLICATION:
        raise Refused(f"{path} is a database of another program.", hint="Name the data folder of a server.")
    raise DataTooNew(
        f"{path} was written by a newer version of this program: its format is {version}, "
        f"this version reads up to {SCHEMA}.",
        hint=WAY_BACK,
    )
