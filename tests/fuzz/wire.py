"""A share of the calls over sockets: a real server, several hostile clients at once, and one honest caller beside them.

What the dispatcher never sees is tried here: heads that are no HTTP, bodies shorter or longer than they say, clients
that leave in the middle. The honest caller's waits are measured, and so is the memory of the server.
"""

from __future__ import annotations

import http.client
import random
import resource
import socket
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from chalicelib.api.dispatch import Request
from tests.api.rig import task
from tests.fuzz.calls import draw
from tests.fuzz.play import Find
from tests.fuzz.shapes import spoilt
from tests.fuzz.tenants import TENANTS, Handles
from tests.fuzz.watch import Caller, canaries
from tests.harness.server import Server

CLIENTS = 4
RAW = 0.1  # of the calls are spoilt as HTTP
WAIT = 5.0  # seconds that the honest caller may wait at most
GROWTH = 300 << 20  # bytes that the server may grow by
PATIENCE = 120.0
# These change who may see what, which is judged in process, where each call is alone.
LEFT_OUT = ("_members", "/users/update", "/update", "/users/delete", "/projects/delete", "/refresh_token")


@dataclass
class Over:
    """What the calls over sockets did."""

    planned: int = 0
    calls: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    finds: list[Find] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)  # seconds, of the honest caller
    growth: int = 0

    def __str__(self) -> str:
        waits = sorted(self.waits) or [0.0]
        half, late, last = (waits[int((len(waits) - 1) * part)] * 1e3 for part in (0.5, 0.99, 1))
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.kinds.items()))
        return (
            f"over sockets: {self.calls} calls by {CLIENTS} clients ({kinds}); another tenant waited {half:.0f} ms "
            f"(median of {len(waits)}), {late:.0f} ms (99%), {last:.0f} ms at most; the server grew by "
            f"{self.growth >> 20} MiB"
        )


@dataclass
class Far:
    """The tenants on the real server."""

    server: Server
    callers: list[Caller] = field(default_factory=list)
    honest: Caller = field(default_factory=lambda: Caller("calm-user", None, "calm"))

    def handles_of(self, tenant: str) -> Handles:
        return {
            "project_name": [tenant], "run_name": ["seen"], "runs_names": [["seen"]], "name": ["seen"],
            "names": [["seen"]], "repo_id": ["none"], "username": [f"{tenant}-user"], "instance": ["x"], "task": ["x"],
            "run_id": ["6628ef34-2e9a-4af5-aab4-144f175852f7"],
        }  # fmt: skip

    def build(self) -> None:
        for tenant in (*TENANTS, "calm"):
            self.server.call("/api/projects/create", {"project_name": tenant})
            made = self.server.call("/api/users/create", {"username": f"{tenant}-user", "global_role": "user"})
            member = {"username": f"{tenant}-user", "project_role": "admin"}
            self.server.call(f"/api/projects/{tenant}/add_members", {"members": [member]})
            token = made["creds"]["token"]
            self.callers.append(Caller(f"{tenant}-user", token, tenant, made["id"]))
            secret = {"name": "seen", "value": f"canary-{tenant}_secret"}
            self.server.call(f"/api/project/{tenant}/secrets/create_or_update", secret, token=token)
            spec = {**task("seen", env={"TEXT": f"canary-{tenant}_env"}), "profile": {"name": "default"}}
            plan: Any = {"plan": {"run_spec": spec, "current_resource": None}, "force": False}
            self.server.call(f"/api/project/{tenant}/runs/apply", plan, token=token)
        self.honest = self.callers.pop()
        self.callers += [Caller("nobody", None, "red"), Caller("forger", "0" * 32, "blue")]


def send_some(seed: int, calls: int) -> Over:
    """So many calls to a server of our own; the honest caller goes on until the last is answered."""
    over = Over(planned=calls)
    if not calls:
        return over
    with tempfile.TemporaryDirectory() as home:
        server = Server(Path(home), flags=("--no-local-fleet", "-n")).start()
        try:
            far = Far(server)
            far.build()
            _besiege(far, seed, calls, over)
        finally:
            server.close()
        for line in server.lines:
            if "Traceback" in line or "error id" in line:
                over.finds.append(Find(over.planned, "the server logs a failure", line))
    return over


def _besiege(far: Far, seed: int, calls: int, over: Over) -> None:
    over_with = threading.Event()
    pid = far.server.process.pid if far.server.process else 0
    honest = threading.Thread(target=_repeat, args=(far, over_with, over))
    before = _resident(pid)
    honest.start()
    try:
        with ThreadPoolExecutor(CLIENTS) as clients:
            for number, (kind, finds) in enumerate(clients.map(lambda n: _one(far, seed, n), range(calls))):
                over.calls += 1
                over.kinds[kind] += 1
                over.finds += [Find(number, f"over a socket: {what}") for what in finds]
    finally:
        over_with.set()
        honest.join()
    over.growth = _resident(pid) - before
    if over.growth > GROWTH:
        over.finds.append(Find(over.planned, f"the server grew by {over.growth >> 20} MiB"))


def _repeat(far: Far, over_with: threading.Event, over: Over) -> None:
    """The honest caller: a tenant that asks for its run, on a connection of its own, again and again."""
    headers = {"authorization": f"Bearer {far.honest.token}", "content-type": "application/json"}
    request = Request("POST", "/api/project/calm/runs/get", {}, headers, b'{"run_name": "seen"}')
    while not over_with.wait(0.02):
        begun = time.monotonic()
        status, body = _send(far, request)
        wait = time.monotonic() - begun
        over.waits.append(wait)
        if status != 200 or wait > WAIT:
            over.finds.append(
                Find(over.planned, "the honest caller is not served", f"{wait:.1f} s, {status} {body[:300]!r}")
            )


def _one(far: Far, seed: int, number: int) -> tuple[str, list[str]]:
    rng = random.Random(f"{seed}/wire/{number}")
    caller, request = draw(far, rng)
    while request.path.endswith(LEFT_OUT):
        caller, request = draw(far, rng)
    if rng.random() < RAW:
        return "spoilt", _spoil(far, request, rng)
    try:
        status, body = _send(far, request)
    except (http.client.InvalidURL, ValueError, UnicodeEncodeError):
        return "unsayable", []  # no client can say it
    finds = [f"status {status} for {request}"] if status >= 500 else []
    strangers = {name for name in canaries(body) if name.partition("_")[0] != caller.home or caller.token is None}
    return str(status), finds + [f"{caller.name} reads canary-{name}" for name in sorted(strangers)]


def _send(far: Far, request: Request) -> tuple[int, bytes]:
    parts = urlsplit(far.server.url)
    path = quote(request.path, safe="/%", errors="surrogatepass")
    path += f"?{urlencode(request.query)}" if request.query else ""
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)
    try:
        connection.request(request.method, path, request.body or None, dict(request.headers))
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def _spoil(far: Far, request: Request, rng: random.Random) -> list[str]:
    """Bytes that are nearly HTTP. Any answer will do, and none: the server must only live, and answer the others."""
    parts = urlsplit(far.server.url)
    length = rng.choice((len(request.body), len(request.body) + 5, 0, -1, 10**12, "x"))
    head = f"{request.method} {quote(request.path, errors='surrogatepass')} HTTP/1.1\r\nHost: x\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    head += rng.choice(
        (f"Content-Length: {length}\r\n", "Transfer-Encoding: chunked\r\n", "Expect: 100-continue\r\n", "")
    )
    data = head.encode("utf-8", "replace") + b"Connection: close\r\n\r\n" + request.body
    data = spoilt(data, rng) if rng.random() < 0.5 else data
    with socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65_536)
        except (ConnectionError, BrokenPipeError):
            return []
        except TimeoutError:
            return [f"no answer and no end within {PATIENCE:g} s to {data[:200]!r}"]
    return [f"an answer {answer[:60]!r} to {data[:300]!r}"] if answer.startswith(b"HTTP/1.1 5") else []


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
