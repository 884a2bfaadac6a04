"""Where backups can be: a folder, an object store (`s3://bucket/prefix`), or a single file (`….zip`)."""

from __future__ import annotations

import fcntl
import os
import secrets
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from chalicelib.domain.instants import Micros
from chalicelib.errors import Invalid, Refused
from chalicelib.runtime.s3_client import s3_client
from chalicelib.store.blobs import Blobs, FileBlobs, S3Blobs, checked
from chalicelib.store.disk import disk_error, make_folder, sync_folder

S3 = "s3://"
FILE = ".zip"
_LOCK = ".lock"


@contextmanager
def place_of(name: str, *, write: bool, client: Callable[[], Any] | None = None) -> Iterator[Blobs]:
    """The place with this name. What is written to a file is there once this ends without an error, all of it; a folder
    is written by one at a time."""
    if name.startswith(S3):
        bucket, _, prefix = name.removeprefix(S3).partition("/")
        if not bucket:
            raise Invalid(f"{name} names no bucket.", hint="Write it as in s3://my-bucket/dstack.")
        yield Below(S3Blobs(bucket, client or partial(s3_client, "Backups")), prefix.strip("/"))
    elif name.endswith(FILE):
        with _file(Path(name).expanduser(), write) as found:
            yield found
    else:
        path = Path(name).expanduser()
        if path.is_file():
            raise Refused(f"{name} is a file.", hint="Name a folder, a file that ends in .zip, or s3://bucket/prefix.")
        with _only_one(path) if write else _none():
            yield FileBlobs(path)


class Below(Blobs):
    """The blobs of another place whose names begin with this prefix."""

    def __init__(self, blobs: Blobs, prefix: str) -> None:
        self._blobs, self._prefix = blobs, f"{checked(prefix)}/" if prefix else ""

    def put(self, name: str, data: bytes) -> None:
        self._blobs.put(self._prefix + name, data)

    def get(self, name: str) -> bytes | None:
        return self._blobs.get(self._prefix + name)

    def delete(self, *names: str) -> None:
        self._blobs.delete(*(self._prefix + name for name in names))

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        return [name for name, _ in self.dated(prefix, after, limit)]

    def dated(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[tuple[str, Micros]]:
        found = self._blobs.dated(self._prefix + prefix, self._prefix + after if after else "", limit)
        return [(name.removeprefix(self._prefix), at) for name, at in found]

    def tidy(self, before: Micros) -> None:
        """Do nothing: the place belongs to its owner."""

    def link(self, name: str, seconds: int) -> str | None:
        return None


class ZipBlobs(Blobs):
    """One file with everything, which is made once. Its parts are sealed and compressed already."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def put(self, name: str, data: bytes) -> None:
        self._archive.writestr(checked(name), data)

    def get(self, name: str) -> bytes | None:
        try:
            return self._archive.read(name)
        except KeyError:
            return None
        except (zipfile.BadZipFile, OSError) as error:
            raise Refused(f"{self._archive.filename} is damaged: {error}.", hint="Use another copy of it.") from error

    def delete(self, *names: str) -> None:
        raise Refused("A file holds one backup, and none is deleted from it.", hint="Delete the file.")

    def list(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        return sorted(name for name in self._archive.namelist() if name.startswith(prefix) and name > after)[:limit]

    def dated(self, prefix: str, after: str = "", limit: int = 1000) -> Sequence[tuple[str, Micros]]:
        return [(name, 0) for name in self.list(prefix, after, limit)]

    def tidy(self, before: Micros) -> None:
        """Do nothing: a draft is deleted by whoever made it."""

    def link(self, name: str, seconds: int) -> str | None:
        return None


@contextmanager
def _file(path: Path, write: bool) -> Iterator[ZipBlobs]:
    if not write:
        try:
            with zipfile.ZipFile(path) as archive:
                yield ZipBlobs(archive)
        except FileNotFoundError as error:
            raise Refused(f"There is no file {path}.", hint="Name a backup.") from error
        except (zipfile.BadZipFile, OSError) as error:
            raise Refused(f"{path} can't be read as a backup: {error}.", hint="Name a backup.") from error
        return
    if path.exists():
        raise Refused(
            f"{path} exists, and a file holds one backup.", hint="Name a new file, or a folder, which takes many."
        )
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        make_folder(path.parent)
        with os.fdopen(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b") as file:
            with zipfile.ZipFile(file, "w") as archive:
                yield ZipBlobs(archive)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise disk_error(path, error) from error
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, because deleting an old backup's parts must not meet a new one that uses them again."""
    try:
        make_folder(folder)
        lock = os.fdopen(os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600), "w")
    except OSError as error:
        raise disk_error(folder, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Refused(f"Another backup to {folder} is under way.", hint="Wait until it is done.") from error
        yield


@contextmanager
def _none() -> Iterator[None]:
    yield
