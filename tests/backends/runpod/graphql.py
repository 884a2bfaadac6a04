"""The part of GraphQL that Runpod's older API is called with: a document is read, and refused if it doesn't fit the
types in `graphql.json`. What of it is answered is up to the fake."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = json.loads(Path(__file__).with_name("graphql.json").read_text(encoding="utf-8"))
SCALARS: Mapping[str, tuple[type, ...]] = {"String": (str,), "Int": (int,), "Float": (int, float), "Boolean": (bool,)}
ARGUMENTS = {"lowestPrice": "GpuLowestPriceInput", "podRentInterruptable": "PodRentInterruptableInput"}
_TOKENS = re.compile(r'\$?[A-Za-z_]\w*|"[^"]*"|-?\d+(?:\.\d+)?|[{}()\[\]:!]')


class Wrong(Exception):
    """The document doesn't fit the schema."""


@dataclass
class Field:
    name: str
    key: str  # in the answer: its alias, or its name
    input: dict[str, Any] = field(default_factory=dict)
    fields: list[Field] = field(default_factory=list)


def read(body: Any) -> tuple[str, list[Field]]:
    """Query or mutation, and its fields, with the values of variables in place. Raises Wrong."""
    return _Document(str(body["query"]), body.get("variables") or {}).read()


class _Document:
    def __init__(self, text: str, variables: Mapping[str, Any]) -> None:
        self._rest, self._given = _TOKENS.findall(text), dict(variables)
        self._used: set[str] = set()

    def read(self) -> tuple[str, list[Field]]:
        kind = self._next() if self._rest[0] != "{" else "query"
        types = dict(self._declared()) if self._rest[0] == "(" else {}
        for name, written in types.items():
            _check(name, written, self._given.get(name))
        found = list(self._selected({"query": "Query", "mutation": "Mutation"}[kind]))
        if self._used != set(types) or self._given.keys() - types.keys():
            raise Wrong(
                f"variables declared: {sorted(types)}, used: {sorted(self._used)}, given: {sorted(self._given)}"
            )
        return kind, found

    def _next(self, wanted: str = "") -> str:
        token = self._rest.pop(0) if self._rest else ""
        if not token or wanted not in ("", token):
            raise Wrong(f"{wanted or 'more'} is expected, not {token}")
        return token

    def _declared(self) -> Iterator[tuple[str, str]]:
        self._next("(")
        while self._rest[0] != ")":
            name = self._next().removeprefix("$")
            self._next(":")
            written = self._next()
            if self._rest[0] == "!":
                written += self._next()
            yield name, written
        self._next(")")

    def _selected(self, owner: str) -> Iterator[Field]:
        self._next("{")
        while self._rest[0] != "}":
            key = name = self._next()
            if self._rest[0] == ":":
                self._next(":")
                name = self._next()
            if name not in SCHEMA["types"][owner]:
                raise Wrong(f"Cannot query field {name} on type {owner}")
            one = Field(name, key)
            if self._rest[0] == "(":
                self._next("(")
                self._next("input")
                self._next(":")
                one.input = self._value()
                _check("input", ARGUMENTS[name], one.input)
                self._next(")")
            inner = SCHEMA["types"][owner][name]
            if inner in SCHEMA["types"]:
                one.fields = list(self._selected(inner))
            yield one
        self._next("}")

    def _value(self) -> Any:
        token = self._next()
        if token == "{":
            found = {}
            while self._rest[0] != "}":
                name = self._next()
                self._next(":")
                found[name] = self._value()
            self._next("}")
            return found
        if token.startswith("$"):
            self._used.add(token[1:])
            return self._given.get(token[1:])
        return json.loads(token)


def _check(name: str, written: str, value: Any) -> None:
    kind = written.removesuffix("!")
    if value is None:
        if written.endswith("!"):
            raise Wrong(f"{name} of type {written} was not provided")
        return
    if kind in SCHEMA["inputs"]:
        known = SCHEMA["inputs"][kind]
        if unknown := set(value) - set(known):
            raise Wrong(f"{', '.join(sorted(unknown))} is not defined by type {kind}")
        for each, inner in known.items():
            _check(each, inner, value.get(each))
    elif kind == "[EnvironmentVariableInput]":
        if not all(set(each) == {"key", "value"} and all(type(v) is str for v in each.values()) for each in value):
            raise Wrong(f"{name} is a list of keys and values")
    elif kind in SCALARS and (not isinstance(value, SCALARS[kind]) or (type(value) is bool and kind != "Boolean")):
        raise Wrong(f"{kind} cannot represent {value!r} of {name}")
    elif kind in SCHEMA["enums"] and value not in SCHEMA["enums"][kind]:
        raise Wrong(f"{value} does not exist in {kind}")
