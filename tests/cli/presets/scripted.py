"""A scripted language model and the services that it proposes: one small HTTP server, in this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from cli.presets.trial import FEW, MANY
from tests.cli.plane import Server

TEMPLATE = 7  # tokens that a chat's template adds


def answer(hypothesis: str = "the defaults", repo: str = "Qwen/Qwen3-8B", **service: Any) -> str:
    """What a language model answers."""
    usual = {"image": "vllm/vllm-openai", "commands": [f"vllm serve {repo}"], "port": 8000}
    usual |= {"resources": {"gpu": "A100:80GB:1"}}
    return json.dumps({"hypothesis": hypothesis, "repo": repo, "service": {**usual, **service}})


@dataclass
class Service:
    """How a service behaves."""

    context: int = 100_000  # tokens that it takes
    refusals: int = 0  # requests of the load that it refuses
    counts: bool = True  # whether it says how many tokens there were
    on_request: Callable[[], None] = lambda: None


@dataclass
class Scripted:
    """`answers`: texts, or (status, document) pairs, one after the other; the last one for ever."""

    answers: list[Any] = field(default_factory=lambda: [answer()])
    services: dict[str, Service] = field(default_factory=dict)  # by run; any other is a usual one
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)  # of whoever asked the language model
    served: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # requests to services
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def complete(self, body: dict[str, Any], key: str) -> tuple[int, Any]:
        self.asked.append(body)
        self.keys.append(key)
        found = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if isinstance(found, tuple):
            return found
        return 200, {"choices": [{"message": {"role": "assistant", "content": found}}]}

    def prompts(self) -> list[str]:
        """What each request asks for, the newest message alone."""
        return [body["messages"][-1]["content"] for body in self.asked]

    def stream(self, name: str, body: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
        service = self.services.get(name, Service())
        service.on_request()
        with self.lock:
            self.served.append((name, body))
            words = sum(len(message["content"].split()) for message in body["messages"])
            tokens, produced = words + TEMPLATE, body["max_tokens"]
            if tokens + produced > service.context:
                return 400, [{"error": {"message": f"at most {service.context} tokens"}}]
            if service.refusals and FEW < words < MANY:
                service.refusals -= 1
                return 503, [{"error": {"message": "overloaded"}}]
        chunks: list[dict[str, Any]] = [{"choices": [{"delta": {"content": "word "}}]} for _ in range(produced)]
        usage = {"prompt_tokens": tokens, "completion_tokens": produced}
        return 200, [*chunks, *([{"choices": [], "usage": usage}] if service.counts else [])]


@contextmanager
def running(scripted: Scripted) -> Iterator[Scripted]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/llm/v1/chat/completions":
                key = self.headers.get("Authorization", "").removeprefix("Bearer ")
                status, document = scripted.complete(body, key)
                self.reply(status, json.dumps(document).encode())
                return
            name = self.path.removeprefix("/services/").partition("/")[0]
            assert self.path == f"/services/{name}/v1/chat/completions", self.path
            status, events = scripted.stream(name, body)
            lines = [f"data: {json.dumps(event)}\n\n" for event in events]
            self.reply(status, "".join([*lines, "data: [DONE]\n\n"]).encode())

        def reply(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Nobody reads it."""

    server = Server(("127.0.0.1", 0), Handler)
    scripted.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield scripted
    finally:
        server.shutdown()
        server.server_close()
