"""The genuine command line and services: it plans, applies, shows, changes and stops them, and says where they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.bench.measure import wait_local_host
from tests.e2e.peer import Peer
from tests.harness.server import Server, until

SERVICE = """type: service
name: chat
fleets: [local]
port: 8000
model: my-org/tiny
replicas: 2
commands:
  - exec python3 -m http.server --bind 127.0.0.1 "${DSTACK_SERVICE_PORT:-8000}"
probes:
  - {type: http, url: /, interval: 1s}
  - {type: http, url: /, interval: 1s, ready_after: 2}
resources: {cpu: 1.., memory: 0.1GB.., disk: 1GB..}
"""
GROUPS = """type: service
name: mixed
fleets: [local]
port: 8000
groups:
  - {name: big, replicas: 1, commands: [sleep 600], resources: {cpu: 1.., memory: 0.2GB.., disk: 1GB..}}
  - {replicas: 1, commands: [sleep 601], resources: {cpu: 1.., memory: 0.1GB.., disk: 1GB..}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Its machine has room for four replicas."""
    home = tmp_path_factory.mktemp("server") / "home"
    one = Server(home, flags=("--local-hosts", "4"), env={"DSTACK_AGENT_RUNTIME": "process"})
    one.home.mkdir()
    try:
        one.start()
        wait_local_host(one)
        yield one
    finally:
        one.close()


def write(peer: Peer, name: str, text: str) -> str:
    (peer.home / name).write_text(text)
    return name


def run_of(server: Server, name: str) -> Any:
    return server.call("/api/project/main/runs/get", {"run_name": name})


def running(server: Server, name: str, count: int) -> bool:
    jobs = run_of(server, name)["jobs"]
    return sum(job["job_submissions"][-1]["status"] == "running" for job in jobs) == count


def test_a_service_is_applied_and_every_view_shows_its_replicas(peer: Peer, server: Server) -> None:
    plan = peer.run("apply", "-y", "-d", "-f", write(peer, "chat.dstack.yml", SERVICE))
    assert "Type           service" in plan.text and "Run chat submitted, detaching..." in plan.text
    until("both replicas to run", lambda: running(server, "chat", 2))
    rows = peer.run("ps").rows()
    assert [row[0] for row in rows[1:]] == ["chat", "group=0 replica=0", "replica=1"], rows
    assert {row[-2] for row in rows[1:]} == {"running"}
    until("the probes", lambda: "✓✓" in peer.run("ps", "-v").text)
    run = json.loads(peer.run("run", "get", "chat", "--json").text)
    assert run["service"]["url"] == "/proxy/services/main/chat/"
    assert run["service"]["model"]["base_url"] == "/proxy/services/main/chat/v1"
    assert [job["job_spec"]["replica_num"] for job in run["jobs"]] == [0, 1]


def test_another_replica_is_a_change_in_place(peer: Peer, server: Server) -> None:
    before = {job["job_submissions"][-1]["id"] for job in run_of(server, "chat")["jobs"]}
    changed = peer.run("apply", "-y", "-d", "-f", write(peer, "chat.dstack.yml", SERVICE.replace("as: 2", "as: 3")))
    assert "Active run chat already exists. Detected changes that can be updated in-place:" in changed.text
    assert "- replicas" in changed.text and "Run chat updated, detaching..." in changed.text
    until("the third replica to run", lambda: running(server, "chat", 3))
    after = run_of(server, "chat")
    assert before < {job["job_submissions"][-1]["id"] for job in after["jobs"]}
    assert {job["job_submissions"][-1]["deployment_num"] for job in after["jobs"]} == {1}


def test_its_log_is_that_of_a_replica_and_it_is_stopped(peer: Peer, server: Server) -> None:
    until("its probes in it", lambda: "GET / HTTP/1.1" in peer.run("logs", "chat", "--replica", "1").text)
    assert "Stopped" in peer.run("stop", "-y", "chat").text
    until("it to end", lambda: run_of(server, "chat")["status"] == "terminated")


def test_groups_have_a_part_of_the_plan_and_rows_of_their_own(peer: Peer, server: Server) -> None:
    peer.run("apply", "-y", "-d", "-f", write(peer, "mixed.dstack.yml", GROUPS))
    until("both groups to run", lambda: running(server, "mixed", 2))
    rows = peer.run("ps").rows()
    assert [row[0] for row in rows[1:]] == ["mixed", "group=0 replica=0", "group=1 replica=1"], rows
    assert "Stopped" in peer.run("stop", "-y", "mixed").text
    until("it to end", lambda: run_of(server, "mixed")["status"] == "terminated")


def test_a_change_that_needs_a_new_run_stops_the_old_one(peer: Peer, server: Server) -> None:
    name = write(peer, "chat.dstack.yml", SERVICE.replace("replicas: 2", "replicas: 1"))
    peer.run("apply", "-y", "-d", "-f", name)
    first = run_of(server, "chat")["id"]
    until("it to run", lambda: running(server, "chat", 1))
    other = SERVICE.replace("replicas: 2", "replicas: 1").replace("my-org/tiny", "my-org/other")
    peer.run("apply", "-y", "-d", "-f", write(peer, "chat.dstack.yml", other))
    after = run_of(server, "chat")
    assert after["id"] != first and after["service"]["model"]["name"] == "my-org/other"
    peer.run("stop", "-y", "-x", "chat")


def test_whoever_stays_with_it_reads_where_it_is_published(peer: Peer, server: Server) -> None:
    """It ends by itself, because a client that stays has nobody to leave it."""
    short = SERVICE.replace("name: chat", "name: short").replace("replicas: 2", "replicas: 1")
    short = short.replace("  - exec python3 -m", "  - timeout 20 python3 -m").replace('-8000}"', '-8000}" || true')
    shown = peer.run("apply", "-y", "-f", write(peer, "short.dstack.yml", short))
    assert f"Service is published at:\n  {server.url}/proxy/services/main/short/" in shown.text, shown.text
    assert f"Model my-org/tiny is published at:\n  {server.url}/proxy/services/main/short/v1" in shown.text
