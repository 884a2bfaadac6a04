"""Backups as the operator has set them: their place, and their key, which is a file of its own or a passphrase."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from chalicelib.domain.instants import SECOND, Micros
from chalicelib.errors import DstackError, Refused
from chalicelib.runtime.backup import back_up
from chalicelib.runtime.backup_places import FILE, S3, place_of
from chalicelib.runtime.backup_settings import BackupSettings
from chalicelib.runtime.data_folder import secret_file
from chalicelib.store.backups import Backups, KeySource, Moment, moment_at, opened
from chalicelib.store.disk import disk_error, make_folder

log = logging.getLogger(__name__)

CHECK_EVERY = 60.0  # seconds between a running server's looks at whether a backup is due


def back_up_if_due(folder: Path, settings: BackupSettings, now: Callable[[], Micros]) -> Moment | None:
    """A running server's backup, if the last one is old enough, and the end of those that are too old. An error is
    logged: the next turn tries again."""
    try:
        with backups_of(settings, log.warning, folder=folder) as found:
            names = found.moments()
            if names and moment_at(names[-1]) > now() - settings.every * SECOND:
                return None
            done = back_up(folder, found, now)
            log.info("backed up to %s: %s, %d bytes of it new", settings.to, done.name, done.added)
            _end_old(found, settings, now())
    except DstackError as error:
        log.error("the server wasn't backed up to %s: %s", settings.to, error)
        return None
    return done


def _end_old(found: Backups, settings: BackupSettings, now: Micros) -> None:
    try:
        found.prune(now - settings.keep * SECOND, now)
    except DstackError as error:
        log.error("old backups in %s weren't deleted: %s", settings.to, error)


def check_schedule(folder: Path, settings: BackupSettings) -> None:
    """Raises Refused for a schedule that can't work, so that a server doesn't start with it."""
    if not settings.to:
        return
    if settings.to.endswith(FILE):
        raise Refused(
            f"DSTACK_BACKUP_TO is {settings.to}, and a file holds one backup.",
            hint="Name a folder or s3://bucket/prefix.",
        )
    check_apart(settings.to, folder)
    key_source(settings, folder=folder)


@contextmanager
def backups_of(
    settings: BackupSettings, say: Callable[[str], object], *, folder: Path | None = None
) -> Iterator[Backups]:
    """The backups in the place of the settings. `folder`: the data folder of a new one."""
    if folder is not None:
        check_apart(settings.to, folder)
    source, news = key_source(settings, folder=folder)
    if news:
        say(news)
    with place_of(settings.to, write=folder is not None) as blobs:
        yield opened(blobs, source, create=folder is not None)


def check_apart(place: str, folder: Path) -> None:
    """Raises Refused for a place in the data folder: each backup would have all earlier ones in it."""
    if not place.startswith(S3) and Path(place).expanduser().resolve().is_relative_to(folder.resolve()):
        raise Refused(
            f"Backups in {place} would be lost with the folder that they are to restore.",
            hint=f"Name a place outside of {folder}, best on another disk.",
        )


def key_source(settings: BackupSettings, *, folder: Path | None = None) -> tuple[KeySource, str]:
    """The key, and a line to print if it is new. `folder`: the data folder to back up, for whose first backup a key is
    made; to read backups, there must be one."""
    if settings.passphrase:
        return KeySource(passphrase=settings.passphrase), ""
    path = settings.key_file
    if path is None:
        raise Refused(
            "A backup needs a key of its own, because the server's keys are in it.",
            hint="Name a file with --key-file or DSTACK_BACKUP_KEY_FILE, which the first backup makes, or set "
            "DSTACK_BACKUP_PASSPHRASE.",
        )
    if path.exists():
        try:
            return KeySource(secret=secret_file(path)), ""
        except OSError as error:
            raise Refused(
                f"The key {path} can't be read: {error.strerror}.", hint="Name the file that the first backup made."
            ) from error
    if folder is None:
        raise Refused(f"There is no key {path}.", hint="Name the file of the key that the backups were made with.")
    if path.resolve().is_relative_to(folder.resolve()):
        raise Refused(
            f"The key {path} would be lost with the folder that it is to restore.", hint="Keep it somewhere else."
        )
    try:
        make_folder(path.parent)
        return KeySource(secret=secret_file(path)), f"Made the key {path}: keep a copy of it elsewhere"
    except OSError as error:
        raise disk_error(path, error) from error
