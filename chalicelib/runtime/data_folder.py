"""The data folder: private, used by one server at a time, with its keys."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from pathlib import Path
from typing import IO

from chalicelib.errors import Refused


def locked(path: Path, *, patience: float = 0.0) -> IO[str]:
    """Make the folder private and take its lock, which the kernel releases however this process ends. `patience`:
    seconds for which another process may still hold it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
        lock = os.fdopen(os.open(path / "server.lock", os.O_RDWR | os.O_CREAT, 0o600), "w")
    except OSError as error:
        hint = "Choose another with --data-dir."
        if isinstance(error, PermissionError):  # a volume's own folder, for instance, which is root's
            hint = (
                f"Give it to the server's user, or name a folder in it that the server makes: --data-dir {path}/server."
            )
        raise Refused(f"Can't use the data folder {path}: {error.strerror}.", hint=hint) from error
    until = time.monotonic() + patience
    while not _taken(lock):
        if time.monotonic() >= until:
            lock.close()
            raise Refused(
                f"Another server is using the data folder {path}.",
                hint="Stop it first, or choose another with --data-dir.",
            )
        time.sleep(0.1)
    return lock


def _taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def private_file(path: Path, text: str) -> None:
    """Write a file that only the owner can read; completely or not at all."""
    draft = path.with_suffix(".draft")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)


def secret_file(path: Path) -> bytes:
    """32 random bytes in a private file, created once. The folder's lock prevents another server from creating them at
    the same time."""
    if not path.exists():
        private_file(path, secrets.token_hex(32))  # data sealed with part of a key would be lost
    try:
        secret = bytes.fromhex(path.read_text())
    except ValueError:
        secret = b""
    if len(secret) != 32:
        raise Refused(
            f"{path} isn't a valid key: it must contain 64 hexadecimal digits.",
            hint="Restore it from a backup of the data folder; data sealed with it can't be read with another key.",
        )
    return secret


def templates_in(folder: Path) -> dict[str, bytes]:
    """The files of the operator's templates, by name."""
    return {path.name: path.read_bytes() for path in folder.glob("*.yml") if path.is_file()}
