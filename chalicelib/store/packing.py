"""Bodies as DynamoDB keeps them. A write is billed by the kilobyte, and JSON of ours shrinks to a third, so whatever
has more than a kilobyte with its keys is packed; what is smaller costs the same unpacked, and people can read it in
the console."""

from __future__ import annotations

import zlib
from functools import lru_cache

READABLE = 700  # bytes; with its keys and its place in the indexes it is a kilobyte


@lru_cache(maxsize=256)
def packed(body: bytes) -> bytes | None:
    """Smaller; None if it stays as it is."""
    return zlib.compress(body, 9) if len(body) > READABLE else None


def unpacked(data: bytes) -> bytes:
    return zlib.decompress(data)
