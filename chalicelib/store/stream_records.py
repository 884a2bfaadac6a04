"""Reading records from DynamoDB's stream of the table's changes."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from chalicelib.domain.keys import Key
from chalicelib.store.packing import unpacked
from chalicelib.store.port import Record

Image = Mapping[str, Mapping[str, Any]]  # attribute → {its type: its value}; bytes are in base64


def streamed(image: Image) -> Record:
    """The record that was written, without its index entries."""
    pk, sk, packed = image["pk"]["S"], image["sk"]["S"], image.get("packed", {}).get("B")
    body = unpacked(base64.b64decode(packed)) if packed else str(image["body"]["S"]).encode()
    return Record(Key(pk, sk), int(image["version"]["N"]), body)
