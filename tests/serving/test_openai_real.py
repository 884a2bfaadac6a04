"""OpenAI's own client asks everything of a server written by others, by way of a door."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from chalicelib.agent.process_tree import descendants
from chalicelib.domain.serving import Served, ServedModel, ServedReplica
from tests.harness.server import until
from tests.serving.door import STRANGER, TOKEN, service
from tests.serving.embedded import EmbeddedDoor, opened

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venvs" / "openai" / "bin"
CLIENT = ROOT / "tests" / "serving" / "openai_client.py"
MODEL = "gpt-4.1"
PLAIN = (
    "models",
    "chat",
    "chat_with_a_picture",
    "chat_stream",
    "completions",
    "embeddings",
    "responses",
    "responses_stream",
    "audio",
)


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in held]
    for each in held:
        each.close()
    return ports


@pytest.fixture(scope="module")
def engine() -> Iterator[int]:
    """The port of the server from PyPI. It runs as a process with a child for each API that it knows."""
    if not (BIN / "mock-ai-api").exists():
        pytest.skip("OpenAI's client isn't installed here; `make test` installs it into .venvs/openai")
    port, other = free_ports(2)
    # Not from here: it would take our `app.py` for a package of its own.
    command = [BIN / "mock-ai-api", "--openai-port", str(port), "--anthropic-port", str(other)]
    process = subprocess.Popen(command, cwd=BIN, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

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


def ask(base_url: str, *calls: str, host: str = "") -> dict[str, str]:
    settings = {
        "base_url": base_url, "api_key": TOKEN, "model": MODEL, "broken": f"{MODEL}:mock-503", "empty": "empty",
        "stranger": STRANGER, "host": host,
    }  # fmt: skip
    command = [BIN / "python", CLIENT, json.dumps(settings), *calls]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return {said["call"]: said["outcome"] for said in map(json.loads, done.stdout.splitlines())}


def all_well(outcomes: dict[str, str], *calls: str) -> None:
    assert outcomes == dict.fromkeys(calls, "ok")


def test_every_call_through_the_address_of_all_models(engine: int, door: EmbeddedDoor) -> None:
    door.serve(served(engine, MODEL), served(engine, f"{MODEL}:mock-503"))
    _, path = door.models_of("main")
    all_well(ask(url(door, path), *PLAIN), *PLAIN)
    all_well(ask(url(door, f"{path}v1"), *PLAIN), *PLAIN)


def test_every_call_through_the_services_own_addresses(engine: int, door: EmbeddedDoor) -> None:
    one = served(engine, MODEL)
    door.serve(one)
    all_well(ask(url(door, f"/proxy/services/main/{one.run_name}/v1"), *PLAIN), *PLAIN)
    all_well(ask(url(door, "/v1"), *PLAIN, host=door.host_of(one)), *PLAIN)


def test_what_a_door_refuses_and_an_engine_fails_at_is_what_the_client_expects(engine: int, door: EmbeddedDoor) -> None:
    empty = served(engine, "empty", ready=False)
    door.serve(served(engine, MODEL), served(engine, f"{MODEL}:mock-503"), empty)
    _, path = door.models_of("main")
    calls = ("no_such_model", "wrong_key", "failing", "time_out", "nobody_ready")
    all_well(ask(url(door, path), *calls), *calls)


def test_a_client_that_comes_again_finds_a_replica(engine: int, door: EmbeddedDoor) -> None:
    """Its first try was held in vain; it waits for as long as the answer says."""
    empty = served(engine, "empty", ready=False)
    door.serve(empty)
    _, path = door.models_of("main")
    outcomes: dict[str, str] = {}

    def client() -> None:
        outcomes.update(ask(url(door, path), "retried"))

    thread = threading.Thread(target=client)
    thread.start()

    def held() -> int:
        found = door.traffic(empty)
        return 0 if found is None else found.held

    until("the first try", lambda: held() == 1, seconds=20)
    until("it to be over", lambda: held() == 0, seconds=20)
    door.serve(empty.with_(replicas=tuple(one.with_(ready=True) for one in empty.replicas)))
    thread.join()
    all_well(outcomes, "retried")
