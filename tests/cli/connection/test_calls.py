"""The calls and bodies that are made from the route table: up to date, and as the routes are."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, WithJsonSchema

from chalicelib import contract
from cli.connection import calls
from cli.connection.client import Client
from docs import client_calls
from docs.client_calls import written
from tests.cli.plane import Plane
from tests.harness.rows import each


@pytest.mark.slow
def test_they_are_up_to_date() -> None:
    assert client_calls.CALLS.read_text(encoding="utf-8") == client_calls.functions(), "make docs"
    assert client_calls.BODIES.read_text(encoding="utf-8") == client_calls.bodies(), "make docs"


def test_they_call_what_they_are_named_after() -> None:
    plane = Plane({"/secrets/list": [], "/metrics/job/a%2Fb": {"metrics": []}, "/api/projects/a%20b/get": {}})
    client = Client(plane.url, "t", "main", via=plane.via)
    assert calls.secrets_list(client) == []
    assert calls.metrics_job(client, "a/b", {"limit": 3}) == {"metrics": []}
    assert calls.projects_get(client, "a b")["members"] == []
    assert [one.path for one in plane.requests] == [
        "/api/project/main/secrets/list",
        "/api/project/main/metrics/job/a%2Fb?limit=3",
        "/api/projects/a%20b/get",
    ]


class Part(BaseModel):
    name: str


@each(
    "kind, text",
    [
        (str | None, "str | None"),
        (Annotated[int, WithJsonSchema({"type": "string"})], "str"),
        (Annotated[int | None, WithJsonSchema({"type": "string"})], "str | None"),
        (tuple[int, ...], "list[int]"),
        (dict[str, Any], "Mapping[str, object]"),
        (Literal["a", "b"], 'Literal["a", "b"]'),
        (contract.ProjectRole, "ProjectRole"),
        (list[Part], "list[Part]"),
        (list[contract.Secret], "list[contract.Secret]"),
        (None, "None"),
    ],
)
def test_a_type_as_text(kind: Any, text: str) -> None:
    assert written(kind, {Part: "Part"}, "contract.") == text


def test_a_type_without_a_text_is_refused() -> None:
    with pytest.raises(TypeError, match="has no text here"):
        written(set[int], {})
