"""Lists of commands from `dstack apply` to `dstack logs -d`, as plain processes and in containers."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from tests.bench.measure import wait_local_host
from tests.harness.images import PYTHON
from tests.harness.server import PATIENCE, Server, until
from tests.runtime.live import log_of, logs_of, wait_for

FAILING = "sh -c 'echo installing; exit 3'"


@pytest.fixture(scope="module", params=["process", "docker"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    env = {"DSTACK_AGENT_RUNTIME": request.param}
    if request.param == "docker":
        socket = request.getfixturevalue("docker_engine").socket
        env |= {"DOCKER_HOST": f"unix://{socket}", "DSTACK_DOCKER_BASE_IMAGE": PYTHON}
    one = Server(tmp_path_factory.mktemp(request.param) / "home", flags=("--local-hosts", "2"), env=env)
    one.home.mkdir()
    try:
        wait_local_host(one.start())
        yield one
    finally:
        one.close()


def apply(server: Server, name: str, **fields: object) -> None:
    resources = {"cpu": "1..", "memory": "0.1GB..", "disk": None}
    path = server.home / f"{name}.dstack.yml"
    path.write_text(json.dumps({"type": "task", "name": name, "resources": resources, **fields}))
    server.cli("apply", "-y", "-d", "-f", str(path))


def ended(server: Server, name: str) -> tuple[int, list[str]]:
    run = wait_for(server, name, "done", "failed")
    return run["latest_job_submission"]["exit_status"], log_of(server, name).splitlines()


def page_of(server: Server, name: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"{server.url}/proxy/services/main/{name}/hi.html", timeout=PATIENCE) as found:
            return found.status, found.read()
    except urllib.error.HTTPError as problem:
        return problem.code, b""


def test_the_first_that_fails_ends_the_job_and_is_named(server: Server) -> None:
    apply(server, "block", commands=[FAILING, "# fetch\necho fetching\necho more", "rm /no/such || true", "echo end"])
    assert ended(server, "block") == (3, ["installing"])
    assert "exited with status 3 in command 1 (`sh -c 'echo installing; exit 3'`)" in server.cli("logs", "-d", "block")
    apply(server, "pipe", commands=["echo a", "echo b |", "cat"])
    status, lines = ended(server, "pipe")
    assert status == 2 and lines[0] == "a" and "syntax error" in lines[1]
    assert "exited with status 2 in command 2 (`echo b |`)" in server.cli("logs", "-d", "pipe")


def test_each_runs_whole(server: Server) -> None:
    commands = ["cat > f.txt <<EOF\nhello\nEOF\n", "up () {\n  echo up $1  # a comment\n}\n", "", "cat f.txt;", "up 1"]
    apply(server, "whole", commands=commands)
    assert ended(server, "whole") == (0, ["hello", "up 1"])


def test_each_node_of_a_task(server: Server) -> None:
    commands = ["echo prepare   # data\n", 'echo "train on $DSTACK_NODE_RANK"']
    apply(server, "nodes", nodes=2, commands=commands)
    assert wait_for(server, "nodes", "done", "failed")["status"] == "done"
    assert [log.splitlines() for log in logs_of(server, "nodes")] == [["prepare", f"train on {rank}"] for rank in "01"]


def test_a_service(server: Server) -> None:
    pages = ["cd /tmp\necho hi > hi.html  # a page\n", "cd . && exec python3 -m http.server $DSTACK_SERVICE_PORT"]
    apply(server, "pages", type="service", port=8000, auth=False, commands=pages)
    try:
        until("the page", lambda: page_of(server, "pages") == (200, b"hi\n"))
    finally:
        server.cli("stop", "-y", "-x", "pages")


def test_the_init_of_a_dev_environment(server: Server) -> None:
    apply(server, "broken", type="dev-environment", ide="vscode", init=["sh -c 'exit 1'", "echo a;\necho b  \n"])
    assert ended(server, "broken") == (1, [])
    assert "exited with status 1 in command 1 (`sh -c 'exit 1'`)" in server.cli("logs", "-d", "broken")
    apply(server, "works", type="dev-environment", ide="vscode", init=["echo a\necho b   # the tools\n"])
    until("it to say how to connect", lambda: "vscode://" in log_of(server, "works"))
    assert log_of(server, "works").splitlines()[:2] == ["a", "b"]
    server.cli("stop", "-y", "works")
    wait_for(server, "works", "terminated")
