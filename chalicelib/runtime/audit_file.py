"""The audit log of the embedded server: every event, appended to a file whose lines are chained (`domain/audit_chain`).

The file itself says where it ends, so nothing is written twice or left out by a restart; the feed keeps the events that
aren't in it yet.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from typing import Any

import orjson

from chalicelib.domain.audit_chain import Broken, Head, line_of, verified
from chalicelib.domain.events import Event
from chalicelib.engine.ports import Feed
from chalicelib.errors import Refused
from chalicelib.store import nouns
from chalicelib.store.disk import disk_error

EVERY = 1.0  # seconds between two looks for new events
BATCH = 200  # events that are written at once
_TAIL = 1024 * 1024  # bytes: more than a line has


class AuditFile:
    def __init__(self, path: Path, feed: Feed) -> None:
        self.path, self._feed = path, feed
        self._head = _head_of(path)
        self._writing = Lock()

    @property
    def place(self) -> int:
        """The position in the feed up to which everything is written."""
        return self._head.place

    def write(self) -> None:
        """Append what has happened since the last time."""
        with self._writing:
            while entries := self._feed.feed_after(self._head.place, BATCH):
                head, lines = self._head, []
                for place, record in entries:
                    line, head = line_of(head, place, _json(nouns.read(Event, record)))
                    lines.append(line)
                self._append(b"".join(lines))
                self._head = head

    def _append(self, data: bytes) -> None:
        try:
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            size = os.fstat(handle).st_size
            try:
                with os.fdopen(handle, "ab", buffering=0, closefd=False) as file:
                    file.write(data)
                os.fsync(handle)
            except OSError:
                os.ftruncate(handle, size)  # whole batches only: the next try writes it again
                raise
            finally:
                os.close(handle)
        except OSError as error:
            raise disk_error(self.path, error) from error


def _json(event: Event) -> dict[str, Any]:
    return {**event.model_dump(mode="json", exclude_defaults=True, exclude={"version"}), "message": event.message}


def _head_of(path: Path) -> Head:
    """The end of the file; a line that a crash cut off is removed. Raises Refused for a file of something else."""
    try:
        with path.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            tail = file.read()
            if not tail.endswith(b"\n"):
                cut = tail.rfind(b"\n") + 1
                file.truncate(size - len(tail) + cut)
                tail = tail[:cut]
    except FileNotFoundError:
        return Head()
    except OSError as error:
        raise disk_error(path, error) from error
    lines = tail.splitlines(keepends=True)
    if not lines:
        return Head()
    try:
        last = orjson.loads(lines[-1])
        return verified(lines[-1:], Head(last["number"] - 1, 0, last["previous"]))
    except (orjson.JSONDecodeError, TypeError, KeyError, Broken) as error:
        raise Refused(
            f"The audit log {path} doesn't end with a line of an audit log.",
            hint="See `dstack audit verify`. Move the file away, and the server begins a new one.",
        ) from error
