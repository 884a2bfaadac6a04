"""The Chalice app: events as API Gateway sends them, on one thread and on many, and what importing it costs."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pytest

import app as mounted
from chalicelib.api.routes import ROUTES
from chalicelib.runtime import deps
from tests.api.rig import ADMIN, Rig, submit, task

ROOT = Path(__file__).parents[2]


@pytest.fixture
def served(rig: Rig) -> Iterator[Rig]:
    deps.set_plane(lambda: rig.world.plane)
    yield rig
    deps.set_plane(refuse)


def refuse() -> Any:
    raise AssertionError("no plane was set")


def event(resource: str, body: bytes | None = None, *, method: str = "POST", **params: str) -> dict[str, Any]:
    path = resource
    for name, value in params.items():
        path = path.replace("{" + name + "}", value)
    return {
        "resource": resource,
        "path": path,
        "httpMethod": method,
        "headers": {"Authorization": f"Bearer {ADMIN}", "X-API-VERSION": "0.22.5", "Content-Type": "application/json"},
        "multiValueQueryStringParameters": None,
        "pathParameters": params or None,
        "stageVariables": None,
        "requestContext": {"resourcePath": resource, "httpMethod": method},
        "body": None if body is None else base64.b64encode(body).decode(),
        "isBase64Encoded": body is not None,
    }


def call(sent: dict[str, Any]) -> tuple[int, Any]:
    answer = mounted.app(sent, None)
    assert {name.lower(): value for name, value in answer["headers"].items()}["content-type"] == "application/json"
    return answer["statusCode"], orjson.loads(answer["body"])


def test_every_route_is_mounted() -> None:
    mounts = {(method, path) for path, methods in mounted.app.routes.items() for method in methods}
    assert mounts == {(route.method, route.path) for route in ROUTES}


def test_an_event_reaches_its_route_with_its_parameters(served: Rig) -> None:
    made = submit(served, task())
    sent = event("/api/project/{project_name}/runs/get", orjson.dumps({"run_name": "hello"}), project_name="main")
    assert call(sent) == (200, made)


def test_a_body_may_be_absent_or_nonsense(served: Rig) -> None:
    assert call(event("/api/runs/list")) == (200, [])
    status, answer = call(event("/api/runs/list", b"\xff\x00"))
    assert status == 400 and answer["detail"][0]["code"] == "error"


def test_the_version_header_counts_in_any_case(served: Rig) -> None:
    sent = event("/api/runs/list")
    sent["headers"]["x-Api-vErsion"] = sent["headers"].pop("X-API-VERSION").replace("22", "99")
    assert call(sent)[0] == 400


def test_unknown_resources_and_methods_are_json_too(served: Rig) -> None:
    assert call(event("/nope"))[0] == 404
    assert call(event("/api/runs/list", method="GET"))[0] == 405
    assert call({})[0] == 404
    assert "/nope" not in mounted.app.routes  # a look leaves nothing behind


def test_any_content_type_is_taken(served: Rig) -> None:
    for kind in ("text/plain", "nonsense", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        sent = event("/api/runs/list", b"{}")
        sent["headers"]["Content-Type"] = kind
        assert call(sent) == (200, [])


def test_threads_do_not_see_each_others_requests(served: Rig) -> None:
    names = [f"run-{number}" for number in range(12)]
    for name in names:
        submit(served, task(name))

    def ask(name: str) -> str:
        body = orjson.dumps({"run_name": name})
        return str(
            call(event("/api/project/{project_name}/runs/get", body, project_name="main"))[1]["run_spec"]["run_name"]
        )

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, names * 10)) == names * 10


def test_the_plane_is_made_once_and_not_before_it_is_needed(rig: Rig) -> None:
    made: list[int] = []

    def factory() -> Any:
        made.append(1)
        return rig.world.plane

    deps.set_plane(factory)
    assert made == []
    with ThreadPoolExecutor(8) as threads:
        planes = list(threads.map(lambda _: deps.plane(), range(40)))
    assert made == [1] and set(map(id, planes)) == {id(rig.world.plane)}
    deps.set_plane(refuse)


def test_importing_the_app_brings_no_sdk() -> None:
    heavy = (
        "boto3",
        "botocore",
        "pynamodb",
        "yaml",
        "cryptography",
        "paramiko",
        "rich",
        "typer",
        "uvicorn",
        "sqlite3",
        "asyncio",
    )
    code = f"import sys, app; print([name for name in {heavy!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
