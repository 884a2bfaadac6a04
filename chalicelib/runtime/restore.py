"""A data folder from a backup. It appears completely or not at all, and marked: the server that starts there looks
before it acts (`domain/restorations.py`)."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros, iso
from chalicelib.domain.restorations import LOOKS, Restoration
from chalicelib.domain.tenants import User, hash_token
from chalicelib.errors import DataTooNew, Refused
from chalicelib.runtime.backup import DATABASE, INSTALL_KEY, PAIR, left_out
from chalicelib.runtime.data_folder import locked
from chalicelib.store import nouns
from chalicelib.store.backups import Backups, FileEntry, Moment
from chalicelib.store.disk import disk_error, make_folder, sync_folder
from chalicelib.store.port import Record
from chalicelib.store.record_lines import record_of
from chalicelib.store.sqlite import SCHEMA
from chalicelib.store.sqlite_snapshot import Entry, write

_DRAFT = ".restoring"
# In a folder that counts as empty: what no backup has, because it is of the machine, or of the simulated cloud.
_KEPT = frozenset({"server.lock", "lost+found", "fake-cloud", PAIR, _DRAFT})


@dataclass(frozen=True)
class Restored:
    moment: Moment
    records: int
    files: int
    revoked: int  # tokens


def restore(
    backups: Backups,
    folder: Path,
    now: Micros,
    *,
    until: Micros | None = None,
    revoke: Callable[[], str] | None = None,
    name: str = "",
    looks: Micros = LOOKS,
) -> Restored:
    """Make the folder as it was at the last backup, of those up to `until`, or at the one with this name. `revoke`:
    makes the tokens that replace all those there were. `looks`: for how long its server ends nothing; 0 for a backup
    that has every commit. Raises Refused unless the folder is empty, and for a backup that isn't whole."""
    moment = backups.moment(name) if name else backups.latest(until)
    if moment is None:
        raise Refused(
            "There is no backup." if until is None else f"There is no backup up to {iso(until)}.",
            hint="`dstack server backups` lists those there are.",
        )
    if moment.store > SCHEMA:
        raise DataTooNew(
            f"The backup of {moment.name} is of a newer version ({moment.program}): its format is {moment.store}, this "
            f"version reads up to {SCHEMA}.",
            hint="Restore it with that version, or an older backup with --at.",
        )
    with _made_anew(folder) as draft:
        files = _write_files(backups, moment, draft)
        tokens = _Tokens(revoke)
        records = tokens.changed(map(record_of, backups.lines(moment.records)))
        mark = Restoration(as_of=moment.at, at=now, looks_until=now + looks) if looks else None
        count = write(draft / DATABASE, _marked(records, mark), _feed(backups, moment), max(moment.feed_end, now))
    return Restored(moment, count, files, tokens.revoked)


def _marked(records: Iterator[Record], mark: Restoration | None) -> Iterator[Record]:
    """The records with the mark, in place of that of an earlier restoration. Whose server still only looked goes on to
    for as long. None: the earlier one stays."""
    for record in records:
        if mark is None or record.key != keys.RESTORATION:
            yield record
        elif (before := nouns.read(Restoration, record)).looking(mark.at):
            mark = mark.with_(looks_until=max(mark.looks_until, before.looks_until))
    if mark is not None:
        yield nouns.put(mark).record


def _feed(backups: Backups, moment: Moment) -> list[Entry]:
    """What followers haven't seen. Later events get places after all that were given before, or an audit log that is
    ahead of the backup would leave them out: the time in microseconds is such a place."""
    return [(place, pk, sk) for place, pk, sk in map(orjson.loads, backups.lines(moment.feed))]


class _Tokens:
    """Replaces everybody's token, and leaves out those that people made or got by signing on, if that is wanted: tokens
    that were revoked since the backup would be valid again."""

    def __init__(self, make: Callable[[], str] | None) -> None:
        self._make, self.revoked = make, 0

    def changed(self, records: Iterator[Record]) -> Iterator[Record]:
        return records if self._make is None else self._replaced(records, self._make)

    def _replaced(self, records: Iterator[Record], make: Callable[[], str]) -> Iterator[Record]:
        for record in records:
            family, _, rest = record.key.pk.partition("/")
            of_person = family == "token" and record.key.sk != "run"  # a job's token ends with its run
            named = family == "user" and record.key.sk.startswith(keys.ACCESS_TOKENS)
            if of_person or named or family == "workload":
                self.revoked += of_person and record.key.sk in ("user", "access")
            elif family == "user" and record.key.sk == keys.STATUS:
                user = nouns.read(User, record)
                fresh = nouns.put(user.with_(token_hash=hash_token(make())))
                yield fresh.record
                yield nouns.pointer(keys.token(nouns.read(User, fresh.record).token_hash), rest).record
            else:
                yield record


# --- files ------------------------------------------------------------------------------------------------------------


def _write_files(backups: Backups, moment: Moment, folder: Path) -> int:
    count = 0
    for entry in backups.files(moment):
        path = folder / entry.path
        if not path.resolve().is_relative_to(folder.resolve()):
            raise Refused(f"The backup has a file {entry.path!r}, which belongs to no data folder.")
        if left_out(entry.path.partition("/")[0]):  # by this version
            continue
        _write_file(backups, entry, path)
        count += 1
    return count


def _write_file(backups: Backups, entry: FileEntry, path: Path) -> None:
    try:
        make_folder(path.parent)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for part in entry.parts:
                file.write(backups.get(part))
            size = file.tell()
            file.flush()
            os.fsync(file.fileno())
        os.utime(path, ns=(entry.changed, entry.changed))  # ages count: of archives, and for the next backup
    except OSError as error:
        raise disk_error(path, error) from error
    if size != entry.size:
        raise Refused(f"{entry.path} of the backup has {size} bytes, not {entry.size}.", hint="Use another moment.")


@contextmanager
def _made_anew(folder: Path) -> Iterator[Path]:
    """A folder to fill, which becomes the given one if that goes well, and else is deleted."""
    try:
        if folder.exists():
            with _within(folder) as draft:
                yield draft
            return
        draft = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
        make_folder(folder.parent)
        try:
            draft.mkdir(mode=0o700)
            yield draft
            draft.rename(folder)
            sync_folder(folder.parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise disk_error(folder, error) from error


@contextmanager
def _within(folder: Path) -> Iterator[Path]:
    """The same for a folder that exists. It stays, because it may be a volume, or in a folder of somebody else; no
    server starts there meanwhile."""
    if not folder.is_dir() or {entry.name for entry in folder.iterdir()} - _KEPT:
        raise Refused(
            f"{folder} isn't empty, and a backup is never restored over something.",
            hint="Name a new folder with --data-dir, or move this one away: its server must be stopped.",
        )
    draft = folder / _DRAFT
    with locked(folder):
        shutil.rmtree(draft, ignore_errors=True)  # of a restore that was killed
        try:
            draft.mkdir(mode=0o700)
            yield draft
            # Without its key no server takes the folder for that of the control plane, however far this comes.
            for entry in sorted(draft.iterdir(), key=lambda each: each.name == INSTALL_KEY):
                entry.rename(folder / entry.name)
            sync_folder(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
