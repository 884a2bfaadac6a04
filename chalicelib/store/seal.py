"""Secrets at rest: AES-256-GCM with the installation's keys. The first key seals; any of them opens.

A sealed text begins with its format (`v1.`), so that later formats can be told apart. A caller's `context` is bound to
the seal without being stored: a secret copied into another record doesn't open there.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from chalicelib.errors import Bug, Refused

KEY_BYTES = 32
_NONCE_BYTES = 12
_FORM = "v1."


class Sealer:
    def __init__(self, key: bytes, *others: bytes, random: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._keys = (key, *others)
        for each in self._keys:
            if len(each) != KEY_BYTES:
                raise Bug(f"a sealing key of {len(each)} bytes; it takes {KEY_BYTES}.")
        self._random = random

    def seal(self, text: str, *, context: str = "") -> str:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = self._random(_NONCE_BYTES)
        sealed = nonce + AESGCM(self._keys[0]).encrypt(nonce, text.encode(), context.encode())
        return _FORM + base64.urlsafe_b64encode(sealed).decode()

    def open(self, sealed: str, *, context: str = "") -> str:
        """Raises Refused for another key, another context, or a changed text, which can't be told apart."""
        if not sealed.startswith(_FORM):
            raise Refused("A stored secret isn't sealed in a form this version knows.", hint="Set the secret again.")
        try:
            raw = base64.b64decode(sealed[len(_FORM) :].encode(), altchars=b"-_", validate=True)
            text = self._opened(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], context.encode())
        except (binascii.Error, ValueError):
            text = None
        if text is None:
            raise Refused(
                "A stored secret doesn't open with this server's keys.",
                hint="Put back the key that was in use when it was stored, or set the secret again.",
            )
        return text

    def _opened(self, nonce: bytes, sealed: bytes, context: bytes) -> str | None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        for key in self._keys:
            try:
                return AESGCM(key).decrypt(nonce, sealed, context).decode()
            except InvalidTag:
                continue
        return None


class NoSealer(Sealer):
    """The sealer of a process that doesn't get the key, because it doesn't need it."""

    def __init__(self) -> None:
        """Without a key."""

    def seal(self, text: str, *, context: str = "") -> str:
        raise Bug("this process has no key to seal with: see `reads` in infra/functions.py.")

    def open(self, sealed: str, *, context: str = "") -> str:
        raise Bug("this process has no key to open seals with: see `reads` in infra/functions.py.")


def key_from_file(path: str | Path, *, random: Callable[[int], bytes] = secrets.token_bytes) -> bytes:
    """The key in the file at `path`, which is created on first use, readable by its owner only. If two processes start
    at once, one creates the key and both use it: the file appears completely or not at all."""
    path = Path(path)
    if not path.exists():
        _make(path, random(KEY_BYTES))
    try:
        key = base64.b64decode(path.read_bytes().strip(), validate=True)
    except binascii.Error:
        key = b""
    except OSError as error:
        raise Refused(f"{path} can't be read: {error.strerror}.", hint="Check its owner and permissions.") from error
    if len(key) != KEY_BYTES:
        raise Refused(f"{path} doesn't hold a key.", hint="Restore it from a copy: without it, no stored secret opens.")
    return key


def _make(path: Path, key: bytes) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(base64.b64encode(key) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return  # another process was faster: use its key
    except OSError as error:
        raise Refused(f"{path} can't be written: {error.strerror}.", hint="Check the data folder.") from error
    finally:
        draft.unlink(missing_ok=True)
