"""A service with a router from `dstack apply` to the answer: its agent tells a real router of the workers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.agent.replicas.test_router_real import ENGINE, SMG
from tests.bench.measure import wait_local_host
from tests.harness.server import Server, until
from tests.runtime.live import run_of, wait_for
from tests.serving import genuine_client as client

ROUTER = (
    f"exec {SMG} launch --host 127.0.0.1 --port $DSTACK_SERVICE_PORT --prometheus-port $((DSTACK_SERVICE_PORT + 1))"
)
WORKER = f"cd {ENGINE.parent} && exec {ENGINE} -m uvicorn app.openai_app:app --host 0.0.0.0 --port $DSTACK_SERVICE_PORT"
FRONT = "exec python3 -m http.server $DSTACK_SERVICE_PORT"
SMALL = {"cpu": "1..", "memory": "0.1GB..", "disk": None}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    client.needed()
    if not SMG.exists():
        pytest.skip("the router isn't installed here; `make test` installs it into .venvs/smg")
    env = {"DSTACK_AGENT_RUNTIME": "process", "DSTACK_SERVER_TRUST_JOBS": "1"}  # they run programs of this checkout
    one = Server(tmp_path_factory.mktemp("router") / "home", flags=("--local-hosts", "5"), env=env)
    one.home.mkdir()
    try:
        wait_local_host(one.start())
        router = {"name": "front", "replicas": 1, "router": {"type": "smg"}, "commands": [ROUTER], "resources": SMALL}
        workers = {"name": "gpu", "replicas": 2, "commands": [WORKER], "resources": SMALL}
        path = one.home / "routed.dstack.yml"
        configuration = {
            "type": "service",
            "name": "routed",
            "port": 8000,
            "model": client.MODEL,
            "groups": [router, workers],
        }
        path.write_text(json.dumps(configuration))
        one.cli("apply", "-y", "-d", "-f", str(path))
        run = wait_for(one, "routed", "running", "failed", "terminated")
        assert run["status"] == "running", (run["status_message"], run.get("error"))
        yield one
    finally:
        one.close()


def test_requests_reach_the_workers_through_the_router_alone(server: Server) -> None:
    base, calls = f"{server.url}/proxy/models/main", ("chat", "chat_stream")
    until("an answer", lambda: client.ask(base, server.token, "chat") == {"chat": "ok"})
    client.all_well(client.ask(base, server.token, *calls), *calls)
    groups = [job["job_spec"]["replica_group"] for job in run_of(server, "routed")["jobs"]]
    assert sorted(groups) == ["front", "gpu", "gpu"]


def test_a_worker_that_goes_is_stopped_once_the_router_has_let_it_go(server: Server) -> None:
    path = server.home / "routed.dstack.yml"
    configuration = json.loads(path.read_text())
    configuration["groups"][1]["replicas"] = 1
    path.write_text(json.dumps(configuration))
    server.cli("apply", "-y", "-d", "-f", str(path))

    def ended() -> list[str]:
        return [job["job_submissions"][-1]["termination_reason"] for job in run_of(server, "routed")["jobs"]]

    until("one to be stopped", lambda: "scaled_down" in ended())
    base = f"{server.url}/proxy/models/main"
    client.all_well(client.ask(base, server.token, "chat"), "chat")


def test_workers_of_dynamo_and_commands_get_the_addresses_of_others(server: Server) -> None:
    """What Dynamo's programs do with it isn't tried here: they need servers of their own."""
    router = {"name": "front", "replicas": 1, "router": {"type": "dynamo"}, "commands": [FRONT], "resources": SMALL}
    command = "echo router=$DSTACK_ROUTER_INTERNAL_IP front=${{ groups[0].replicas[0].IP_ADDRESS }}"
    workers = {"name": "gpu", "replicas": 1, "commands": [command, "sleep 1000"], "resources": SMALL}
    path = server.home / "dynamo.dstack.yml"
    configuration = {"type": "service", "name": "dynamo", "port": 8000, "groups": [router, workers]}
    path.write_text(json.dumps(configuration))
    server.cli("apply", "-y", "-d", "-f", str(path))
    until("the worker to say so", lambda: re.search(r"router=([0-9.]+) front=\1", logs(server)))


def logs(server: Server) -> str:
    return server.cli("logs", "dynamo", "--replica", "1", check=False)
