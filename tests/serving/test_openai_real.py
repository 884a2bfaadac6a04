"""OpenAI's own client asks everything of a server written by others, by way of a door."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from chalicelib.agent.process_tree import descendants
from chalicelib.domain.serving import Served, ServedModel, ServedReplica
from tests.harness.server import until
from tests.serving import genuine_client as client
from tests.serving.door import STRANGER, TOKEN, service
from tests.serving.embedded import EmbeddedDoor, opened


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in held]
    for each in held:
        each.close()
    return ports


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

    until("the engine to listen", listens, seconds=60)
    yield port
    started = [process.pid, *descendants(process.pid)]
    for pid in reversed(started):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def door() -> Iterator[EmbeddedDoor]:
    with opened() as made:
        made.allow(TOKEN, "main")
        made.allow(STRANGER, "other")
        yield made


def served(port: int, model: str, *, ready: bool = True) -> Served:
    one = ServedReplica(job_id=f"job-of-{port}", instance_id="i1", port=port, address="127.0.0.1", ready=ready)
    name = model.replace(".", "-").replace(":", "-")
    return service((one,), name=name, auth=True, model=ServedModel(name=model), since=1_000_000)


def url(door: EmbeddedDoor, path: str) -> str:
    host, port = door.address
    return f"http://{host}:{port}{path}"


def ask(base_url: str, *calls: str, **more: str) -> dict[str, str]:
    return client.ask(
        base_url, TOKEN, *calls, broken=f"{client.MODEL}:mock-503", empty="empty", stranger=STRANGER, **more
    )


def test_every_call_through_the_address_of_all_models(engine: int, door: EmbeddedDoor) -> None:
    door.serve(served(engine, client.MODEL), served(engine, f"{client.MODEL}:mock-503"))
    _, path = door.models_of("main")
    client.all_well(ask(url(door, path), *client.PLAIN), *client.PLAIN)
    client.all_well(ask(url(door, f"{path}v1"), *client.PLAIN), *client.PLAIN)


def test_every_call_through_the_services_own_addresses(engine: int, door: EmbeddedDoor) -> None:
    one = served(engine, client.MODEL)
    door.serve(one)
    client.all_well(ask(url(door, f"/proxy/services/main/{one.run_name}/v1"), *client.PLAIN), *client.PLAIN)
    client.all_well(ask(url(door, "/v1"), *client.PLAIN, host=door.host_of(one)), *client.PLAIN)


def test_what_a_door_refuses_and_an_engine_fails_at_is_what_the_client_expects(engine: int, door: EmbeddedDoor) -> None:
    empty = served(engine, "empty", ready=False)
    door.serve(served(engine, client.MODEL), served(engine, f"{client.MODEL}:mock-503"), empty)
    _, path = door.models_of("main")
    calls = ("no_such_model", "wrong_key", "failing", "time_out", "nobody_ready")
    client.all_well(ask(url(door, path), *calls), *calls)


def test_a_client_that_comes_again_finds_a_replica(engine: int, door: EmbeddedDoor) -> None:
    """Its first try was held in vain; it waits for as long as the answer says."""
    empty = served(engine, "empty", ready=False)
    door.serve(empty)
    _, path = door.models_of("main")
    outcomes: dict[str, str] = {}

    def again() -> None:
        outcomes.update(ask(url(door, path), "retried"))

    thread = threading.Thread(target=again)
    thread.start()

    def held() -> int:
        found = door.traffic(empty)
        return 0 if found is None else found.held

    until("the first try", lambda: held() == 1, seconds=20)
    until("it to be over", lambda: held() == 0, seconds=20)
    door.serve(empty.with_(replicas=tuple(one.with_(ready=True) for one in empty.replicas)))
    thread.join()
    client.all_well(outcomes, "retried")
