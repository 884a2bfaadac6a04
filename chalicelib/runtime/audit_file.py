"""An audit log in a file. At a chosen size the file gets the number of its first line in its name, and a new one goes
on with the same chain: `audit.jsonl`, before it `audit.000000000001.jsonl`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import orjson

from chalicelib.domain.audit_chain import Broken, Head, rotated, rotated_name, verified
from chalicelib.errors import Refused
from chalicelib.store.disk import disk_error, sync_folder

_TAIL = 1024 * 1024  # bytes: more than a line has
_BEGIN = b'{"number":'  # of each line


class FileSink:
    every = 1.0

    def __init__(self, path: Path, largest: int = 0) -> None:
        """`largest`: bytes of a file, after which a new one begins; 0: there is one."""
        self.path, self._largest = path, largest

    def end(self) -> Head:
        """Lines that a crash cut off are removed, and so are those of a record whose last line isn't there: they are
        written again, and are the same."""
        head = _head_of(self.path)
        earlier = rotated(self.path, [each.name for each in self.path.parent.glob("*")])
        before = _head_of(self.path.with_name(earlier[-1])) if earlier else Head()
        if head.number == 0 or head.place == before.place:  # it has nothing, or nothing but the beginning of a record
            _cut(self.path, 0)
            return before
        return head

    def append(self, lines: Sequence[bytes], head: Head) -> None:
        first = head.number - len(lines) + 1
        try:
            self._rotate(first)
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            size = os.fstat(handle).st_size
            try:
                with os.fdopen(handle, "ab", buffering=0, closefd=False) as file:
                    file.write(b"".join(lines))
                os.fsync(handle)
            except OSError:
                os.ftruncate(handle, size)  # whole batches only: the next try writes it again
                raise
            finally:
                os.close(handle)
        except OSError as error:
            raise disk_error(self.path, error) from error

    def _rotate(self, first: int) -> None:
        if not self._largest or not self.path.exists() or self.path.stat().st_size < self._largest:
            return
        with self.path.open("rb") as file:
            begins = int(orjson.loads(file.readline())["number"])
        assert begins < first, "what is written follows what is there"
        self.path.rename(self.path.with_name(rotated_name(self.path, begins)))
        sync_folder(self.path.parent)


def _head_of(path: Path) -> Head:
    """The last line that ends a record. Raises Refused for a file of something else."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            tail = file.read()
    except FileNotFoundError:
        return Head()
    except OSError as error:
        raise disk_error(path, error) from error
    lines = tail[: tail.rfind(b"\n") + 1].splitlines(keepends=True)
    hint = "Move the file away, and the server begins a new one."
    if not lines and not _BEGIN.startswith(tail.rstrip(b"\0")[: len(_BEGIN)]):  # nor a first line that a crash cut off
        raise Refused(f"{path} is no audit log.", hint=hint)
    head = last_line(b"".join(lines[-1:]), str(path), hint)
    while len(lines) > 1 and (above := last_line(lines[-2], str(path), hint)).place == head.place:
        lines.pop()
        head = above
    whole = size - len(tail) + sum(map(len, lines))
    if whole < size:
        _cut(path, whole)
    return head


def _cut(path: Path, size: int) -> None:
    try:
        if path.exists():
            os.truncate(path, size)
    except OSError as error:
        raise disk_error(path, error) from error


def last_line(lines: bytes, where: str, hint: str) -> Head:
    """The last of these lines. Raises Refused if it isn't one of an audit log."""
    found = lines.splitlines(keepends=True)
    if not found:
        return Head()
    try:
        last = orjson.loads(found[-1])
        before = Head(last["number"] - 1, 0, last["previous"])
        return verified(found[-1:], before)
    except (orjson.JSONDecodeError, TypeError, KeyError, Broken) as error:
        raise Refused(
            f"The audit log {where} doesn't end with a line of an audit log.", hint=f"See `dstack audit verify`. {hint}"
        ) from error
