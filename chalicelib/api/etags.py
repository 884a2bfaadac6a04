"""Entity tags: which representation of a resource a caller has."""

from __future__ import annotations

import hashlib
import re


def of(content: bytes) -> str:
    """The strong tag of exactly this content."""
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def has(known: str, etag: str) -> bool:
    """Whether `If-None-Match` has this tag. A proxy that compresses makes it a weak one (`W/"…"`), which is as good."""
    return known.strip() == "*" or etag in re.findall(r'"[^"]*"', known)
