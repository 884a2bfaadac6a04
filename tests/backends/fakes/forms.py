"""The forms that providers publish their APIs in, and each read into one: the data of a fake (`schema.Api`).

Of a schema, only the keywords that decide what is valid are read: prose goes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

Document = Mapping[str, Any]
Schema = dict[str, Any]
KEYWORDS = {
    *("$ref", "type", "enum", "const", "format", "pattern", "default", "readOnly", "writeOnly", "required"),
    *("minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
METHODS = ("get", "put", "post", "delete", "patch")


class Unreadable(Exception):
    """A document in no form that is known here."""


def read(document: Document, operations: Iterable[str], source: str, also: Iterable[str] = ()) -> dict[str, Any]:
    """These operations of a published document, with the schemas that they need. `also`: schemas that no operation
    names, such as what an error has in it."""
    for fits, form in FORMS:
        if fits(document):
            found, schemas = form(document)
            break
    else:
        raise Unreadable("neither OpenAPI, nor Swagger 2.0, nor a discovery document, nor descriptors of protobuf")
    if missing := sorted(set(operations) - found.keys()):
        raise Unreadable(f"it has no {', '.join(missing)}: it has {', '.join(sorted(found))}")
    chosen = {name: found[name] for name in operations}
    return {"source": source, "operations": chosen, "schemas": _needed(chosen, schemas, also)}


# --- OpenAPI 3 and Swagger 2.0 ---------------------------------------------------------------------------------------


def _openapi(document: Document) -> tuple[dict[str, Any], dict[str, Schema]]:
    base = urlsplit(document.get("servers", [{}])[0].get("url", "")).path
    schemas = document.get("components", {}).get("schemas", {})
    return _paths(document, base.rstrip("/")), {name: schema(each) for name, each in schemas.items()}


def _swagger(document: Document) -> tuple[dict[str, Any], dict[str, Schema]]:
    base = document.get("basePath", "").rstrip("/")
    return _paths(document, base), {name: schema(each) for name, each in document.get("definitions", {}).items()}


def _paths(document: Document, base: str) -> dict[str, Any]:
    found = {}
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                shared = item.get("parameters", [])
                name = item[method].get("operationId", f"{method} {path}")
                found[name] = _one(document, method, base + path, {**item[method], "shared": shared})
    return found


def _one(document: Document, method: str, path: str, given: Document) -> dict[str, Any]:
    parameters = [_follow(document, each) for each in (*given["shared"], *given.get("parameters", ()))]
    body = next((each for each in parameters if each["in"] == "body"), _follow(document, given.get("requestBody", {})))
    version = given.get("x-api-version")  # as our condensed documents of Azure have it
    fixed = [{"name": "api-version", "in": "query", "required": True, "schema": {"enum": [version]}}] if version else []
    answers = {code: each for code, each in given.get("responses", {}).items() if not code.startswith("x-")}
    responses = {code: _content(_follow(document, each)) for code, each in answers.items()}
    return {
        "method": method.upper(),
        "path": path,
        "parameters": [*fixed, *(_parameter(each) for each in parameters if each["in"] in ("path", "query", "header"))],
        **({"body": _content(body), "body_required": bool(body.get("required"))} if body else {}),
        "responses": {code: each for code, each in responses.items() if each is not None},
    }


def _follow(document: Document, given: Document) -> Document:
    """A parameter, body or response that is defined elsewhere in the document."""
    while reference := given.get("$ref"):
        found: Any = document
        for part in reference.removeprefix("#/").split("/"):
            found = found[part.replace("~1", "/").replace("~0", "~")]
        given = found
    return given


def _content(given: Document) -> Schema | None:
    """What a body holds: by media type, or as a schema of its own (Swagger)."""
    media = given.get("content", given)
    found = given if "schema" in given else next((each for name, each in media.items() if "json" in name), None)
    read: Schema | None = None if found is None else schema(found.get("schema", found))
    return read


def _parameter(given: Document) -> dict[str, Any]:
    own = given.get("schema", {key: value for key, value in given.items() if key != "required"})
    return {
        "name": given["name"],
        "in": given["in"],
        **({"required": True} if given.get("required") else {}),
        "schema": schema(own),
    }


# --- Google's discovery documents ------------------------------------------------------------------------------------


def _discovery(document: Document) -> tuple[dict[str, Any], dict[str, Schema]]:
    base = "/" + document.get("servicePath", "")
    shared = document.get("parameters", {})
    found = {}
    for name, method in document.get("x-methods", dict(_methods(document))).items():
        parameters = {
            **{each: {**given, "location": "query"} for each, given in shared.items()},
            **method["parameters"],
        }
        found[name] = {
            "method": method["httpMethod"],
            "path": base + method["path"],
            "parameters": [
                _parameter({**given, "name": each, "in": given["location"]}) for each, given in parameters.items()
            ],
            **({"body": schema(method["request"]), "body_required": True} if "request" in method else {}),
            "responses": {"200": schema(method["response"])} if "response" in method else {},
        }
    return found, {name: schema(each) for name, each in document["schemas"].items()}


def _methods(node: Document, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, method in node.get("methods", {}).items():
        yield prefix + name, {"parameters": {}, **method}
    for name, resource in node.get("resources", {}).items():
        yield from _methods(resource, f"{prefix}{name}.")


# --- descriptors of protobuf -----------------------------------------------------------------------------------------

_TEXT: Schema = {"type": "string"}
_SCALARS: Mapping[str, Schema] = {
    "string": _TEXT,
    "bytes": _TEXT,
    "bool": {"type": "boolean"},
    **{name: {"type": "number"} for name in ("double", "float")},
    **{name: {"type": "integer"} for name in ("int32", "uint32", "sint32", "fixed32", "sfixed32")},
    **{
        name: {"type": "string", "pattern": r"^-?\d+$"} for name in ("int64", "uint64", "sint64", "fixed64", "sfixed64")
    },
    "google.protobuf.Timestamp": _TEXT,
    "google.protobuf.Duration": _TEXT,
    "google.protobuf.Any": {"type": "object", "additionalProperties": True},
}
_STATUS = {"code": (1, "int32"), "message": (2, "string"), "details": (3, "google.protobuf.Any")}


def _protobuf(document: Document) -> tuple[dict[str, Any], dict[str, Schema]]:
    """Services and messages, as protobuf writes them in JSON with the names of the descriptors. What the wire needs
    besides is in `x-field` and `x-numbers`."""
    schemas: dict[str, Schema] = {
        name: {**_TEXT, "enum": list(values), "x-numbers": values} for name, values in document["enums"].items()
    }
    status = {each: {"n": n, "type": kind, "repeated": each == "details"} for each, (n, kind) in _STATUS.items()}
    for name, message in {"google.rpc.Status": {"fields": status}, **document["messages"]}.items():
        fields = message.get("fields", {})
        schemas[name] = {
            "type": "object",
            "properties": {each: _field(field) for each, field in fields.items()},
            "required": [each for each, field in fields.items() if field.get("validate.field", {}).get("required")],
        }
    found = {
        f"{service}.{name}": {
            "method": "GRPC",
            "path": f"/{service}/{name}",
            "body": _named(method["in"]),
            "body_required": True,
            "responses": {"200": _named(method["out"])},
        }
        for service, given in document["services"].items()
        for name, method in given["methods"].items()
    }
    return found, schemas


def _field(field: Document) -> Schema:
    pair = re.fullmatch(r"map<(\w+),(.+)>", field["type"])
    rules = field.get("validate.field", {})
    if pair:
        found: Schema = {"type": "object", "additionalProperties": _named(pair[2])}
    elif field.get("repeated"):
        found = {"type": "array", "items": _named(field["type"])}
        found |= _bounds(rules.get("repeated", {}), min_items="minItems", max_items="maxItems")
    else:
        bounds = _bounds(rules.get("string", {}), min_len="minLength", max_len="maxLength", pattern="pattern")
        found = {**_named(field["type"]), **bounds}
    wire = {"x-field": [field["n"], field["type"], bool(field.get("repeated"))]}
    hidden = {"readOnly": True} if "OUTPUT_ONLY" in field.get("field_behavior", ()) else {}
    fixed = {"x-immutable": True} if "IMMUTABLE" in field.get("field_behavior", ()) else {}
    one = {"x-oneof": field["oneof"]} if "oneof" in field else {}
    ids = {"x-ids": field["nid"]["resource"]} if "resource" in field.get("nid", {}) else {}
    return {**found, **hidden, **fixed, **one, **ids, **wire}


def _bounds(rules: Document, **names: str) -> Schema:
    known = {key: rules[rule_name] for rule_name, key in names.items() if rule_name in rules}
    return {key: rule if key == "pattern" else int(rule) for key, rule in known.items()}


def _named(name: str) -> Schema:
    return dict(_SCALARS[name]) if name in _SCALARS else {"$ref": f"#/schemas/{name}"}


FORMS: tuple[tuple[Callable[[Document], bool], Callable[[Document], tuple[dict[str, Any], dict[str, Schema]]]], ...] = (
    (lambda document: "openapi" in document, _openapi),
    (lambda document: document.get("swagger") == "2.0", _swagger),
    (lambda document: "services" in document and "messages" in document, _protobuf),
    (lambda document: "schemas" in document, _discovery),
)

# --- schemas ---------------------------------------------------------------------------------------------------------


def schema(given: Any) -> Any:  # a schema may be true or false
    """A schema in the keywords of JSON Schema, from which each form departs somewhere."""
    if not isinstance(given, Mapping):
        return given
    out: Schema = {key: value for key, value in given.items() if key in KEYWORDS}
    for key in ("allOf", "anyOf", "oneOf"):
        if key in given:
            out[key] = [schema(each) for each in given[key]]
    for key in ("items", "additionalProperties", "not"):
        if key in given:
            out[key] = schema(given[key])
    if "properties" in given:
        out["properties"] = {name: schema(each) for name, each in given["properties"].items()}
    if "$ref" in out:
        out["$ref"] = f"#/schemas/{out['$ref'].rpartition('/')[2]}"
    if not isinstance(out.get("required", []), list):
        del out["required"]  # of a discovery document's property
    if out.get("type") == "any":
        del out["type"]
    if given.get("nullable") or given.get("x-nullable"):
        out = _or_null(out)
    return _numbers(out)


def _or_null(given: Schema) -> Schema:
    if "type" in given:
        values = {"enum": [*given["enum"], None]} if "enum" in given else {}
        return {**given, "type": [given["type"], "null"], **values}
    return {"anyOf": [given, {"type": "null"}]}


def _numbers(given: Schema) -> Schema:
    """Numbers that are written as text, and those that can't be negative."""
    out: Schema = {key: float(value) if key in ("minimum", "maximum") else value for key, value in given.items()}
    numeric = re.fullmatch(r"(u?)int(32|64)", out.get("format", ""))
    if numeric and out.get("type") == "string":
        out.setdefault("pattern", r"^\d+$" if numeric[1] else r"^-?\d+$")
    elif numeric and numeric[1]:
        out.setdefault("minimum", 0)
    return out


def _needed(operations: Mapping[str, Any], schemas: Mapping[str, Schema], also: Iterable[str]) -> dict[str, Schema]:
    """The named schemas that these operations refer to, and those that they refer to."""
    found: dict[str, Schema] = {}
    waiting = [*also, *(name for each in operations.values() for name in _names(each))]
    while waiting:
        name = waiting.pop()
        if name not in schemas:
            raise Unreadable(f"it has no schema {name}")
        if name not in found:
            found[name] = schemas[name]
            waiting += _names(schemas[name])
    return dict(sorted(found.items()))


def _names(node: Any) -> list[str]:
    if isinstance(node, Mapping):
        own = [node["$ref"].rpartition("/")[2]] if isinstance(node.get("$ref"), str) else []
        return own + [name for each in node.values() for name in _names(each)]
    return [name for each in node for name in _names(each)] if isinstance(node, list) else []
