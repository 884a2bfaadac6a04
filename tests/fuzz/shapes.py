"""Values of a schema, and values beside it."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

Schema = Mapping[str, Any]
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 1e300, -1e-300, 0.5, "", " ", "\0", "\n", "0", "-1",
    "1..", "..1", "9..1", "1e9", "nan", "é" * 300, "x" * 5000, "../../etc/passwd", "'; drop table", "${{ env.A }}",
    "${{ run.name }}", "{{", "a/b", "a#b", "\u202e", "\U0001f600", "٣", "1GB..", "24GB:8", "A100:0", "*/0 * * * *",
    "9999-12-31T23:59:59.999999+00:00", "0001-01-01T00:00:00+14:00", "1d", "-1d", "99999999999w", "off", "~", [],
    [[]], [None], ["x"] * 200, {}, {"": None}, {"a": {"b": [{}]}}, {"type": "task"}, {"min": 5, "max": 1},
    {"min": None},
)  # fmt: skip
TEXTS = (
    "main",
    "x",
    "a-name",
    "echo hi",
    "8000:80",
    "python:3.12",
    "/data",
    ".:/work",
    "A100",
    "24GB..",
    "1..4",
    "aws",
)
DEEP = 7


@cache
def known() -> dict[str, Any]:
    """The schemas of requests: `routes` by "METHOD path", and `schemas` by name."""
    found: dict[str, Any] = json.loads((Path(__file__).parent / "requests.json").read_bytes())
    return found


class Shapes:
    """Draws values; a field that names something gets one of `handles`, by the name of the field."""

    def __init__(self, rng: random.Random, handles: Mapping[str, Sequence[Any]]) -> None:
        self.rng, self.handles = rng, handles

    def value(self, schema: Schema, depth: int = 0) -> Any:
        rng = self.rng
        if "$ref" in schema:
            return self.value(known()["schemas"][schema["$ref"]], depth)
        for choice in ("anyOf", "oneOf"):
            if choice in schema:
                return self.value(rng.choice(schema[choice]), depth)
        if "allOf" in schema:
            return self.value(schema["allOf"][0], depth)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return rng.choice(schema["enum"])
        kind = schema.get("type")
        if kind == "object":
            return self.object(schema, depth)
        if kind == "array":
            inner = schema.get("items", {})
            count = 0 if depth > DEEP else rng.choice((0, 1, 1, 2, 3))
            return [self.value(inner, depth + 1) for _ in range(max(count, schema.get("minItems", 0)))]
        return self.scalar(kind, schema)

    def object(self, schema: Schema, depth: int) -> dict[str, Any]:
        rng, needed = self.rng, schema.get("required", ())
        made = {}
        for name, inner in schema.get("properties", {}).items():
            if name in needed or rng.random() < (0.3 if depth < DEEP else 0):
                made[name] = self.field(name, inner, depth)
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict) and depth < DEEP:
            made |= {rng.choice(TEXTS): self.value(extra, depth + 1) for _ in range(rng.randrange(3))}
        return made

    def field(self, name: str, schema: Schema, depth: int) -> Any:
        if name in self.handles and self.rng.random() < 0.8:
            return self.rng.choice(self.handles[name])
        return self.value(schema, depth + 1)

    def scalar(self, kind: Any, schema: Schema) -> Any:
        rng = self.rng
        if kind == "integer":
            return rng.choice((0, 1, 2, 5, 10, 100, schema.get("minimum", 0), schema.get("maximum", 7)))
        if kind == "number":
            return rng.choice((0, 0.5, 1, 3.25, 1e6))
        if kind == "boolean":
            return rng.random() < 0.5
        if kind == "null":
            return None
        if schema.get("format") == "date-time":
            return rng.choice(("2026-11-21T05:11:20.465869+00:00", "2030-01-01T00:00:00Z", "1970-01-01T00:00:00Z"))
        if schema.get("format") == "uuid" or (kind == "string" and rng.random() < 0.1):
            return f"{rng.getrandbits(32):08x}-2e9a-4af5-aab4-144f175852f7"
        return rng.choice(TEXTS) if kind == "string" else rng.choice(ODD)


def changed(value: Any, rng: random.Random, *, within: bool = False) -> Any:
    """`value` with one part of it, anywhere, replaced, removed, doubled or joined by something odd. `within`: never
    the whole."""
    if isinstance(value, dict) and value and (within or rng.random() < 0.85):
        name = rng.choice(list(value))
        act = rng.random()
        if act < 0.12:
            return {key: item for key, item in value.items() if key != name}
        if act < 0.2:
            return {**value, rng.choice((*TEXTS, "", "\0", "é", "a.b")): rng.choice(ODD)}
        return {**value, name: changed(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        act = rng.random()
        if act < 0.15:
            return value[:place] + value[place + 1 :]
        if act < 0.3:
            return value + [value[place]] * rng.choice((1, 2, 120))
        return [*value[:place], changed(value[place], rng), *value[place + 1 :]]
    if isinstance(value, str) and value and rng.random() < 0.4:
        place = rng.randrange(len(value))
        return value[:place] + rng.choice(("", "\0", "é", " ", "-", "/", "..", "9" * 20, value)) + value[place + 1 :]
    return rng.choice(ODD)


def spoilt(data: bytes, rng: random.Random) -> bytes:
    """Bytes with something done to them that no encoder does."""
    place = rng.randrange(len(data) + 1)
    act = rng.randrange(6)
    if act == 0:
        return data[:place]
    if act == 1:
        return data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]
    if act == 2:
        return data[:place] + rng.randbytes(rng.randrange(1, 20)) + data[place:]
    if act == 3:
        return data[:place] + b"[" * 300 + data[place:]
    if act == 4:
        return data[place:] + data[:place]
    return data * 2
