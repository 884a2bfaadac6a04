"""OpenAI's own client asks everything of a server written by others, by way of each door: the server's and nginx."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from chalicelib.agent.kernel.process_tree import descendants
from chalicelib.domain.serving import Served, ServedModel, ServedReplica
from chalicelib.serving.door import DoorSettings
from tests.harness.ports import free_ports
from tests.harness.server import until
from tests.serving import genuine_client as client
from tests.serving.door import STRANGER, TOKEN, Door, service
from tests.serving.embedded import EmbeddedDoor, opened
from tests.serving.nginx_door import NginxDoor, installed

HOLD = 10.0  # seconds: twenty times as long as the most impatient client waits


@pytest.fixture(scope="module")
def engine() -> Iterator[int]:
    """The port of the server from PyPI. It runs as a process with a child for each API that it knows."""
    client.needed()
    port, other = free_ports(2)
    # Not from here: it would take our `app.py` for a package of its own.
    command = [client.BIN / "mock-ai-api", "--openai-port", str(port), "--anthropic-port", str(other)]
    process = subprocess.Popen(command, cwd=client.BIN, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def listens() -> bool:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        return False

    until("the engine to listen", listens)
    yield port
    started = [process.pid, *descendants(process.pid)]
    for pid in reversed(started):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


@contextmanager
def gateway(folder: Path) -> Iterator[NginxDoor]:
    installed()
    made = NginxDoor(folder)
    made.hold = HOLD
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module", params=["server", "nginx"])
def door(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder = tmp_path_factory.mktemp("gateway")
    with opened(DoorSettings(hold=HOLD)) if request.param == "server" else gateway(folder) as made:
        made.allow(TOKEN, "main")
        made.allow(STRANGER, "other")
        yield made


def served(port: int, model: str, *, ready: bool = True) -> Served:
    one = ServedReplica(job_id=f"job-of-{port}", instance_id="i1", port=port, address="127.0.0.1", ready=ready)
    name = model.replace(".", "-").replace(":", "-")
    return service((one,), name=name, auth=True, model=ServedModel(name=model), since=1_000_000)


def ask(door: Door, where: tuple[str, str], *calls: str) -> dict[str, str]:
    """`where`: a host and a path, as a door tells them."""
    host, port = door.address
    models = {"broken": f"{client.MODEL}:mock-503", "empty": "empty", "stranger": STRANGER, "host": where[0]}
    return client.ask(f"http://{host}:{port}{where[1]}", TOKEN, *calls, **models)


def test_every_call_through_the_address_of_all_models(engine: int, door: Door) -> None:
    door.serve(served(engine, client.MODEL), served(engine, f"{client.MODEL}:mock-503"))
    host, path = door.models_of("main")
    client.all_well(ask(door, (host, path), *client.PLAIN), *client.PLAIN)
    client.all_well(ask(door, (host, f"{path}v1"), *client.PLAIN), *client.PLAIN)


def test_every_call_through_the_services_own_host(engine: int, door: Door) -> None:
    one = served(engine, client.MODEL)
    door.serve(one)
    client.all_well(ask(door, (door.host_of(one), "/v1"), *client.PLAIN), *client.PLAIN)


@pytest.mark.parametrize("door", ["server"], indirect=True)  # a gateway's services have hosts of their own
def test_every_call_through_a_path_of_the_server(engine: int, door: Door) -> None:
    assert isinstance(door, EmbeddedDoor)
    one = served(engine, client.MODEL)
    door.serve(one)
    where = "127.0.0.1", f"/proxy/services/main/{one.run_name}/v1"
    client.all_well(ask(door, where, *client.PLAIN), *client.PLAIN)


def test_what_a_door_refuses_and_an_engine_fails_at_is_what_the_client_expects(engine: int, door: Door) -> None:
    empty = served(engine, "empty", ready=False)
    door.serve(served(engine, client.MODEL), served(engine, f"{client.MODEL}:mock-503"), empty)
    calls = ("no_such_model", "wrong_key", "failing", "time_out", "nobody_ready")
    client.all_well(ask(door, door.models_of("main"), *calls), *calls)


def test_a_client_that_comes_again_finds_a_replica(engine: int, door: Door) -> None:
    """Its first try was held in vain; it waits for as long as the answer says."""
    empty = served(engine, "empty", ready=False)
    door.serve(empty)
    outcomes: dict[str, str] = {}

    def again() -> None:
        outcomes.update(ask(door, door.models_of("main"), "retried"))

    thread = threading.Thread(target=again)
    thread.start()

    def refused() -> bool:
        found = door.traffic(empty)
        return found is not None and not found.held and any(bucket.requests for bucket in found.buckets)

    until("the first try to be over", refused)
    door.serve(empty.with_(replicas=tuple(one.with_(ready=True) for one in empty.replicas)))
    thread.join()
    client.all_well(outcomes, "retried")
