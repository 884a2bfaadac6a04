"""The OpenAPI document: paths of the route table, types that handlers declare, examples from recorded answers."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter

from chalicelib import api, contract
from chalicelib.api.dispatch import is_v1
from chalicelib.api.route import Access, Route
from chalicelib.api.routes import BUILT
from chalicelib.api.routes.v1 import SETTLING
from chalicelib.api.v1.configurations import YAML, Written
from chalicelib.api.v1.preferences import BILLED, HELD
from chalicelib.api.v1.problems import MEDIA, kinds
from chalicelib.domain.keyed_requests import LONGEST_KEY
from docs.openapi.declared import JSON, NOTHING, Declared, Schemas, close_types, declared
from docs.openapi.examples import RECORDED

DOCUMENT = Path(api.__file__).parent / "openapi.json"

Schema = dict[str, Any]
Row = tuple[Route, Declared]

ABOUT = """\
The API of the control plane: the protocol of the `dstack` 0.22 clients, and what this control plane adds to it.

A call has a token: `Authorization: Bearer <token>`. A body that is left out is `{}`, and keys of a body that the server
doesn't know are ignored. Keys may be added to answers: ignore what you don't know.

Under `/api/v1` are resources for programs. They refuse unknown keys and parameters, and their errors are problems as in
RFC 9457. Every write takes `dry_run` and an `Idempotency-Key`.
"""
CALLERS: Mapping[Access, str] = {
    Access.public: "Needs no token.",
    Access.user: "For any active user.",
    Access.admin: "For global admins.",
    Access.visitor: "For members of the project, and for any active user if it is public.",
    Access.member: "For members of the project.",
    Access.manager: "For managers and admins of the project.",
    Access.project_admin: "For admins of the project.",
    Access.keeper: "For admins of the project, and for its managers if the installation lets them manage secrets.",
}
SECURITY = {"token": {"type": "http", "scheme": "bearer", "description": "A user's token."}}
ERRORS: Mapping[str, tuple[str, str, Any]] = {
    "400": ("Refused", "`msg` says what is wrong and how to fix it.", contract.Failure),
    "403": ("Denied", "The token is missing or wrong, or its user may not do this.", contract.Denied),
    "404": ("NoProject", "There is no such project. Only global admins learn that.", contract.Denied),
    "500": ("Failed", "The control plane failed. Its log has the cause, under the id in `msg`.", contract.Failure),
    "503": ("Busy", "The server is busy, or isn't deployed completely. Try again in a moment.", contract.Failure),
}
NO_FILE = "NoFile"  # a 404, too
ONCE = "/api/project/{project_name}/runs/apply"
TEXT = {"type": "string"}
HEADERS: Mapping[str, Schema] = {
    "IdempotencyKey": {
        "name": "Idempotency-Key",
        "description": "The same request with the same key takes effect once, for 24 hours.",
        "schema": {**TEXT, "minLength": 1, "maxLength": LONGEST_KEY},
    },
    "IfNoneMatch": {
        "name": "If-None-Match",
        "description": "The `ETag` of what the caller has: if it is still so, the answer is 304.",
        "schema": TEXT,
    },
    "IfMatch": {"name": "If-Match", "description": "Only if the spec has this `ETag`.", "schema": TEXT},
    "IfNew": {
        "name": "If-None-Match",
        "description": "`*`: only if there is none.",
        "schema": {**TEXT, "const": "*"},
    },
    "Prefer": {
        "name": "Prefer",
        "description": f"`wait=…`: the seconds to wait until the resource is settled, {HELD} at most; in AWS {BILLED}.",
        "schema": TEXT,
    },
}
PROBLEM, PROBLEMS = "Problem", "What is wrong, where, and how to mend it. `code` stays the same across versions."


class Types:
    """The schemas of all types, and those of the parts of operations."""

    def __init__(self, parts: Mapping[Any, Any]) -> None:
        inputs: Any = [(key, "validation", TypeAdapter(kind)) for key, kind in parts.items()]
        own, named = TypeAdapter.json_schemas(
            inputs, ref_template="#/components/schemas/{model}", schema_generator=Schemas
        )
        self._own = {key: as_published(schema) for (key, _), schema in own.items()}
        self.named: Schema = {name: as_published(schema) for name, schema in sorted(named.get("$defs", {}).items())}

    def of(self, key: Any) -> Schema:
        found: Schema = self._own[key]
        return found

    def keys_of(self, key: Any) -> tuple[Schema, list[str]]:
        """The keys of an object's type, and those that it must have."""
        schema = self.of(key)
        schema = self.named[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        return schema.get("properties", {}), schema.get("required", [])


def as_published(schema: Any) -> Any:
    """The schema as it is published: who reads an answer ignores keys that aren't in it."""
    if isinstance(schema, list):
        return [as_published(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    typed = "properties" in schema
    return {key: as_published(value) for key, value in schema.items() if not (typed and key == "additionalProperties")}


def document() -> Schema:
    close_types(described=True)
    rows = [(route, found) for route in BUILT if (found := declared(route)) is not None]
    types = Types(dict(_parts(rows)))
    examples = orjson.loads(RECORDED.read_bytes())
    paths: Schema = {}
    for route, found in rows:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, found, types, examples)
    tags = sorted({_tag(found) for _, found in rows})
    return {
        "openapi": "3.1.0",
        "info": {"title": "dstack-serverless", "version": "1", "description": ABOUT},
        "servers": [{"url": "."}],
        "tags": [{"name": tag, "description": _about(tag)} for tag in tags],
        "paths": paths,
        "components": {
            "schemas": types.named,
            "responses": {
                **{name: _response(text, types.of(status)) for status, (name, text, _) in ERRORS.items()},
                NO_FILE: _response("There is no such file.", types.of("404")),
                "Unchanged": {"description": "The caller has it already."},
                PROBLEM: {"description": PROBLEMS, "content": {MEDIA: {"schema": types.of(PROBLEM)}}},
            },
            "parameters": {name: {"in": "header", **shown} for name, shown in HEADERS.items()},
            "securitySchemes": SECURITY,
        },
        "x-problems": {kind.code: {"status": int(kind.status), "title": kind.title} for kind in kinds()},
    }


def _parts(rows: list[Row]) -> Iterator[tuple[Any, Any]]:
    yield PROBLEM, contract.V1Problem
    yield from ((status, kind) for status, (*_, kind) in ERRORS.items())
    for _, found in rows:
        if found.media == JSON:
            yield (found.name, "answer"), found.answer
        if found.body is not None:
            yield (found.name, "body"), found.body
        if found.dry_run is not None:
            yield (found.name, "dry_run"), found.dry_run
        if found.query is not None:
            yield (found.name, "query"), found.query


def _id_of(route: Route, found: Declared) -> str:
    """Each is one path's alone: generated clients are made of them. Files in folders have a path for each depth."""
    depth = route.path.count("/{") if found.name == "console.file" else 1
    return found.name.replace(".", "_") + (f"_{depth}" if depth > 1 else "")


def _operation(route: Route, found: Declared, types: Types, examples: Mapping[str, Schema]) -> Schema:
    example = examples.get(found.name, {})
    parameters, body = [*_parameters(route, found, types), *_headers(route, found)], _body(found, types, example)
    return {
        "operationId": _id_of(route, found),
        "tags": [_tag(found)],
        "summary": found.text.partition(".")[0] if is_v1(route.path) or route.path == "/" else _summary(route),
        "description": "\n\n".join(filter(None, (found.text, CALLERS[route.access]))),
        **({"parameters": parameters} if parameters else {}),
        **({"requestBody": body} if body else {}),
        "responses": {**_dry_run(found, types), **_answer(found, types, example), **_errors(route, found)},
        "security": [] if route.access is Access.public else [{"token": []}],
    }


def _tag(found: Declared) -> str:
    """The module of the handler: `runs`, and `v1/runs` for the resource."""
    return found.name.rpartition(".")[0].replace("_", "-").replace(".", "/")


def _about(tag: str) -> str:
    module = import_module(f"chalicelib.api.routes.{tag.replace('-', '_').replace('/', '.')}")
    return (inspect.getdoc(module) or "").partition("\n\n")[0].replace("\n", " ")


def _summary(route: Route) -> str:
    """The end of its path in words: `runs: get plan`."""
    *_, noun, verb = ["", *(part for part in route.path.split("/") if not part.startswith("{"))]
    return f"{noun}: {verb}".removeprefix(": ").replace("_", " ")


def _parameters(route: Route, found: Declared, types: Types) -> Iterator[Schema]:
    for part in route.path.split("/"):
        if part.startswith("{"):
            yield {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
    if found.query is not None:
        keys, needed = types.keys_of((found.name, "query"))
        for name, schema in keys.items():
            yield {"name": name, "in": "query", "required": name in needed, "schema": schema}


def _headers(route: Route, found: Declared) -> Iterator[Schema]:
    """Those of resources, and of what the protocol has that is done once."""
    if route.path == ONCE:
        yield {"$ref": "#/components/parameters/IdempotencyKey"}
    if is_v1(route.path):
        names = ["IfNoneMatch"] if route.method == "GET" else ["IdempotencyKey"]
        names += ["Prefer"] if found.name in SETTLING else []
        names += ["IfMatch", "IfNew"] if route.method == "PUT" and route.path.endswith("/spec") else []
        yield from ({"$ref": f"#/components/parameters/{name}"} for name in names)


def _body(found: Declared, types: Types, example: Schema) -> Schema:
    if found.uploads:
        file = {"type": "string", "contentMediaType": "application/octet-stream"}
        form = {"type": "object", "properties": {"file": file}, "required": ["file"]}
        return {"required": True, "content": {"multipart/form-data": {"schema": form}}}
    if found.body is None:
        return {}
    content = {"schema": types.of((found.name, "body")), **_example(example, "body")}
    kinds = {JSON: content, **({YAML: {"schema": content["schema"]}} if found.body is Written else {})}
    return {"required": bool(types.keys_of((found.name, "body"))[1]), "content": kinds}


def _answer(found: Declared, types: Types, example: Schema) -> Schema:
    if found.answer is contract.OpenedStream:
        return {"101": {"description": "The connection is one end of the stream."}}
    status, phrase = str(int(found.status)), HTTPStatus(found.status).phrase
    if found.media == NOTHING:
        return {status: {"description": phrase}}
    if found.media != JSON:
        schema: Schema = {"type": "object"} if found.media.partition(";")[0].endswith("+json") else TEXT
        return {status: {"description": phrase, "content": {found.media: {"schema": schema}}}}
    schema = types.of((found.name, "answer"))
    made = {"201": _response(HTTPStatus.CREATED.phrase, schema, example)} if found.creates else {}
    if found.dry_run is not None and found.status == HTTPStatus.OK:
        schema = {"anyOf": [schema, types.of((found.name, "dry_run"))]}
    return {status: _response(phrase, schema, example), **made}


def _dry_run(found: Declared, types: Types) -> Schema:
    if found.dry_run is None or found.status == HTTPStatus.OK:
        return {}
    return {"200": _response("With `dry_run`", types.of((found.name, "dry_run")))}


def _response(text: str, schema: Schema, example: Schema | None = None) -> Schema:
    return {"description": text, "content": {JSON: {"schema": schema, **_example(example or {}, "answer")}}}


def _example(example: Schema, part: str) -> Schema:
    return {"example": example[part]} if part in example else {}


def _errors(route: Route, found: Declared) -> Schema:
    if is_v1(route.path):
        unchanged = {"304": {"$ref": "#/components/responses/Unchanged"}} if route.method == "GET" else {}
        return {**unchanged, "default": {"$ref": f"#/components/responses/{PROBLEM}"}}
    listed = set(ERRORS) if "{project_name}" in route.path else set(ERRORS) - {"404"}
    errors = {status: {"$ref": f"#/components/responses/{ERRORS[status][0]}"} for status in sorted(listed)}
    return {**errors, "404": {"$ref": f"#/components/responses/{NO_FILE}"}} if found.lacks else errors


def text() -> str:
    """The document as it is served: compact, with a line for each operation and each type, so that changes can be
    read."""
    return "".join(_lines(document(), depth=3)) + "\n"


def _lines(value: Any, depth: int) -> Iterator[str]:
    if depth and isinstance(value, dict):
        for number, (key, item) in enumerate(value.items()):
            yield f"{',' if number else '{'}\n{json.dumps(key)}: "
            yield from _lines(item, depth - 1)
        yield "}" if value else "{}"
    else:
        yield json.dumps(value, ensure_ascii=False, separators=(",", ":"))
