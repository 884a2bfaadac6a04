"""One model of a provider's API, whatever form it was published in, and what in a request or an answer breaks it.

Published schemas hardly ever forbid a key that they don't know. Providers do, so every object is closed here: a key
that no schema names is a problem, and so is one that only the provider may write (`readOnly`) or read (`writeOnly`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from jsonschema import Draft202012Validator, ValidationError

Schema = dict[str, Any]
Place = Literal["path", "query", "header"]
_COMPOSED = ("allOf", "anyOf", "oneOf")
_NOTHING: Schema = {"not": {}}


@dataclass(frozen=True)
class Problem:
    kind: Literal["unknown", "missing", "read-only", "type", "value"]
    where: str  # body.disks.0.mode, query.limit
    message: str


@dataclass(frozen=True)
class Parameter:
    name: str
    place: Place
    required: bool
    schema: Schema


@dataclass(frozen=True)
class Operation:
    name: str
    method: str  # upper case; GRPC for a procedure
    path: str  # a template: /v1/projects/{project_id}, and {+name} for what may have slashes
    parameters: tuple[Parameter, ...] = ()
    body: Schema | None = None
    body_required: bool = False
    responses: Mapping[str, Schema] = field(default_factory=dict)  # by status, or `default`

    def response(self, status: int) -> Schema | None:
        return self.responses.get(str(status), self.responses.get("default"))


class Api:
    """The operations that a fake answers, read from its data file (`extract`)."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.source: str = document["source"]
        self.schemas: dict[str, Schema] = document["schemas"]
        self.operations = {name: _operation(name, each) for name, each in document["operations"].items()}
        # What is written out beats what a parameter stands for: /disks/operations is no disk.
        literal = sorted(self.operations.values(), key=lambda each: -len(re.sub(r"{[^}]*}", "", each.path)))
        self._routes = [(each, _pattern(each.path)) for each in literal]
        self._validators: dict[tuple[int, str], Draft202012Validator] = {}
        self._fitting: set[tuple[int, str, str]] = set()
        self._closed = {
            hidden: {name: closed(schema, hidden, self.schemas) for name, schema in self.schemas.items()}
            for hidden in ("readOnly", "writeOnly")
        }

    @classmethod
    def of(cls, file: Path) -> Api:
        return cls(json.loads(file.read_text(encoding="utf-8")))

    def route(self, method: str, path: str) -> tuple[Operation, dict[str, str]] | None:
        for operation, pattern in self._routes:
            found = pattern.fullmatch(path) if operation.method == method else None
            if found:
                names = re.findall(r"{\+?([^}]*)}", operation.path)
                return operation, dict(zip(names, found.groups(), strict=True))
        return None

    def request_problems(
        self, operation: Operation, path: Mapping[str, Any], query: Mapping[str, Any], body: Any
    ) -> Iterator[Problem]:
        given: dict[Place, Mapping[str, Any]] = {"path": path, "query": query}
        for place, values in given.items():
            known = {each.name: each for each in operation.parameters if each.place == place}
            for name in values.keys() - known.keys() if place == "query" else ():  # the template names those of a path
                yield Problem("unknown", f"{place}.{name}", f"unknown parameter {name}")
            for name, parameter in known.items():
                where = f"{place}.{name}"
                if name in values:
                    yield from self._problems(where, parameter.schema, values[name], "readOnly")
                elif parameter.required:
                    yield Problem("missing", where, f"parameter {name} is required")
        if body is None:
            if operation.body_required:
                yield Problem("missing", "body", "a body is required")
        elif operation.body is None:
            yield Problem("unknown", "body", "no body is expected")
        else:
            yield from self._problems("body", operation.body, body, "readOnly")

    def answer_problems(self, operation: Operation, status: int, body: Any) -> Iterator[Problem]:
        schema = operation.response(status)
        if schema is None and not 200 <= status < 300:
            return  # most documents leave out errors that everybody gets
        if schema is None and body is not None:
            yield Problem("unknown", "answer", f"no body is published for {status}")
        elif schema is not None:
            yield from self._problems("answer", schema, body, "writeOnly")

    def _problems(self, where: str, schema: Schema, value: Any, hidden: str) -> Iterator[Problem]:
        """Of a schema that lives as long as this. What fitted it once isn't read again: the lists of a provider's
        regions and prices are the same in each test."""
        key = (id(schema), hidden)
        seen = (*key, json.dumps(value))
        if seen in self._fitting:
            return
        if key not in self._validators:
            document = {**closed(schema, hidden, self.schemas), "schemas": self._closed[hidden]}
            self._validators[key] = Draft202012Validator(document)
        errors = [*self._validators[key].iter_errors(value)]
        if not errors:
            self._fitting.add(seen)
        for error in errors:
            yield from _problems_of(where, error)


def values_of(operation: Operation, query: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The parameters of a query, as their schemas have them: everything is text on the wire."""
    known = {each.name: each.schema for each in operation.parameters if each.place == "query"}
    found: dict[str, Any] = {}
    for name, text in query:
        schema = known.get(name, {})
        if schema.get("type") == "array":
            found.setdefault(name, []).extend(_value(each, schema.get("items", {})) for each in text.split(","))
        else:
            found[name] = _value(text, schema)
    return found


def _value(text: str, schema: Schema) -> Any:
    kind = schema.get("type")
    if kind in ("integer", "number") and re.fullmatch(r"-?\d+(\.\d+)?", text):
        return int(text) if "." not in text else float(text)
    return {"true": True, "false": False}.get(text, text) if kind == "boolean" else text


def closed(schema: Any, hidden: str, named: Mapping[str, Schema], *, member: bool = False) -> Any:
    """The schema without keys that it doesn't name, and without those that are hidden from this side. A `member` of a
    composition is closed by the whole."""
    if not isinstance(schema, dict):
        return schema
    composed = "allOf" in schema or "properties" in schema
    out: Schema = {}
    for key, value in schema.items():
        if key == "properties":
            out[key] = {name: _record_program(each, hidden, named) for name, each in value.items()}
        elif key == "allOf":
            out[key] = [closed(_inline(each, named), hidden, named, member=True) for each in value]
        elif key in _COMPOSED:
            out[key] = [
                closed(_inline(each, named) if composed else each, hidden, named, member=composed) for each in value
            ]
        elif key in ("items", "additionalProperties", "not"):
            out[key] = closed(value, hidden, named)
        elif key == "required":
            out[key] = [name for name in value if not schema.get("properties", {}).get(name, {}).get(hidden)]
        else:
            out[key] = value
    if composed and not member and "additionalProperties" not in schema:
        out["unevaluatedProperties" if schema.keys() & set(_COMPOSED) else "additionalProperties"] = False
    return out


def _record_program(schema: Schema, hidden: str, named: Mapping[str, Schema]) -> Any:
    return _NOTHING if schema.get(hidden) else closed(schema, hidden, named)


def _inline(schema: Schema, named: Mapping[str, Schema]) -> Schema:
    return named[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _operation(name: str, given: Mapping[str, Any]) -> Operation:
    parameters = tuple(
        Parameter(each["name"], each["in"], each.get("required", False), each.get("schema", {}))
        for each in given.get("parameters", ())
    )
    return Operation(
        name,
        given["method"],
        given["path"],
        parameters,
        given.get("body"),
        given.get("body_required", False),
        given.get("responses", {}),
    )


def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"({[^}]*})", template)
    return re.compile(
        "".join(
            ("(.+)" if part.startswith("{+") else "([^/]+)") if part.startswith("{") else re.escape(part)
            for part in parts
        )
    )


def _problems_of(where: str, error: ValidationError) -> Iterator[Problem]:
    place = ".".join([where, *map(str, error.absolute_path)])
    if error.validator == "additionalProperties":
        for name in sorted(error.instance.keys() - error.schema["properties"].keys()):
            yield Problem("unknown", f"{place}.{name}", f"unknown field {name}")
    elif error.validator == "unevaluatedProperties":
        yield Problem("unknown", place, error.message)
    elif error.validator == "required":
        name = error.message.split("'")[1]
        yield Problem("missing", f"{place}.{name}", f"{name} is required")
    elif error.schema == _NOTHING:
        yield Problem("read-only", place, "this field can't be set")
    else:
        yield Problem("type" if error.validator == "type" else "value", place, error.message)
