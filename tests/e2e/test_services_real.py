"""Services on the server's own machine, from `dstack apply` to the answer: plain processes behind the server's door."""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from tests.bench.measure import submit, task, wait_local_host
from tests.harness.server import PATIENCE, ROOT, Server, until
from tests.runtime.live import wait_for
from tests.serving.caller import Answer, Caller

APP = base64.b64encode(zlib.compress((ROOT / "tests/serving/app.py").read_bytes(), 9)).decode()
UNPACK = "import base64, zlib; open('app.py', 'wb').write(zlib.decompress(base64.b64decode('{}')))"
START = f'python3 -c "{UNPACK.format(APP)}" && exec python3 app.py --name $$'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = Server(
        tmp_path_factory.mktemp("services") / "home",
        flags=("--local-hosts", "4"),
        env={"DSTACK_AGENT_RUNTIME": "process"},
    )
    one.home.mkdir()
    try:
        wait_local_host(one.start())
        yield one
    finally:
        one.close()


def apply(server: Server, name: str, **fields: Any) -> str:
    configuration = {"type": "service", "name": name, "port": 8000, "commands": [START], **fields}
    configuration["resources"] = {"cpu": "1..", "memory": "0.1GB..", "disk": None}
    path = server.home / f"{name}.dstack.yml"
    path.write_text(json.dumps(configuration))
    return server.cli("apply", "-y", "-d", "-f", str(path))


def ask(server: Server, path: str, *headers: tuple[str, str], token: str = "", host: str = "", **more: Any) -> Answer:
    address = server.url.removeprefix("http://")
    name, _, port = address.rpartition(":")
    given = [("Authorization", f"Bearer {token or server.token}"), *headers]
    with Caller((name, int(port)), PATIENCE) as caller:
        caller.head(more.get("method", "GET"), path, host or address, given)
        return caller.answer(more.get("method", "GET"))


def answers(server: Server, name: str) -> Answer:
    path = f"/proxy/services/main/{name}/echo"
    found: Answer = until(f"{name} to answer", lambda: (got := ask(server, path)).status == 200 and got)
    return found


@pytest.fixture(scope="module")
def app(server: Server) -> str:
    """The name of a running service with two replicas."""
    apply(server, "app", replicas=2, retry=True)
    wait_for(server, "app", "running")
    answers(server, "app")
    until("both replicas", lambda: len({ask(server, f"{HERE}echo").json()["replica"] for _ in range(8)}) == 2)
    return "app"


HERE = "/proxy/services/main/app/"


def test_a_service_answers_under_its_path_and_its_host(server: Server, app: str) -> None:
    by_path = ask(server, f"{HERE}echo/x?y=1").json()
    assert by_path["target"] == "/echo/x?y=1"
    assert ["x-forwarded-prefix", HERE.rstrip("/")] in by_path["headers"]
    by_host = ask(server, "/echo/x?y=1", host="app.main.localhost").json()
    assert by_host["target"] == "/echo/x?y=1"
    assert server.token not in json.dumps([by_path, by_host])


def test_the_missing_slash_is_added_and_the_query_kept(server: Server, app: str) -> None:
    answer = ask(server, f"{HERE.rstrip('/')}?a=1")
    assert (answer.status, answer.header("location")) == (308, f"{HERE}?a=1")


def test_only_members_come_in(server: Server, app: str) -> None:
    made = server.call("/api/users/create", {"username": "eve", "global_role": "user", "email": None})
    other = made["creds"]["token"]
    assert ask(server, f"{HERE}echo", token=other).status == 403
    assert ask(server, f"{HERE}echo", token="nonsense").status == 403
    server.cli("project", "add-member", "eve", "--role", "user")
    assert until("a new member to be let in", lambda: ask(server, f"{HERE}echo", token=other).status == 200)
    server.cli("project", "remove-member", "eve", "-y")
    assert ask(server, f"{HERE}echo", token=other).status == 403


def test_the_api_is_where_it_was(server: Server, app: str) -> None:
    assert ask(server, "/proxy/services/main/no-such/").status == 404
    assert ask(server, "/proxy/services/main").status == 404
    assert server.call("/api/server/get_info", {})["server_version"]


def test_a_killed_replica_costs_no_request(server: Server, app: str) -> None:
    pid = int(ask(server, f"{HERE}echo").json()["replica"])
    os.kill(pid, signal.SIGKILL)
    assert {ask(server, f"{HERE}echo").status for _ in range(60)} == {200}


def test_kill_9_of_the_server_in_the_middle_of_requests_stops_no_replica(server: Server, app: str) -> None:
    scaling = {"metric": "queue", "target": 1}
    apply(server, "ranged", replicas="1..2", scaling=scaling, auth=False)
    answers(server, "ranged")
    paths, over = (f"{HERE}echo", "/proxy/services/main/ranged/echo"), threading.Event()

    def pids() -> set[int]:
        """Of the replicas that answer."""
        return {int(ask(server, path).json()["replica"]) for path in paths for _ in range(4)}

    def calls() -> None:
        while not over.is_set():
            with suppress(OSError, http.client.HTTPException):  # the server is dead
                ask(server, paths[1])

    before = until("all three", lambda: len(found := pids()) == 3 and found)
    with ThreadPoolExecutor(2) as threads:
        clients = [threads.submit(calls) for _ in range(2)]
        try:
            server.kill()
            server.start()
            for path in paths:
                until("it to answer again", lambda path=path: ask(server, path).status == 200)
            submit(server, task("after", "true"))
            wait_for(server, "after", "done")  # agents and planner are at work again
        finally:
            over.set()
        for each in clients:
            each.result()
    until("the same three again", lambda: pids() == before)
    server.cli("stop", "ranged", "-y")


def test_a_stopped_service_is_no_more(server: Server, app: str) -> None:
    apply(server, "brief", auth=False)
    answers(server, "brief")
    server.cli("stop", "brief", "-y")
    until("it to be gone", lambda: ask(server, "/proxy/services/main/brief/echo").status == 404)


def test_the_first_answer_comes_soon(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    apply(server, "prompt", auth=False)
    applied = time.monotonic() - began
    answers(server, "prompt")
    with capsys.disabled():
        print(f"\n  applied in {applied:.2f} s, answered {time.monotonic() - began - applied:.2f} s later")
    server.cli("stop", "prompt", "-y")


def test_the_first_request_wakes_a_service_that_has_no_replicas(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    scaling = {"metric": "rps", "target": 100}
    apply(server, "asleep", replicas="0..1", scaling=scaling, auth=False)
    wait_for(server, "asleep", "pending")
    began = time.monotonic()
    answers(server, "asleep")  # on a busy machine the first to come may have waited in vain
    with capsys.disabled():
        print(f"\n  from no replica to the first answer: {time.monotonic() - began:.2f} s")
    server.cli("stop", "asleep", "-y")


def test_a_new_version_takes_over_and_no_request_or_stream_is_lost(server: Server) -> None:
    apply(server, "turn", auth=False, env={"VERSION": "1"})
    first = answers(server, "turn").header("x-replica")
    stop, lines, statuses = threading.Event(), [], []

    def stream() -> None:
        address = server.url.removeprefix("http://").split(":")
        with Caller((address[0], int(address[1])), PATIENCE) as caller:
            caller.head("GET", "/proxy/services/main/turn/stream?n=100&gap=0.1", "localhost")
            response = caller.begin()
            while line := response.readline():
                lines.append(line)

    def calls() -> None:
        while not stop.is_set():
            statuses.append(ask(server, "/proxy/services/main/turn/echo").status)

    with ThreadPoolExecutor(3) as threads:
        long, *short = [threads.submit(work) for work in (stream, calls, calls)]
        try:
            until("the stream to flow", lambda: lines)
            apply(server, "turn", auth=False, env={"VERSION": "2"})
            until("the other to take over", lambda: answers(server, "turn").header("x-replica") != first)
            long.result()
        finally:
            stop.set()
        for each in short:
            each.result()
    assert lines[-2] == b"data: [DONE]\n"
    assert set(statuses) == {200} and len(statuses) > 20
    server.cli("stop", "turn", "-y")
