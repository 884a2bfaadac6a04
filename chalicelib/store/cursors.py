"""Cursors: a position in a listing as text, namely the record after which the next page begins.

All adapters share one format, because all order a listing by (sort, pk, sk) and need nothing else to continue. A cursor
names its listing, so that using it on another one is refused instead of skipping records there.
"""

from __future__ import annotations

import base64
import binascii

import orjson

from chalicelib.errors import Invalid
from chalicelib.store.port import Index, Record

Position = tuple[str, str, str]  # (sort, pk, sk)


def position_of(index: Index, record: Record) -> Position:
    if index == "main":
        return (record.key.sk, *record.key)
    entry = record.gsi1 if index == "gsi1" else record.gsi2
    if entry is None:
        raise ValueError(f"{record.key} isn't in {index}")
    return (entry[1], *record.key)


def encode(index: Index, partition: str, record: Record) -> str:
    return of(index, partition, position_of(index, record))


def of(index: Index, partition: str, position: Position) -> str:
    text = orjson.dumps([index, partition, *position])
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def decode(cursor: str, index: Index, partition: str) -> Position:
    try:
        raw = base64.b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        parts = orjson.loads(raw)
    except (UnicodeEncodeError, binascii.Error, orjson.JSONDecodeError) as error:
        raise Invalid("the cursor isn't one that this server issued.", hint="Start again without a cursor.") from error
    if not (isinstance(parts, list) and len(parts) == 5 and all(isinstance(part, str) for part in parts)):
        raise Invalid("the cursor isn't one that this server issued.", hint="Start again without a cursor.")
    if parts[0] != index or parts[1] != partition:
        raise Invalid("the cursor belongs to another listing.", hint="Start again without a cursor.")
    return (parts[2], parts[3], parts[4])
