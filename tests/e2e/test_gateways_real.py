"""A gateway in front of services of a real server: the server, its local fleet, and nginx on one of its hosts, as the
host's agent runs it."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.gateway.role import folder_of, remove
from tests.bench.measure import wait_local_host
from tests.e2e.test_services_real import START
from tests.harness.ports import free_port
from tests.harness.server import PATIENCE, Server, until
from tests.runtime.live import wait_for
from tests.serving.caller import Answer, Caller
from tests.serving.nginx_door import installed

DOMAIN = "example.test"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = Server(
        tmp_path_factory.mktemp("gateways") / "home",
        flags=("--local-hosts", "4", "--fake-cloud"),
        env={"DSTACK_AGENT_RUNTIME": "process"},
    )
    one.home.mkdir()
    try:
        wait_local_host(one.start())
        yield one
    finally:
        one.close()


@dataclass(frozen=True)
class Edge:
    """The gateway, on a host of the server's own fleet."""

    port: int
    server: Server

    def configuration(self) -> str:
        """What it was told last."""
        found = (Path(folder_of(str(data))) / "word.json" for data in self.server.data.glob("agent*"))
        return next((each.read_text() for each in found if each.exists()), "")

    def listens(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
            return True
        return False


@pytest.fixture(scope="module")
def gateway(server: Server) -> Iterator[Edge]:
    installed()
    made = Edge(free_port(), server)
    configuration = {"type": "gateway", "name": "edge", "fleet": "local", "domain": DOMAIN, "certificate": None}
    configuration["http_port"] = made.port
    path = server.home / "edge.dstack.yml"
    path.write_text(json.dumps(configuration))
    try:
        server.cli("apply", "-y", "-f", str(path))
        until("nginx to listen", made.listens)
        yield made
    finally:
        agents = list(server.data.glob("agent*"))
        server.close()
        for data in agents:
            remove(str(data), patience=1.0)


def apply(server: Server, name: str, **fields: Any) -> str:
    configuration = {"type": "service", "name": name, "port": 8000, "commands": [START], **fields}
    configuration["resources"] = {"cpu": "1..", "memory": "0.1GB..", "disk": None}
    path = server.home / f"{name}.dstack.yml"
    path.write_text(json.dumps(configuration))
    return server.cli("apply", "-y", "-d", "-f", str(path))


def ask(gateway: Edge, name: str, path: str = "/echo", *, token: str = "") -> Answer:
    with Caller(("127.0.0.1", gateway.port), PATIENCE) as caller:
        caller.head("GET", path, f"{name}.{DOMAIN}", [("Authorization", f"Bearer {token}")] if token else [])
        return caller.answer()


def answers(gateway: Edge, name: str, token: str = "") -> Answer:
    def good() -> Answer | None:
        with suppress(OSError):
            found = ask(gateway, name, token=token)
            return found if found.status == 200 else None
        return None

    found: Answer = until(f"{name} to answer", good)
    return found


@contextmanager
def constant_requests(gateway: Edge, name: str, pause: float, threads: int = 2) -> Iterator[list[int]]:
    """The statuses of requests that go on all the time, each on a connection of its own; 0: no answer. `pause`: of each
    thread after each, in seconds."""
    stop, statuses = threading.Event(), []

    def calls() -> None:
        while not stop.is_set():
            try:
                statuses.append(ask(gateway, name).status)
            except OSError:
                statuses.append(0)
            time.sleep(pause)

    with ThreadPoolExecutor(threads) as pool:
        going = [pool.submit(calls) for _ in range(threads)]
        try:
            yield statuses
        finally:
            stop.set()
        for each in going:
            each.result()


def test_services_are_told_apart_by_their_hosts(server: Server, gateway: Edge) -> None:
    output = apply(server, "one", auth=False)
    assert f"http://one.{DOMAIN}:{gateway.port}/" in output
    apply(server, "two", auth=False)
    one, two = answers(gateway, "one"), answers(gateway, "two")
    assert one.header("x-replica") != two.header("x-replica")
    assert ask(gateway, "three").status == 403
    server.cli("stop", "two", "-y")
    until("it to be gone", lambda: ask(gateway, "two").status == 403)
    assert ask(gateway, "one").status == 200
    server.cli("stop", "one", "-y")


def test_only_members_come_in_and_who_is_none_any_more_is_out_within_a_minute(
    server: Server, gateway: Edge, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(server, "guarded")
    answers(gateway, "guarded", server.token)
    assert [ask(gateway, "guarded", token=token).status for token in ("", "nonsense")] == [403, 403]
    made = server.call("/api/users/create", {"username": "eve", "global_role": "user", "email": None})
    eve = made["creds"]["token"]
    assert ask(gateway, "guarded", token=eve).status == 403
    server.cli("project", "add-member", "eve", "--role", "user")
    until("a new member to be let in", lambda: ask(gateway, "guarded", token=eve).status == 200)
    server.cli("project", "remove-member", "eve", "-y")
    began = time.monotonic()
    until("her to be out", lambda: ask(gateway, "guarded", token=eve).status == 403, every=0.5)
    with capsys.disabled():
        print(f"\n  out {time.monotonic() - began:.1f} s after she was removed")
    server.cli("stop", "guarded", "-y")


def test_the_first_request_wakes_a_service_that_has_no_replicas(
    server: Server, gateway: Edge, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(server, "asleep", replicas="0..1", scaling={"metric": "rps", "target": 100}, auth=False)
    wait_for(server, "asleep", "pending")
    until("the gateway to know it", lambda: "asleep." in gateway.configuration())
    began = time.monotonic()
    answers(gateway, "asleep")  # on a busy machine the first to come may have waited in vain
    with capsys.disabled():
        print(f"\n  from no replica to the first answer: {time.monotonic() - began:.2f} s")
    server.cli("stop", "asleep", "-y")


def test_a_replica_on_another_machine_is_reached_over_streams_that_its_agent_dials(
    server: Server, gateway: Edge, capsys: pytest.CaptureFixture[str]
) -> None:
    """A machine of the simulated cloud, whose network isn't the gateway's as far as anybody knows."""
    fleet = {"type": "fleet", "name": "machines", "nodes": 1, "idle_duration": "off"}
    spec = {"spec": {"configuration": fleet, "profile": {}}, "current_resource": None}
    server.call("/api/project/main/fleets/apply", {"plan": spec, "force": False})
    apply(server, "far", auth=False, fleets=["machines"])
    answers(gateway, "far")
    (service,) = [each for each in json.loads(gateway.configuration())["services"] if each["run_name"] == "far"]
    assert [each["address"] for each in service["replicas"]] == [""]
    began = time.monotonic()
    with ThreadPoolExecutor(10) as threads:
        assert set(threads.map(lambda _: ask(gateway, "far").status, range(100))) == {200}
    with capsys.disabled():
        print(f"\n  100 requests, 10 at a time, over streams: {time.monotonic() - began:.1f} s")
    server.cli("stop", "far", "-y")
    wait_for(server, "far", "terminated")
    server.cli("fleet", "delete", "machines", "-y")


def test_a_new_version_takes_over_and_no_request_is_lost(
    server: Server, gateway: Edge, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(server, "turn", auth=False, replicas=2, env={"VERSION": "1"})
    answers(gateway, "turn")

    def seen() -> set[str | None]:
        return {ask(gateway, "turn").header("x-replica") for _ in range(9)}

    first = until("both replicas", lambda: len(found := seen()) == 2 and found)
    with constant_requests(gateway, "turn", 0.02) as statuses:
        until("requests to flow", lambda: len(statuses) > 20)
        began = time.monotonic()
        apply(server, "turn", auth=False, replicas=2, env={"VERSION": "2"})
        until("the others to take over", lambda: not first & seen())
        took = time.monotonic() - began
    assert set(statuses) == {200}
    with capsys.disabled():
        print(f"\n  {len(statuses)} requests during a rollout of {took:.1f} s, none failed")
    server.cli("stop", "turn", "-y")


def test_without_the_control_plane_requests_go_on_and_after_it_rollouts_too(
    server: Server, gateway: Edge, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(server, "steady", auth=False)
    before = answers(gateway, "steady").header("x-replica")
    port = int(server.url.rpartition(":")[2])
    with constant_requests(gateway, "steady", 0.2) as statuses:
        until("requests to flow", lambda: len(statuses) > 4)
        server.stop(signal.SIGKILL)
        time.sleep(AWAY)
        server.start(port=port)
        began = time.monotonic()
        until("the gateway to be back", lambda: _configured_again(gateway, server))
        back = time.monotonic() - began
        with constant_requests(gateway, "steady", 0.02) as during:
            apply(server, "steady", auth=False, env={"VERSION": "2"})
            until("another to take over", lambda: ask(gateway, "steady").header("x-replica") != before)
    statuses += during
    assert set(statuses) == {200}
    with capsys.disabled():
        print(f"\n  {len(statuses)} requests while the plane was away for {AWAY:.0f} s and after, none failed;")
        print(f"  the gateway was back {back:.1f} s after the plane")
    server.cli("stop", "steady", "sign", "-y")


AWAY = 60.0


def _configured_again(gateway: Edge, server: Server) -> bool:
    apply(server, "sign", auth=False, replicas="0..1", scaling={"metric": "rps", "target": 100})
    return "sign." in gateway.configuration()


def test_a_gateway_with_services_stays_and_without_them_leaves_nothing(server: Server, gateway: Edge) -> None:
    apply(server, "last", auth=False)
    assert "last" in server.cli("gateway", "delete", "edge", "-y", check=False)
    answers(gateway, "last")
    server.cli("stop", "last", "-y")
    asked = ("gateway", "delete", "edge", "-y")
    until("its services to be gone", lambda: "Deleting" in server.cli(*asked, check=False), every=1.0)
    until("nginx to be gone", lambda: not gateway.listens())
    until("its folder to be gone", lambda: not gateway.configuration())
