"""The types have every key that the genuine client can't do without, and none that it must not find null may be null.

`measured.json` was measured: the client was given answers with one key missing, or null, at a time. A key within an
object counts only where the object is there. What users write has no type here: it is sent back as it was sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from chalicelib.api.dispatch import match
from docs.openapi.declared import reader
from tests.harness.rows import each

MEASURED = orjson.loads((Path(__file__).parent / "measured.json").read_bytes())
Schema = dict[str, Any]


def schema_of(path: str) -> Schema:
    method = "GET" if "/metrics/" in path else "POST"
    found = match(path)
    assert found is not None
    adapter = reader(found.routes[method], 200)
    assert adapter is not None
    return adapter.json_schema()


class Walk:
    """Through a schema, by the dotted path of a key; `[]` is each item of a list."""

    def __init__(self, schema: Schema) -> None:
        self.root = schema

    def faults(self, path: str, *, required: bool) -> Iterator[str]:
        at, parents = [self.root], [self.root]
        for name in path.replace("[]", ".[]").removeprefix(".").split("."):
            parents = [kind for one in at for kind in self._kinds(one) if name == "[]" or "properties" in kind]
            if name == "[]":
                at = [kind["items"] for kind in parents if "items" in kind]
                continue
            if any(name not in parent["properties"] for parent in parents):
                yield f"{path}: there is no {name}"
                return
            at = [parent["properties"][name] for parent in parents]
        if required:
            yield from (f"{path} may be absent" for parent in parents if name not in parent.get("required", [name]))
        else:
            yield from (f"{path} may be null" for one in at for kind in self._kinds(one) if kind.get("type") == "null")

    def _kinds(self, schema: Schema) -> Iterator[Schema]:
        if "$ref" in schema:
            yield from self._kinds(self.root["$defs"][schema["$ref"].rpartition("/")[2]])
        elif "anyOf" in schema:
            for one in schema["anyOf"]:
                yield from self._kinds(one)
        else:
            yield schema


@pytest.mark.parametrize("path", MEASURED)
def test_the_types_have_what_the_genuine_client_needs(path: str) -> None:
    walk, measured = Walk(schema_of(path)), MEASURED[path]
    assert [fault for key in measured["required_keys"] for fault in walk.faults(key, required=True)] == []
    assert [fault for key in measured["must_not_be_null"] for fault in walk.faults(key, required=False)] == []


OBJECT = {"properties": {"a": {"items": {"$ref": "#/$defs/B"}}, "b": {"anyOf": [{"type": "null"}]}}, "required": ["a"]}
B = {"B": {"properties": {"c": {"type": "string"}}, "required": []}}


@each(
    "path, required, found",
    [
        ("a", True, []),
        ("b", True, ["b may be absent"]),
        ("b", False, ["b may be null"]),
        ("a[].c", True, ["a[].c may be absent"]),
        ("a[].c", False, []),
        ("a[].d", False, ["a[].d: there is no d"]),
        ("a[].c.e", True, []),  # what is in a text isn't described
        ("d.e", True, ["d.e: there is no d"]),
    ],
)
def test_a_fault_is_found_where_it_is(path: str, required: bool, found: list[str]) -> None:
    assert list(Walk({**OBJECT, "$defs": B}).faults(path, required=required)) == found
