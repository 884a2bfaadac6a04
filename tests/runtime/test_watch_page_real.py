"""docs/operate/watch.md: what it shows is what a server answers."""

from __future__ import annotations

import json
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.runtime.probes import LEAST_FREE
from tests.harness.server import ROOT, HttpError, Server, until

PAGE = (ROOT / "docs/operate/watch.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"(?m)^\$ curl -s http://127\.0\.0\.1:3000(\S+)\n(.*)$", PAGE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = Server(tmp_path_factory.mktemp("watch") / "home")
    one.home.mkdir()
    try:
        yield one.start("--no-local-fleet")
    finally:
        one.close()


def curl(server: Server, path: str) -> str:
    return subprocess.run(["curl", "-s", server.url + path], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("path", "answer"), SHOWN)
def test_a_probe_answers_what_the_page_shows(server: Server, path: str, answer: str) -> None:
    until(f"{path} to answer as the page says", lambda: curl(server, path) == answer)


def test_its_numbers_are_the_codes() -> None:
    assert f"less than {LEAST_FREE // 2**20} MB" in PAGE and len(SHOWN) == 2
    (line,) = re.findall(r"```json\n(.*)\n```", PAGE)
    assert set(json.loads(line)) == KEYS


KEYS = {
    "time",
    "level",
    "logger",
    "message",
    "request_id",
    "user",
    "client",
    "method",
    "route",
    "project",
    "ms",
    "status",
    "bytes",
}


def test_a_server_that_logs_json_has_a_line_for_each_request_and_no_token(tmp_path: Path) -> None:
    server = Server(tmp_path, env={"DSTACK_SERVER_LOG_FORMAT": "json", "DSTACK_SERVER_ADMIN_TOKEN": ""})
    try:
        server.start("--no-local-fleet")
        server.url = server.url.removesuffix('"}')
        token = until("the token", (server.data / "admin.token").read_text)
        assert stat.S_IMODE((server.data / "admin.token").stat().st_mode) == 0o600
        server.call("/api/project/main/fleets/list", {}, token=token)
        with pytest.raises(HttpError):
            server.call("/api/project/main/fleets/list", {}, token="forged-token")
        with pytest.raises(HttpError):
            server.call(f"/api/{token}", {}, token=token)
        assert server.stop() == 0
        until("its last line", lambda: "has stopped" in server.lines[-1])
    finally:
        server.close()
    lines = [json.loads(line) for line in server.lines]
    said = [line["message"] for line in lines if line["logger"] == "dstack.server"]
    assert said[0] == f"The server is running at {server.url}"
    assert said[-1] == "The server has stopped" and "The server is stopping" in said
    requests = [line for line in lines if line["logger"] == "dstack.requests"]
    route = "/api/project/{project_name}/fleets/list"
    assert [(line["route"], line["user"], line["status"]) for line in requests] == [
        (route, "admin", 200),
        (route, None, 403),
        (None, None, 404),
    ]
    assert requests[0]["bytes"] == len("[]") and requests[0]["ms"] >= 0
    assert all(set(line) == KEYS for line in requests) and len({line["request_id"] for line in requests}) == 3
    assert not [line for line in server.lines if token in line or "forged-token" in line]
