"""Conversion between nouns and records. A noun supplies its own keys (`place`); its body is its fields as JSON.

A noun has the version at which it was read, and `put(noun)` returns a change with that version as its condition, so no
other layer handles versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import orjson

from chalicelib.domain.keys import Key
from chalicelib.domain.noun import Noun
from chalicelib.store.port import Put, Record, Store

N = TypeVar("N", bound=Noun)


def key_of(noun: Noun) -> Key:
    return noun.place().key


def put(noun: Noun) -> Put:
    """The change that writes `noun`, on condition that nobody has written it since it was read."""
    key, gsi1, gsi2, due, expires_at = noun.place()
    body = noun.__pydantic_serializer__.to_json(noun, exclude_defaults=True)
    return Put(Record(key, noun.version + 1, body, gsi1, gsi2, due, expires_at), expect=noun.version)


def read(kind: type[N], record: Record) -> N:
    noun = kind.model_validate_json(record.body)
    object.__setattr__(noun, "version", record.version)
    return noun


def pointer(key: Key, target: str, *, version: int = 0) -> Put:
    """A name's record: `{"id": target}`. Version 0 claims a free name; a higher one moves the pointer."""
    return Put(Record(key, version + 1, orjson.dumps({"id": target})), expect=version)


def pointed(record: Record) -> str:
    """The id that a name's record points to."""
    return str(orjson.loads(record.body)["id"])


def find(store: Store, kind: type[N], key: Key) -> N | None:
    record = store.get(key)
    return None if record is None else read(kind, record)


def find_many(store: Store, kind: type[N], found: Sequence[Key]) -> list[N | None]:
    return [None if record is None else read(kind, record) for record in store.get_many(found)]


def find_target(store: Store, key: Key) -> tuple[str, int] | None:
    """The id that a pointer names, and the pointer's version; None if the name is free."""
    record = store.get(key)
    return None if record is None else (pointed(record), record.version)
