"""The Chalice app: events as API Gateway sends them, on one thread and on many, and what importing it costs."""

from __future__ import annotations

import base64
import gzip
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pytest

import app as mounted
from chalicelib import console
from chalicelib.api.route import Route
from chalicelib.api.routes import ROUTES
from chalicelib.api.v1 import PREFIX
from chalicelib.api.v1.preferences import BILLED
from chalicelib.domain.runs import RunStatus
from chalicelib.runtime.chalice_app import METHODS, RESOURCES, ControlPlane
from tests.api.rig import ADMIN, Rig, submit, task

ROOT = Path(__file__).parents[2]


Call = Callable[[dict[str, Any]], tuple[int, Any]]


@pytest.fixture
def app(rig: Rig) -> ControlPlane:
    return ControlPlane(lambda: rig.world.plane)


@pytest.fixture
def call(app: ControlPlane) -> Call:
    return caller(app)


def caller(app: ControlPlane) -> Call:
    """The status and the JSON with which an app answers an event."""

    def call(sent: dict[str, Any]) -> tuple[int, Any]:
        answer = app(sent, None)
        headers = {name.lower(): value for name, value in answer["headers"].items()}
        assert headers["content-type"] in ("application/json", "application/problem+json", "application/scim+json")
        return answer["statusCode"], orjson.loads(answer["body"])

    return call


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
        "pathParameters": {name.removesuffix("+"): value for name, value in params.items()} or None,
        "stageVariables": None,
        "requestContext": {"resourcePath": resource, "httpMethod": method},
        "body": None if body is None else base64.b64encode(body).decode(),
        "isBase64Encoded": body is not None,
    }


def proxied(route: Route) -> bool:
    return route.path.startswith(tuple(RESOURCES))


def test_every_route_is_mounted() -> None:
    mounts = {(method, path) for path, methods in mounted.app.routes.items() for method in methods}
    resources = {(method, path) for path in RESOURCES.values() for method in METHODS}
    assert mounts == {(route.method, route.path) for route in ROUTES if not proxied(route)} | resources
    assert {route.method for route in ROUTES if proxied(route)} <= {*METHODS}


def test_the_paths_fit_into_a_rest_api() -> None:
    """API Gateway makes a resource of each node of the tree of paths, and 300 at most."""
    nodes = {tuple(path.split("/")[: end + 1]) for path in mounted.app.routes for end in range(path.count("/") + 1)}
    assert len(nodes) <= 300


def test_an_event_reaches_its_route_with_its_parameters(rig: Rig, call: Call) -> None:
    made = submit(rig, task())
    sent = event("/api/project/{project_name}/runs/get", orjson.dumps({"run_name": "hello"}), project_name="main")
    assert call(sent) == (200, made)


def test_the_console_is_text_whatever_the_browser_accepts(
    app: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("index.html", b"<!doctype html>"), ("main-A1B2C3D4.js", b"1;")):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text))
    monkeypatch.setattr(console, "BUNDLED", tmp_path)
    for sent, body in (
        (event("/", method="GET"), "<!doctype html>"),
        (event("/console/{part}", method="GET", part="main-A1B2C3D4.js"), "1;"),
    ):
        sent["headers"] |= {"Accept": "text/html,*/*;q=0.8", "Accept-Encoding": "gzip, br"}
        answer = app(sent, None)
        assert (answer["statusCode"], answer["body"]) == (200, body)
        assert "Content-Encoding" not in answer["headers"] and not answer.get("isBase64Encoded")


def test_a_body_may_be_absent_or_nonsense(rig: Rig, call: Call) -> None:
    assert call(event("/api/runs/list")) == (200, [])
    status, answer = call(event("/api/runs/list", b"\xff\x00"))
    assert status == 400 and answer["detail"][0]["code"] == "error"


def test_the_version_header_counts_in_any_case(rig: Rig, call: Call) -> None:
    sent = event("/api/runs/list")
    sent["headers"]["x-Api-vErsion"] = sent["headers"].pop("X-API-VERSION").replace("22", "99")
    assert call(sent)[0] == 400


@pytest.mark.slow
def test_unknown_resources_and_methods_are_json_too(app: ControlPlane, call: Call) -> None:
    assert call(event("/nope"))[0] == 404
    assert call(event("/api/runs/list", method="GET"))[0] == 405
    assert call({})[0] == 404
    assert "/nope" not in app.routes  # a look leaves nothing behind


def test_any_content_type_is_taken(rig: Rig, call: Call) -> None:
    for kind in ("text/plain", "nonsense", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        sent = event("/api/runs/list", b"{}")
        sent["headers"]["Content-Type"] = kind
        assert call(sent) == (200, [])


@pytest.mark.slow
def test_threads_do_not_see_each_others_requests(rig: Rig, call: Call) -> None:
    names = [f"run-{number}" for number in range(12)]
    for name in names:
        submit(rig, task(name))

    def ask(name: str) -> str:
        body = orjson.dumps({"run_name": name})
        return str(
            call(event("/api/project/{project_name}/runs/get", body, project_name="main"))[1]["run_spec"]["run_name"]
        )

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, names * 10)) == names * 10


def test_the_plane_is_not_asked_for_before_the_first_request(rig: Rig) -> None:
    opened: list[int] = []

    def plane() -> Any:
        opened.append(1)
        return rig.world.plane

    call = caller(ControlPlane(plane))
    assert opened == []
    assert call(event("/nope"))[0] == 404
    assert opened == []
    assert call(event("/api/runs/list")) == (200, [])
    assert opened == [1]


@pytest.mark.slow
def test_two_planes_in_one_process_do_not_meet(rig: Rig, tmp_path: Path) -> None:
    """Even while the same threads serve both."""
    (tmp_path / "other").mkdir()
    other = Rig.at(tmp_path / "other")
    submit(rig, task("mine"))
    submit(other, task("theirs"))
    calls = [caller(ControlPlane(lambda of=of: of.world.plane)) for of in (rig, other)]

    def names(number: int) -> list[str]:
        return [run["run_spec"]["run_name"] for run in calls[number % 2](event("/api/runs/list"))[1]]

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(names, range(40))) == [["mine"], ["theirs"]] * 20
    other.world.plane.store.close()


@pytest.mark.slow
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


def test_a_resource_is_served_by_its_own_path(rig: Rig, call: Call) -> None:
    def ask(method: str, path: str, sent: Any = None) -> tuple[int, Any]:
        return call(
            event(RESOURCES[PREFIX], None if sent is None else orjson.dumps(sent), method=method, **{"proxy+": path})
        )

    runs = "projects/main/runs"
    status, run = ask("POST", runs, {"type": "task", "name": "hello", "commands": ["echo hello"]})
    assert (status, run["url"]) == (201, "/api/v1/projects/main/runs/hello")
    assert ask("GET", f"{runs}/hello/")[1]["id"] == run["id"]
    for method, path, expected in (
        ("DELETE", f"{runs}/hello", (409, "refused")),
        ("PUT", runs, (405, "wrong-method")),
        ("GET", "nothing", (404, "no-such-path")),
        ("GET", f"{runs}/none", (404, "not-found")),
    ):
        status, problem = ask(method, path)
        assert (status, problem["code"]) == expected


def test_head_gets_no_body(rig: Rig) -> None:
    app = ControlPlane(lambda: rig.world.plane)
    for path, status in (("projects/main/runs", 200), ("projects/main/runs/none", 404), ("nothing", 404)):
        got, head = (
            app(event(RESOURCES[PREFIX], None, method=method, **{"proxy+": path}), None) for method in ("GET", "HEAD")
        )
        assert (head["statusCode"], head["headers"], head["body"]) == (status, got["headers"], "") and got["body"]


def test_a_caller_may_wait_for_a_resource(rig: Rig) -> None:
    """Between its reads the process pauses, longer and longer, and not beyond what a call may cost."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            run = rig.world.plane.read.live_runs(rig.project.id)[0]
            rig.save(run.with_(status=RunStatus.running))

    app = ControlPlane(lambda: rig.world.plane, pause)

    def ask(method: str, path: str, prefer: str, sent: Any = None) -> dict[str, Any]:
        asked = event(
            RESOURCES[PREFIX], None if sent is None else orjson.dumps(sent), method=method, **{"proxy+": path}
        )
        asked["headers"]["Prefer"] = prefer
        found: dict[str, Any] = app(asked, None)
        return found

    task = {"type": "task", "name": "hello", "commands": ["echo hello"]}
    answer = ask("POST", "projects/main/runs", "wait=60", task)
    assert (answer["statusCode"], orjson.loads(answer["body"])["status"]) == (201, "running")
    assert answer["headers"]["Preference-Applied"] == f"wait={BILLED}"
    assert pauses == [1, 2, 4]
    ask("POST", "projects/main/runs/hello/stop", "wait=4")
    assert pauses == [1, 2, 4, 1, 2, 1]


def test_a_resource_that_isnt_there_opens_no_plane() -> None:
    def plane() -> Any:
        raise AssertionError("nothing needs it")

    assert caller(ControlPlane(plane))(event(RESOURCES[PREFIX], method="GET", **{"proxy+": "nothing"}))[0] == 404
