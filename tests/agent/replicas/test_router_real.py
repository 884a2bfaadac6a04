"""A real router is told of its workers by the agent beside it, and sends requests to them."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.agent.replicas.test_replicas import Seen, launch
from tests.harness.ports import free_port
from tests.harness.server import PATIENCE, ROOT, until

SMG, ENGINE = ROOT / ".venvs" / "smg" / "bin" / "smg", ROOT / ".venvs" / "openai" / "bin" / "python"


@pytest.fixture
def seen() -> Iterator[Seen]:
    made = Seen()
    yield made
    made.replicas.close()


def call(port: int, path: str, body: Any = None) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
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


@contextmanager
def routing(folder: Path, engines: dict[int, tuple[Any, ...]], *flags: str) -> Iterator[int]:
    """The port of a router that knows nothing of the engines, which are started, too: by port, their commands."""
    if not SMG.exists() or not ENGINE.exists():
        pytest.skip("the router isn't installed here; `make test` installs it into .venvs/smg")
    router, metrics = free_port(), free_port()
    near = ("--host", "127.0.0.1", "--prometheus-host", "127.0.0.1", "--disable-tokenizer-autoload")
    ports = ("--port", str(router), "--prometheus-port", str(metrics))
    with ExitStack() as stack:
        stack.enter_context(started(folder, SMG, "launch", *near, *ports, *flags))
        for command in engines.values():
            stack.enter_context(started(folder, *command))
        for port in (router, *engines):
            until(f"port {port} to be listened on", lambda port=port: listens(port))
        yield router


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[list[int]]:
    """Of a router, and of two engines."""
    engines = [free_port(), free_port()]
    serve = (ENGINE, "-m", "uvicorn", "app.openai_app:app", "--port")
    with routing(tmp_path, {port: (*serve, str(port)) for port in engines}) as router:
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
    assert seen.replicas.route("t", "both", urls) and seen.replicas.report("t")["workers"] == "both"
    until("both to be there", lambda: workers() == set(urls))
    status, answer = call(router, "/v1/chat/completions", chat)
    assert status == 200 and answer["choices"][0]["message"]["content"]
    seen.replicas.route("t", "one", urls[:1])
    until("one to be gone", lambda: workers() == set(urls[:1]))
    assert call(router, "/v1/chat/completions", chat)[0] == 200
    assert not seen.replicas.route("another", "both", urls)
    lines = [line for line in seen.log if "router's workers" in line]
    assert (
        lines[0].startswith("the router's workers: 2 wanted, 2 added") and "1 wanted, 0 added, 1 removed" in lines[-1]
    )


def rows(router: int) -> dict[str, tuple[Any, ...]]:
    """What the router says of each worker: by address, its kind, bootstrap port and status."""
    found = call(router, "/workers")[1]["workers"]
    return {row["url"]: (row["worker_type"], row.get("bootstrap_port"), row["status"]) for row in found}


class Half(BaseHTTPRequestHandler):
    """An engine that prefills, or decodes, and answers when it may."""

    role, may, calls = "", threading.Event(), list[Any]()

    def do_GET(self) -> None:
        info = {"model_path": "m", "served_model_name": "m", "disaggregation_mode": self.role}
        bodies = {
            "/server_info": {**info, "disaggregation_bootstrap_port": 8998},
            "/v1/models": {"object": "list", "data": [{"id": "m", "object": "model"}]},
            "/model_info": {"model_path": "m", "is_generation": True},
            "/health": {},
        }
        self._answer(bodies.get(self.path.partition("?")[0]))

    def do_POST(self) -> None:
        self.calls.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.may.wait(PATIENCE)
        choice = {"index": 0, "message": {"role": "assistant", "content": self.role}, "finish_reason": "stop"}
        used = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        self._answer(
            {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": used}
        )

    def _answer(self, bodies: Any) -> None:
        body = json.dumps(bodies).encode()
        self.send_response(404 if bodies is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def half(role: str) -> Iterator[tuple[type[Half], str]]:
    handler = type(role, (Half,), {"role": role, "may": threading.Event(), "calls": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield handler, f"http://127.0.0.1:{server.server_port}"
        finally:
            handler.may.set()
            server.shutdown()
            thread.join()


CHAT = {"model": "m", "messages": [{"role": "user", "content": "Say hello"}]}


def test_prefill_and_decode_each_get_their_part_and_one_that_goes_ends_what_it_has(seen: Seen, tmp_path: Path) -> None:
    with ExitStack() as stack:
        prefill, first = stack.enter_context(half("prefill"))
        decode, second = stack.enter_context(half("decode"))
        router = stack.enter_context(routing(tmp_path, {}, "--pd-disaggregation"))
        seen.replicas.watch("t", lambda: launch(1, router, router=True))
        seen.until(listens=True, workers="")
        seen.replicas.route("t", "both", [first, second])
        roles = {first: ("prefill", 8998, "ready"), second: ("decode", None, "ready")}
        until("both to be there", lambda: rows(router) == roles)
        seen.until(listens=True, workers="both", cleared="both")
        prefill.may.set()
        answers = list[Any]()
        client = threading.Thread(target=lambda: answers.append(call(router, "/v1/chat/completions", CHAT)))
        client.start()
        until("the request to reach it", lambda: bool(decode.calls))
        seen.replicas.route("t", "one", [first])
        until("it to drain", lambda: rows(router).get(second, ("", None, ""))[2] == "draining")
        assert seen.replicas.report("t")["cleared"] == "both", "it still has a request"
        decode.may.set()
        client.join(PATIENCE)
        assert answers[0][0] == 200 and answers[0][1]["choices"][0]["message"]["content"] == "decode"
        parts = [(each["bootstrap_port"], each["bootstrap_room"]) for each in (prefill.calls[0], decode.calls[0])]
        assert parts[0] == parts[1] and parts[0][0] == 8998, "they meet where the one that prefills said"
        seen.until(listens=True, workers="one", cleared="one")


def test_engines_that_speak_grpc_are_asked_by_it(seen: Seen, tmp_path: Path) -> None:
    grpc = (SMG.parent / "python", Path(__file__).parents[1] / "grpc_engine.py")
    vllm, sglang, plain = free_port(), free_port(), free_port()
    engines = {
        vllm: (*grpc, str(vllm), "vllm", "kv_producer"),
        sglang: (*grpc, str(sglang), "sglang", "prefill"),
        plain: (*grpc, str(plain), "vllm", "kv_both"),
    }
    with routing(tmp_path, engines, "--pd-disaggregation") as router:
        seen.replicas.watch("t", lambda: launch(1, router, router=True))
        seen.until(listens=True, workers="")
        seen.replicas.route("t", "all", [f"http://127.0.0.1:{port}" for port in engines])
        wanted = {
            f"grpc://127.0.0.1:{vllm}": ("prefill", None, "ready"),
            f"grpc://127.0.0.1:{sglang}": ("prefill", 8998, "ready"),
            f"grpc://127.0.0.1:{plain}": ("regular", None, "ready"),
        }
        until("all to be there", lambda: rows(router) == wanted)
        seen.replicas.route("t", "none", [])
        until("all to be gone", lambda: rows(router) == {})
