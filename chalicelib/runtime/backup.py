"""A backup of a data folder, of a server that may be running.

The records are those of one commit. The files are copied after that: blobs are written before the records that name
them, and logs only grow, so whatever the records speak of is there. What a machine keeps for itself (the agent of this
one, the simulated cloud) is no part of it: it is what a restored server looks at.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import orjson

from chalicelib.domain.instants import Micros, from_iso
from chalicelib.errors import Refused
from chalicelib.runtime.audit_syslog import STATE as SYSLOG_STATE
from chalicelib.runtime.root import install_id
from chalicelib.store.backups import LARGEST, Backups, FileEntry, Moment, moment_at
from chalicelib.store.disk import disk_error
from chalicelib.store.record_lines import line_of
from chalicelib.store.sqlite import SCHEMA
from chalicelib.store.sqlite_snapshot import SqliteSnapshot

DATABASE = "plane.db"
INSTALL_KEY = "install.key"
PAIR = "pair"  # the folder of what a server keeps about its pair
# What a server makes anew, holds only for itself, or finds as it is: everything else in the folder is backed up.
# With an older note of how far the audit log to syslog has come, numbers of lines would be used twice.
_LEFT_OUT = frozenset(
    {
        *("server.lock", "agent.pyz", "admin.token", "fake-cloud", "lost+found", PAIR, SYSLOG_STATE),
        *(DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"),
    }
)


def moment_of(text: str) -> Micros:
    """The time that the name of a backup, or an ISO date, means. Raises ValueError."""
    try:
        return moment_at(text)
    except ValueError:
        return from_iso(text)


def left_out(name: str) -> bool:
    """Whether this entry of the data folder belongs to no backup. Folders of agents are of machines; names that begin
    with a dot, and drafts, are of writes that were interrupted."""
    return name in _LEFT_OUT or name.startswith(".") or name.endswith(".draft") or name.partition("-")[0] == "agent"


def program() -> str:
    """The version that this is."""
    try:
        return version("dstack-serverless")
    except PackageNotFoundError:
        return "a checkout"


def back_up(folder: Path, backups: Backups, now: Callable[[], Micros] = lambda: time.time_ns() // 1000) -> Moment:
    """Add a backup of this folder as it is now. Raises Refused for a folder of something else."""
    key = folder / INSTALL_KEY
    if not key.is_file():
        raise Refused(f"{folder} isn't the data folder of a server.", hint="Name it with --data-dir.")
    install, before = install_id(bytes.fromhex(key.read_text())), backups.latest()
    if before is not None and before.install != install:
        raise Refused(
            f"The backups there are of another server ({before.install[:8]}, this is {install[:8]}).",
            hint="Name another place: each server has its own.",
        )
    stored = backups.stored
    at, counts = now(), Counter[str]()
    with SqliteSnapshot(folder / DATABASE) as snapshot:
        records = backups.put_lines(_record_lines(snapshot, counts))
        feed = backups.put_lines((str(place), _line([place, pk, sk])) for place, pk, sk in snapshot.feed())
        files = backups.put_lines(_file_lines(folder, backups, before, counts))
        moment = Moment(
            at=at,
            program=program(),
            store=SCHEMA,
            install=install,
            counts=dict(counts),
            feed_end=snapshot.feed_end,
            records=records,
            feed=feed,
            files=files,
            added=backups.stored - stored,
        )
    backups.add(moment)
    return moment


def _line(fields: list[object]) -> bytes:
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def _record_lines(snapshot: SqliteSnapshot, counts: Counter[str]) -> Iterator[tuple[str, bytes]]:
    for record in snapshot.records():
        line = line_of(record)
        counts["records"] += 1
        counts["bytes"] += len(line)
        yield str(record.key), line


def _file_lines(
    folder: Path, backups: Backups, before: Moment | None, counts: Counter[str]
) -> Iterator[tuple[str, bytes]]:
    known = {} if before is None else {entry.path: entry for entry in backups.files(before)}
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        entry = _stored(path, name, backups, known.get(name))
        if entry is not None:
            counts["files"] += 1
            counts["bytes"] += entry.size
            yield name, _line([entry.path, entry.size, entry.changed, list(entry.parts)])


def _files(folder: Path) -> Iterator[Path]:
    """In the order of their names, at any depth. A link isn't followed: its target is somebody else's."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if left_out(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _below(Path(entry.path))
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


def _below(top: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(top):
        folders.sort()
        for file in sorted(files):
            path = Path(folder, file)
            if not file.startswith(".") and path.is_file() and not path.is_symlink():
                yield path


def _stored(path: Path, name: str, backups: Backups, known: FileEntry | None) -> FileEntry | None:
    """The file with its parts, which are read only if it has changed since it was `known`. None: it is gone."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            same = known is not None and (known.size, known.changed) == (found.st_size, found.st_mtime_ns)
            if known is not None and same and backups.has(known.parts):
                return known
            parts, size = [], 0
            while piece := file.read(LARGEST):
                parts.append(backups.put(piece))
                size += len(piece)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk_error(path, error) from error
    return FileEntry(name, size, found.st_mtime_ns, tuple(parts))
