"""The kinds that the server has, and what an object of each may hold: read from a real server's OpenAPI document."""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.backends.kubernetes.fake import quantities

DOCUMENT: Mapping[str, Any] = json.loads(Path(__file__).with_name("kubernetes.json").read_text(encoding="utf-8"))
SCHEMAS: Mapping[str, Any] = DOCUMENT["components"]["schemas"]
ENUMS: Mapping[str, Any] = DOCUMENT["x-hand-enums"]
SHORT = {
    "pods": ["po"],
    "services": ["svc"],
    "nodes": ["no"],
    "namespaces": ["ns"],
    "events": ["ev"],
    "configmaps": ["cm"],
    "persistentvolumeclaims": ["pvc"],
    "persistentvolumes": ["pv"],
    "resourcequotas": ["quota"],
    "serviceaccounts": ["sa"],
    "deployments": ["deploy"],
    "statefulsets": ["sts"],
    "priorityclasses": ["pc"],
    "storageclasses": ["sc"],
    "limitranges": ["limits"],
}
# Kinds whose controllers aren't here: nothing would ever become of such an object.
WITHOUT = {"deployments", "selfsubjectrulesreviews"}
Object = dict[str, Any]


@dataclass(frozen=True)
class Resource:
    group: str
    version: str
    plural: str
    kind: str
    schema: str
    namespaced: bool
    verbs: frozenset[str] = field(hash=False, default=frozenset())
    parts: Mapping[str, frozenset[str]] = field(hash=False, default_factory=dict)  # subresources

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


class Undecodable(Exception):
    """The value isn't of the field's type."""


_METHODS = {"get": "get", "list": "list", "post": "create", "put": "update", "patch": "patch", "delete": "delete"}


@cache
def resources() -> Mapping[str, Resource]:
    """By plural: those of the document are unlike."""
    found: dict[str, dict[str, Any]] = {}
    for path, methods in DOCUMENT["paths"].items():
        match = re.fullmatch(
            r"/api(?:s/([^/]+))?/([^/]+)(/namespaces/{namespace})?/([^/]+)(?:/{name}(?:/([^/]+))?)?", path
        )
        if match is None or match[4] in ("watch", *WITHOUT):
            continue
        group, version, scope, plural, part = match.groups()
        entry = found.setdefault(plural, {"verbs": set(), "parts": {}, "namespaced": False})
        entry |= {"group": group or "", "version": version}
        entry["namespaced"] |= bool(scope)
        for method, operation in methods.items():
            action = operation.get("action") if isinstance(operation, dict) else None
            if action is None:
                continue
            verb = _METHODS.get(action, action)
            if part:
                entry["parts"].setdefault(part, set()).add(
                    "create" if action == "connect" and method == "post" else verb if action != "connect" else "get"
                )
            else:
                entry["verbs"] |= {verb} | ({"watch"} if verb == "list" else set())
                entry["kind"] = operation["kind"]
                if operation.get("body", "").endswith("." + operation["kind"]):
                    entry["schema"] = operation["body"]
    return {
        plural: Resource(
            each["group"],
            each["version"],
            plural,
            each["kind"],
            each["schema"],
            each["namespaced"],
            frozenset(each["verbs"]),
            {part: frozenset(verbs) for part, verbs in each["parts"].items()},
        )
        for plural, each in found.items()
    }


@cache
def of_kind(kind: str) -> Resource:
    return next(each for each in resources().values() if each.kind == kind)


# --- reading an object -----------------------------------------------------------------------------------------------


@dataclass
class Reading:
    """What was found in an object besides its values."""

    unknown: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unsupported: list[tuple[str, Any, list[str]]] = field(default_factory=list)


def decoded(name: str, value: Any, reading: Reading) -> Any:
    """The object as the server keeps it: without nulls and unknown fields, with what the schema sets if it is absent.
    Raises Undecodable."""
    return _decoded({"$ref": "/" + name}, value, "", "", reading)


def named(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = SCHEMAS[named(schema)] if "$ref" in schema else schema
    return found


def _decoded(schema: Mapping[str, Any], value: Any, path: str, enum: str, reading: Reading) -> Any:
    name, schema = named(schema), resolved(schema)
    if name == "api.resource.Quantity":
        return _quantity(value, path)
    kind = schema.get("type")
    if kind == "object":
        return _object(name, schema, value, path, reading)
    if kind == "array":
        if not isinstance(value, list):
            raise Undecodable(f"{path}: expected an array, got {_type(value)}")
        items = schema["items"]
        return [_decoded(items, each, f"{path}[{at}]", f"{enum}[]", reading) for at, each in enumerate(value)]
    _scalar(schema, kind, value, path)
    allowed = ENUMS.get(enum)
    if allowed and value not in allowed and not (enum.endswith("medium") and str(value).startswith("HugePages-")):
        reading.unsupported.append((path, value, allowed))
    return value


def _object(name: str, schema: Mapping[str, Any], value: Any, path: str, reading: Reading) -> Any:
    if not isinstance(value, dict):
        raise Undecodable(f"{path or name}: expected an object, got {_type(value)}")
    inside = f"{path}." if path else ""
    if "properties" not in schema:
        values = schema.get("additionalProperties")
        if values is None:
            return value
        return {
            key: _decoded(values, each, f"{inside}{key}", "", reading)
            for key, each in value.items()
            if each is not None
        }
    known, out = schema["properties"], {}
    for key, each in value.items():
        if key not in known:
            reading.unknown.append(f"{inside}{key}")
        elif each is not None:
            out[key] = _decoded(known[key], each, f"{inside}{key}", f"{name}.{key}", reading)
    for key, each in known.items():
        default = each.get("default")
        if key not in out and default not in (None, "", 0, False, {}) and isinstance(default, str | int):
            out[key] = default
    for key in schema.get("required", ()):
        if key not in out and path.startswith("status"):
            out[key] = resolved(known[key]).get("default", "")
        elif key not in out:
            reading.missing.append(f"{inside}{key}")
    return out


def _scalar(schema: Mapping[str, Any], kind: Any, value: Any, path: str) -> None:
    form = schema.get("format")
    if form == "int-or-string":
        fits = isinstance(value, int | str) and not isinstance(value, bool)
    elif kind == "integer":
        bits = 32 if form == "int32" else 64
        fits = isinstance(value, int) and not isinstance(value, bool) and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)
    elif kind == "boolean":
        fits = isinstance(value, bool)
    else:
        fits = isinstance(value, str) and _text_fits(form, value)
    if not fits:
        raise Undecodable(f"{path}: cannot unmarshal {_type(value)} into a field of type {form or kind}")


def _text_fits(form: Any, value: str) -> bool:
    try:
        if form == "byte":
            base64.b64decode(value, validate=True)
        elif form == "date-time":
            datetime.datetime.fromisoformat(value)
    except (ValueError, binascii.Error):
        return False
    return True


def _quantity(value: Any, path: str) -> str:
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        return quantities.canonical(str(value))
    except ValueError:
        raise Undecodable(f"{path}: quantities must match the regular expression '{quantities.PATTERN}'") from None


def _type(value: Any) -> str:
    names = ((bool, "bool"), (str, "string"), (dict, "object"), (list, "array"), (int | float, "number"))
    return next((name for kind, name in names if isinstance(value, kind)), "null")


def fields(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from resolved(schema).get("properties", {}).items()
