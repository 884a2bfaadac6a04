"""A real router is told of its workers by the agent beside it, and sends requests to them."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.agent.test_replicas import Seen, launch
from tests.harness.server import ROOT, until

SMG, ENGINE = ROOT / ".venvs" / "smg" / "bin" / "smg", ROOT / ".venvs" / "openai" / "bin" / "python"


@pytest.fixture
def seen() -> Iterator[Seen]:
    made = Seen()
    yield made
    made.replicas.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def call(port: int, path: str, body: Any = None) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, None


@contextmanager
def started(folder: Path, *command: Any) -> Iterator[None]:
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def listens(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    return False


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[list[int]]:
    """Of a router, and of two engines that it knows nothing of."""
    if not SMG.exists() or not ENGINE.exists():
        pytest.skip("the router isn't installed here; `make test` installs it into .venvs/smg")
    found = [free_port() for _ in range(4)]
    router, metrics, *engines = found
    with ExitStack() as stack:
        near = ("--host", "127.0.0.1", "--prometheus-host", "127.0.0.1")
        stack.enter_context(
            started(tmp_path, SMG, "launch", *near, "--port", str(router), "--prometheus-port", str(metrics))
        )
        for port in engines:
            serve = ("-m", "uvicorn", "app.openai_app:app", "--port", str(port))
            stack.enter_context(started(tmp_path, ENGINE, *serve))
        for port in (router, *engines):
            until(f"port {port} to be listened on", lambda port=port: listens(port), seconds=60)
        yield [router, *engines]


def test_it_is_told_of_workers_and_sends_requests_to_them(seen: Seen, ports: list[int]) -> None:
    router, *engines = ports
    urls = [f"http://127.0.0.1:{port}" for port in engines]
    chat = {"model": "gpt-4.1", "messages": [{"role": "user", "content": "Say hello"}]}
    assert call(router, "/v1/chat/completions", chat)[0] != 200

    def workers() -> set[str]:
        return {each["url"] for each in call(router, "/workers")[1]["workers"] if each["status"] == "ready"}

    seen.replicas.watch("t", lambda: launch(1, router, router=True))
    seen.until(listens=True, workers="")
    assert seen.replicas.route("t", "both", urls) and seen.replicas.told("t")["workers"] == "both"
    until("both to be there", lambda: workers() == set(urls), seconds=30)
    status, answer = call(router, "/v1/chat/completions", chat)
    assert status == 200 and answer["choices"][0]["message"]["content"]
    seen.replicas.route("t", "one", urls[:1])
    until("one to be gone", lambda: workers() == set(urls[:1]), seconds=30)
    assert call(router, "/v1/chat/completions", chat)[0] == 200
    assert not seen.replicas.route("another", "both", urls)
    said = [line for line in seen.log if "router's workers" in line]
    assert said[0].startswith("the router's workers: 2 wanted, 2 added") and "1 wanted, 0 added, 1 removed" in said[-1]
