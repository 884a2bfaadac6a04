"""Ids.

Ids of everything that a plan creates (jobs, instances, effect tokens) are derived, so that a repeated plan uses the
same ids and a repeated effect adopts what the first one created. Ids of users and access tokens are random and created
at the edge. Clients insist on UUID version 4, so a derived id is a hash with the version and variant bits set.
"""

from __future__ import annotations

import hashlib
import uuid

_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))  # a hexadecimal digit with its upper bits 1 and 0


def derive(seed: str, kind: str, *parts: object) -> str:
    """A stable id for the noun of this kind that `parts` number below `seed`: 16 bytes of SHA-256 with the version-4
    bits set."""
    text = hashlib.sha256("\0".join((seed, kind, *map(str, parts))).encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{_VARIANT[text[16]]}{text[17:20]}-{text[20:32]}"


def server_mark(install_id: str) -> str:
    """What the server of an installation shows to whoever asks for its health, so that hosts know it from others."""
    return derive(install_id, "server")


def is_id(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except (ValueError, AttributeError, TypeError):
        return False
