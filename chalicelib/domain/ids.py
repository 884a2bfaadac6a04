"""Ids.

Ids of whatever a plan creates (jobs, instances, effect tokens) are derived, so that a repeated plan names the same
thing and a repeated effect adopts what the first one created. Ids of users and access tokens are random and created at
the edge. Clients insist on UUID version 4, so a derived id is a hash with the version and variant bits set.
"""

from __future__ import annotations

import hashlib
import uuid


def derive(seed: str, kind: str, *parts: object) -> str:
    """A stable id for the thing `kind` number `parts` of `seed`: 16 bytes of SHA-256 with the version-4 bits set."""
    text = "\0".join((seed, kind, *map(str, parts)))
    raw = bytearray(hashlib.sha256(text.encode()).digest()[:16])
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_id(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except (ValueError, AttributeError, TypeError):
        return False
