"""Records as DynamoDB's stream of the table's changes hands them over, and the events in a record.

`events_in` is for whoever follows the log, in AWS or here: the one place that knows what a record of the log holds.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from chalicelib.domain.events import Event
from chalicelib.domain.keys import Key
from chalicelib.store import nouns
from chalicelib.store.packing import unpacked
from chalicelib.store.port import Record

Image = Mapping[str, Mapping[str, Any]]  # attribute → {its type: its value}; bytes are in base64


def streamed(image: Image) -> Record:
    """The record that was written, without its entries in the indexes."""
    pk, sk, packed = image["pk"]["S"], image["sk"]["S"], image.get("packed", {}).get("B")
    body = unpacked(base64.b64decode(packed)) if packed else str(image["body"]["S"]).encode()
    return Record(Key(pk, sk), int(image["version"]["N"]), body)


def events_in(record: Record) -> tuple[Event, ...]:
    """In the order in which they happened."""
    return (nouns.read(Event, record),)
