"""The key that backups are sealed with. It is the operator's own, and no server's: whoever has a backup but not its key
has nothing, and a server whose folder is lost has lost its own keys with it.

From the one secret come two keys: one seals (AES-256-GCM, each part bound to its name), the other names parts by their
content (HMAC), so that equal content is stored once and a name says nothing about what it stands for.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from chalicelib.errors import Bug, Refused

KEY_BYTES = 32
_NONCE_BYTES = 12
_COST = {"n": 2**15, "r": 8, "p": 1, "maxmem": 2**26}  # a tenth of a second for each guess of a passphrase


@dataclass(frozen=True)
class BackupKey:
    secret: bytes = field(repr=False)
    random: Callable[[int], bytes] = field(default=secrets.token_bytes, repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            raise Bug(f"a backup's key of {len(self.secret)} bytes; it takes {KEY_BYTES}.")

    def name(self, content: bytes) -> str:
        return hmac.new(self._derived("names"), content, hashlib.sha256).hexdigest()

    def seal(self, content: bytes, name: str) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = self.random(_NONCE_BYTES)
        return nonce + AESGCM(self._derived("content")).encrypt(nonce, content, name.encode())

    def open(self, sealed: bytes, name: str) -> bytes:
        """Raises Refused for another key, another name, or changed content, which can't be told apart."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            return AESGCM(self._derived("content")).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], name.encode())
        except (InvalidTag, ValueError) as error:
            raise Refused(
                f"{name} of the backup was changed or cut off, or is of another key.",
                hint="Check the key; if it is right, use another copy of the backup, or an earlier moment with --at.",
            ) from error

    def _derived(self, use: str) -> bytes:
        return hmac.new(self.secret, f"dstack backup: {use}".encode(), hashlib.sha256).digest()


def of_passphrase(text: str, salt: bytes) -> BackupKey:
    return BackupKey(hashlib.scrypt(text.encode(), salt=salt, dklen=KEY_BYTES, **_COST))
