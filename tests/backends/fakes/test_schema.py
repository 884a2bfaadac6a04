"""Each form that APIs are published in becomes the same data, which finds what is wrong in a request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.backends.crusoe.fake import Crusoe
from tests.backends.fakes import extract, forms
from tests.backends.fakes.schema import Api, values_of

MACHINE = {
    "type": "object",
    "description": "A machine.",
    "required": ["id", "type"],
    "properties": {
        "id": {"type": "string", "readOnly": True},
        "type": {"type": "string", "enum": ["small", "large"]},
        "description": {"type": "string", "description": "What people call it."},
        "disks": {"type": "array", "items": {"$ref": "#/components/schemas/Disk"}},
    },
}
DISK = {"type": "object", "required": ["gib"], "properties": {"gib": {"type": "integer"}, "key": {"writeOnly": True}}}
OPENAPI = {
    "openapi": "3.0.3",
    "servers": [{"url": "https://api.example/v1"}],
    "paths": {
        "/zones/{zone}/machines": {
            "parameters": [{"$ref": "#/components/parameters/zone"}],
            "post": {
                "operationId": "create",
                "parameters": [{"name": "wait", "in": "query", "schema": {"type": "boolean"}}],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Machine"}}},
                },
                "responses": {
                    "200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Machine"}}}},
                    "204": {"description": "Nothing."},
                },
            },
        },
        "/zones/{zone}": {"get": {"operationId": "zone", "responses": {}}},
    },
    "components": {
        "parameters": {"zone": {"name": "zone", "in": "path", "required": True, "schema": {"type": "string"}}},
        "schemas": {"Machine": MACHINE, "Disk": DISK, "Unused": {"type": "object"}},
    },
}
CREATE = OPENAPI["paths"]["/zones/{zone}/machines"]  # type: ignore[index]
# The condensed form: media types without `content` and `schema`.
CONDENSED = {
    **OPENAPI,
    "paths": {
        "/zones/{zone}/machines": {
            **CREATE,
            "post": {
                **CREATE["post"],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"$ref": "#/components/schemas/Machine"}},
                },
                "responses": {"200": {"application/json": {"$ref": "#/components/schemas/Machine"}}},
            },
        }
    },
}
SWAGGER = {
    "swagger": "2.0",
    "basePath": "/v1",
    "definitions": json.loads(
        json.dumps({"Machine": MACHINE, "Disk": DISK}).replace("components/schemas", "definitions")
    ),
    "paths": {
        "/zones/{zone}/machines": {
            "post": {
                "operationId": "create",
                "parameters": [
                    {"name": "zone", "in": "path", "required": True, "type": "string"},
                    {"name": "wait", "in": "query", "type": "boolean"},
                    {"name": "machine", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Machine"}},
                ],
                "responses": {"200": {"schema": {"$ref": "#/definitions/Machine"}}},
            }
        }
    },
}
DISCOVERY = {
    "servicePath": "v1/",
    "resources": {
        "machines": {
            "methods": {
                "create": {
                    "path": "zones/{zone}/machines",
                    "httpMethod": "POST",
                    "parameters": {
                        "zone": {"location": "path", "required": True, "type": "string"},
                        "wait": {"location": "query", "type": "boolean"},
                    },
                    "request": {"$ref": "Machine"},
                    "response": {"$ref": "Machine"},
                }
            }
        }
    },
    "schemas": json.loads(json.dumps({"Machine": MACHINE, "Disk": DISK}).replace("#/components/schemas/", "")),
}
EVERY_FORM = {
    "openapi": (OPENAPI, "create"),
    "condensed": (CONDENSED, "create"),
    "swagger": (SWAGGER, "create"),
    "discovery": (DISCOVERY, "machines.create"),
}


def api(document: Any, *operations: str) -> Api:
    return Api(forms.read(document, operations, "a test"))


def problems(found: Api, name: str, body: Any, **query: Any) -> list[tuple[str, str]]:
    broken = found.request_problems(found.operations[name], {"zone": "a"}, query, body)
    return [(each.kind, each.where) for each in broken]


@pytest.mark.parametrize("form", EVERY_FORM)
def test_every_form_says_the_same(form: str) -> None:
    document, name = EVERY_FORM[form]
    data = forms.read(document, [name], "a test")
    expected = forms.read(OPENAPI, ["create"], "a test")
    assert data["operations"][name] == expected["operations"]["create"] and data["schemas"] == expected["schemas"]
    assert sorted(data["schemas"]) == ["Disk", "Machine"] and "A machine" not in json.dumps(data)
    assert data["schemas"]["Machine"]["properties"]["description"] == {"type": "string"}, "a field of that name stays"


def test_what_breaks_a_request() -> None:
    found = api(OPENAPI, "create")
    assert problems(found, "create", {"type": "small", "disks": [{"gib": 1, "key": "k"}]}, wait=True) == []
    wrong = {"id": "i", "type": "huge", "colour": "red", "disks": [{"gib": "1", "fast": True}]}
    assert sorted(problems(found, "create", wrong, wait="soon", page=1)) == [
        ("read-only", "body.id"),
        ("type", "body.disks.0.gib"),
        ("type", "query.wait"),
        ("unknown", "body.colour"),
        ("unknown", "body.disks.0.fast"),
        ("unknown", "query.page"),
        ("value", "body.type"),
    ]
    assert problems(found, "create", {"disks": [{}]}) == [("missing", "body.type"), ("missing", "body.disks.0.gib")]
    assert problems(found, "create", None) == [("missing", "body")]
    assert [each.where for each in found.request_problems(found.operations["create"], {}, {}, {"type": "small"})] == [
        "path.zone"
    ]


def test_what_breaks_an_answer() -> None:
    found = api(OPENAPI, "create")
    create = found.operations["create"]
    assert list(found.answer_problems(create, 200, {"id": "i", "type": "small"})) == []
    secret = {"id": "i", "type": "small", "disks": [{"gib": 1, "key": "k"}]}
    assert [each.where for each in found.answer_problems(create, 200, secret)] == ["answer.disks.0.key"]
    assert [each.kind for each in found.answer_problems(create, 200, {"type": "small"})] == ["missing"]
    assert [each.kind for each in found.answer_problems(create, 201, {})] == ["unknown"]
    assert list(found.answer_problems(create, 503, {"whatever": 1})) == []


def test_routes_prefer_what_is_written_out() -> None:
    document: Any = {
        "openapi": "3.1.0",
        "paths": {
            f"/{path}": {"get": {"operationId": name}}
            for path, name in (("disks/{id}", "one"), ("disks/operations", "all"), ("{+name}:stop", "stop"))
        },
    }
    found = api(document, "one", "all", "stop")
    routes = {path: found.route("GET", path) for path in ("/disks/7", "/disks/operations", "/a/b:stop", "/disks/7/x")}
    assert {path: each and (each[0].name, each[1]) for path, each in routes.items()} == {
        "/disks/7": ("one", {"id": "7"}),
        "/disks/operations": ("all", {}),
        "/a/b:stop": ("stop", {"name": "a/b"}),
        "/disks/7/x": None,
    }
    assert found.route("POST", "/disks/7") is None
    one, path = found.route("GET", "/disks/7") or pytest.fail("no route")
    assert list(found.request_problems(one, path, {}, None)) == [], "a template may name what no parameter describes"


def test_a_whole_is_closed_and_not_its_parts() -> None:
    named = {"Named": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}
    body = {"allOf": [{"$ref": "#/components/schemas/Named"}, {"properties": {"size": {"type": "integer"}}}]}
    media = {"application/json": {"schema": body}}
    post = {"operationId": "create", "requestBody": {"content": media}, "responses": {}}
    found = api({"openapi": "3.1.0", "paths": {"/": {"post": post}}, "components": {"schemas": named}}, "create")
    create = found.operations["create"]
    assert list(found.request_problems(create, {}, {}, {"name": "a", "size": 1})) == []
    assert [each.kind for each in found.request_problems(create, {}, {}, {"name": "a", "colour": 1})] == ["unknown"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": "string", "nullable": True, "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"$ref": "#/definitions/A", "x-nullable": True}, {"anyOf": [{"$ref": "#/schemas/A"}, {"type": "null"}]}),
        ({"type": "string", "format": "uint64"}, {"type": "string", "format": "uint64", "pattern": r"^\d+$"}),
        ({"type": "integer", "format": "uint32"}, {"type": "integer", "format": "uint32", "minimum": 0}),
        ({"type": "integer", "minimum": "1", "required": True}, {"type": "integer", "minimum": 1.0}),
        ({"type": "any", "example": 1}, {}),
    ],
)
def test_words_that_are_no_json_schema(given: Any, expected: Any) -> None:
    assert forms.schema(given) == expected


def test_a_version_that_each_operation_has_is_a_parameter() -> None:
    """As in Azure's documents."""
    paths = {"/skus": {"get": {"operationId": "skus", "x-api-version": "2026-04-01", "responses": {}}}}
    found = api({"openapi": "3.1.0", "paths": paths}, "skus")
    for query, expected in (({}, ["missing"]), ({"api-version": "2020-01-01"}, ["value"])):
        assert [each.kind for each in found.request_problems(found.operations["skus"], {}, query, None)] == expected


def test_procedures_of_protobuf() -> None:
    document: Any = {
        "services": {"v1.Machines": {"methods": {"Create": {"in": "v1.Spec", "out": "v1.Operation"}}}},
        "messages": {
            "v1.Operation": {"fields": {"id": {"n": 1, "type": "string"}}},
            "v1.Spec": {
                "fields": {
                    "name": {
                        "n": 1,
                        "type": "string",
                        "validate.field": {"required": True, "string": {"max_len": "5"}},
                    },
                    "size": {"n": 2, "type": "int64"},
                    "labels": {"n": 3, "type": "map<string,string>"},
                    "ports": {
                        "n": 4,
                        "type": "int32",
                        "repeated": True,
                        "validate.field": {"repeated": {"max_items": "1"}},
                    },
                    "kind": {"n": 5, "type": "v1.Kind"},
                    "made": {"n": 6, "type": "google.protobuf.Timestamp", "field_behavior": ["OUTPUT_ONLY"]},
                }
            },
        },
        "enums": {"v1.Kind": {"SMALL": 0, "LARGE": 1}},
    }
    found = api(document, "v1.Machines.Create")
    create, _ = found.route("GRPC", "/v1.Machines/Create") or pytest.fail("no route")
    good = {"name": "a", "size": "7", "labels": {"a": "b"}, "ports": [80], "kind": "LARGE"}
    assert list(found.request_problems(create, {}, {}, good)) == []
    wrong = {"name": "too long", "size": 7, "labels": {"a": 1}, "ports": [1, 2], "kind": "HUGE", "made": "x", "more": 1}
    assert sorted((each.kind, each.where) for each in found.request_problems(create, {}, {}, wrong)) == [
        ("read-only", "body.made"),
        ("type", "body.labels.a"),
        ("type", "body.size"),
        ("unknown", "body.more"),
        ("value", "body.kind"),
        ("value", "body.name"),
        ("value", "body.ports"),
    ]
    assert [each.where for each in found.request_problems(create, {}, {}, {})] == ["body.name"]


def test_a_query_is_read_by_its_schema() -> None:
    schemas = {
        "ids": {"type": "array", "items": {"type": "integer"}},
        "all": {"type": "boolean"},
        "ratio": {"type": "number"},
    }
    parameters = [{"name": name, "in": "query", "schema": each} for name, each in schemas.items()]
    found = api({"openapi": "3.1.0", "paths": {"/": {"get": {"operationId": "x", "parameters": parameters}}}}, "x")
    query = [("ids", "1,2"), ("ids", "x"), ("all", "true"), ("ratio", "0.5"), ("other", "7")]
    assert values_of(found.operations["x"], query) == {"ids": [1, 2, "x"], "all": True, "ratio": 0.5, "other": "7"}


def test_what_cant_be_read_is_named() -> None:
    with pytest.raises(forms.Unreadable, match="it has no launch: it has create, zone"):
        forms.read(OPENAPI, ["launch"], "a test")
    with pytest.raises(forms.Unreadable, match="neither OpenAPI"):
        forms.read({"asyncapi": "3.0.0"}, [], "a test")


def test_the_data_of_a_fake_are_as_extract_writes_them() -> None:
    """So that a newer document can be compared with them, line by line."""
    for file in Path(__file__).parent.glob("*.json"):
        text = file.read_text(encoding="utf-8")
        assert extract.written(json.loads(text)) == text
    assert Crusoe.api.source.startswith("Crusoe")
