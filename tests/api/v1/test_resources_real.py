"""Resources over HTTP, from both roots; and the guide's commands, from its first line, at a server."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.emulators.ministack import Emulator
from tests.harness.roots import LambdaServer
from tests.harness.server import PATIENCE, ROOT, Server, until

GUIDE = ROOT / "docs" / "guides" / "api.md"
MAIN = "/api/v1/projects/main"
RUNS = f"{MAIN}/runs"
TASK = {"type": "task", "name": "hello", "commands": ["echo hello"]}


class Got(NamedTuple):
    status: int
    headers: Any  # names in any case
    content: Any


def ask(server: Server, method: str, path: str, body: Any = None, **headers: str) -> Got:
    sent = {
        "Authorization": f"Bearer {server.token}",
        **{name.replace("_", "-"): text for name, text in headers.items()},
    }
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data, sent, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            return Got(reply.status, reply.headers, json.loads(reply.read() or b"null"))
    except urllib.error.HTTPError as error:
        return Got(error.code, error.headers, json.loads(error.read() or b"null"))


@pytest.fixture(scope="module", params=["embedded", "lambda"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp(request.param)
    if request.param == "embedded":
        yield from _alive(Server(home, flags=("--fake-cloud", "--no-local-fleet")))
        return
    emulator: Emulator = request.getfixturevalue("emulator")
    yield from _alive(LambdaServer(home, endpoint=emulator.url))


def _alive(server: Server) -> Iterator[Server]:
    fleet = {"configuration": {"type": "fleet", "name": "pool", "nodes": "0..2"}}
    try:
        server.start()
        server.call("/api/project/main/fleets/apply", {"plan": {"spec": fleet}, "force": False})
        yield server
    finally:
        server.close()


def test_a_run_over_http(server: Server) -> None:
    plan = ask(server, "POST", f"{RUNS}?dry_run=true", TASK)
    assert (plan.status, plan.content["action"]) == (200, "create")
    made, again = (ask(server, "POST", RUNS, TASK, Idempotency_Key="one") for _ in range(2))
    assert (
        (made.status, made.headers["Location"]) == (201, f"{RUNS}/hello") == (again.status, again.headers["Location"])
    )
    assert made.content["id"] == again.content["id"] and again.headers["Idempotency-Replayed"] == "true"
    reused = ask(server, "POST", RUNS, {**TASK, "priority": 7}, Idempotency_Key="one")
    assert (reused.status, reused.content["code"]) == (409, "key-reused")

    def ended() -> Got | None:
        got = ask(server, "GET", f"{RUNS}/hello", Prefer="wait=5")
        assert got.headers["Preference-Applied"] == "wait=5"
        return got if got.content["finished_at"] else None

    got = until("the run to end", ended)
    assert got.content["status"] == "done"
    same = ask(server, "GET", f"{RUNS}/hello", If_None_Match=got.headers["ETag"])
    assert (same.status, same.content, same.headers["ETag"]) == (304, None, got.headers["ETag"])

    def said() -> Any:
        return ask(server, "GET", f"{RUNS}/hello/logs").content["items"]

    lines = until("the run's output", said)
    assert "hello" in "".join(line["text"] for line in lines)
    listed = ask(server, "GET", "/api/v1/runs?status=done&limit=1")
    assert [run["name"] for run in listed.content["items"]] == ["hello"]
    assert ask(server, "DELETE", f"{RUNS}/hello").status == 204
    assert ask(server, "GET", f"{RUNS}/hello").status == 404


def test_changes_over_http(server: Server) -> None:
    """From both stores: the lists, what is new in them, and nothing while nothing happens."""
    started = ask(server, "GET", "/api/v1/changes?projects=main")
    assert started.content["reset"] and [fleet["name"] for fleet in started.content["fleets"]] == ["pool"]
    place, seen = started.content["cursor"], dict[str, str]()

    def poll() -> dict[str, str]:
        """The runs as a follower has them. On a busy machine it may have to begin again, as the contract allows."""
        nonlocal place
        got = ask(server, "GET", f"/api/v1/changes?projects=main&cursor={place}").content
        place = got["cursor"]
        if got["reset"]:
            seen.clear()
        seen.update({run["id"]: run["status"] for run in got["runs"]})
        for each in got["removed"]["runs"]:
            seen.pop(each, None)
        return seen

    made = ask(server, "POST", RUNS, {**TASK, "name": "seen"})
    assert made.status == 201
    until("the run's end to be seen", lambda: poll().get(made.content["id"]) == "done")
    assert ask(server, "DELETE", f"{RUNS}/seen").status == 204
    until("its removal to be seen", lambda: made.content["id"] not in poll())
    assert ask(server, "GET", "/api/v1/changes?cursor=odd").status == 422


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/api/v1/nothing", 404, "no-such-path"), ("PATCH", RUNS, 405, "wrong-method"),
     ("GET", f"{RUNS}?colour=red", 422, "invalid"), ("GET", f"{RUNS}/none%20such", 404, "not-found"),
     ("DELETE", "/api/v1/projects/main/volumes/none?dry_run=true", 404, "not-found")],
)  # fmt: skip
def test_a_problem_over_http(server: Server, method: str, path: str, status: int, code: str) -> None:
    got = ask(server, method, path)
    assert (got.status, got.content["code"]) == (status, code)
    assert got.headers["Content-Type"] == "application/problem+json" and got.content["status"] == status


LISTS = (
    *("/api/v1/runs", "/api/v1/fleets", "/api/v1/instances", "/api/v1/volumes", "/api/v1/events", "/api/v1/projects"),
    *("/api/v1/users", f"{MAIN}/instances", f"{MAIN}/gateways", f"{MAIN}/offers", f"{MAIN}/events", f"{MAIN}/members"),
    *(f"{MAIN}/secrets", f"{MAIN}/backends"),
)


@pytest.mark.parametrize("path", LISTS)
def test_a_list_over_http(server: Server, path: str) -> None:
    got = ask(server, "GET", path)
    assert got.status == 200 and isinstance(got.content["items"], list)
    assert ask(server, "GET", path, If_None_Match="*").status == 304
    assert ask(server, "GET", f"{path}?odd=1").content["errors"][0]["parameter"] == "odd"


def test_head_over_http_is_get_without_the_body(server: Server) -> None:
    for path, status in (("/api/v1/runs", 200), (f"{RUNS}/none", 404), ("/api/v1/nothing", 404)):
        head, got = ask(server, "HEAD", path), ask(server, "GET", path)
        assert (head.status, head.content, got.status) == (status, None, status) and got.content is not None
        assert head.headers["Content-Type"] == got.headers["Content-Type"]
        assert head.headers["ETag"] == got.headers["ETag"]


def test_writes_over_http(server: Server) -> None:
    """What is written by the store itself, and on condition, in both stores."""
    secret, lab = f"{MAIN}/secrets/one", "/api/v1/projects/lab"
    for _ in range(2):
        assert ask(server, "PUT", secret, {"value": "v"}, Idempotency_Key="secret").status == 201
        assert ask(server, "POST", "/api/v1/projects", {"name": "lab"}, Idempotency_Key="lab").status == 201
        assert ask(server, "POST", "/api/v1/users", {"name": "ann"}, Idempotency_Key="ann").status == 201
    assert ask(server, "GET", secret).content["value"] == "v"
    assert ask(server, "PUT", f"{lab}/members/ann", {"role": "user"}).status == 201
    assert {each["user"] for each in ask(server, "GET", f"{lab}/members").content["items"]} == {"admin", "ann"}
    assert ask(server, "PUT", f"{lab}/quota", {"jobs": 3}).content["limits"]["jobs"] == 3
    spec, fleet = f"{lab}/fleets/pool/spec", {"type": "fleet", "nodes": "0..2"}
    made = ask(server, "PUT", spec, fleet, If_None_Match="*")
    assert made.status == 201 and ask(server, "PUT", spec, fleet, If_None_Match="*").status == 412
    changed = ask(server, "PUT", spec, {**fleet, "nodes": "0..3"}, If_Match=made.headers["ETag"])
    assert changed.status == 200 and changed.headers["ETag"] != made.headers["ETag"]
    assert ask(server, "PUT", spec, fleet, If_Match=made.headers["ETag"]).status == 412
    assert ask(server, "DELETE", lab).status == 409
    assert ask(server, "DELETE", f"{lab}/fleets/pool").status == 202
    for path in (secret, f"{lab}/members/ann", "/api/v1/users/ann"):
        assert ask(server, "DELETE", f"{path}?dry_run=true").content == {"action": "delete"}
        assert ask(server, "DELETE", path).status == 204


def test_without_a_token(server: Server) -> None:
    got = ask(server, "GET", "/api/v1/volumes", Authorization="")
    assert (got.status, got.content["code"], got.headers["WWW-Authenticate"]) == (401, "unauthenticated", "Bearer")


def test_the_guide_is_followed(tmp_path: Path) -> None:
    """Its commands one after the other, in one shell's environment; `<!-- wait … -->` is what a reader does by looking
    twice."""
    server = Server(tmp_path)
    try:
        server.start()
        shown = [_follow(server, found) for found in re.finditer(PART, GUIDE.read_text())]
    finally:
        server.close()
    assert len(shown) > 3


PART = re.compile(r"```shell\n(?P<commands>.*?)```|<!-- wait run (?P<name>\S+) ended -->", re.DOTALL)


def _follow(server: Server, part: re.Match[str]) -> None:
    if part["commands"] is None:
        until(part[0], lambda: ask(server, "GET", f"{RUNS}/{part['name']}").content["finished_at"])
        return
    settings = re.search(r"(?m)^export DSTACK=.*\n(?:export .*\n)*", GUIDE.read_text())
    assert settings, "the guide begins with its variables"
    script = f"{settings[0]}{part['commands']}".replace("http://127.0.0.1:3000", server.url)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env={**server.environment(), "DSTACK_TOKEN": server.token},
        cwd=server.home,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, f"{part['commands']}\n{done.stdout}{done.stderr}"
