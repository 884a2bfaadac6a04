"""What others notice while some do their worst: three crowds and a huge fleet at once, and beside them a tenant who
runs short tasks and watches the health check.

`slow`   300 clients that send their request a byte at a time, and come again when they are cut off
`large`  60 clients that send 8 MB of JSON without a token, again and again
`flood`  16 callers of one tenant that search 20,000 events for what isn't there, without a pause
fleet    `nodes: 20000` of that tenant on a simulated cloud, whose machines never report

The crowds are a process of their own. A crowd more is a function in CROWDS; what it needs is prepared in `prepare`.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from chalicelib.domain.events import Event, EventType, Target
from chalicelib.domain.ids import derive
from chalicelib.store import nouns
from chalicelib.store.sqlite import SqliteStore
from tests.bench.measure import report, running_server, server_pid, submit, task, wait_local_host
from tests.harness.server import ROOT, Server

SLOW, LARGE, FLOOD, NODES = 300, 60, 16, 20_000
EVENTS, A_COMMIT = 20_000, 100
BODY = b"[" + b'"x",' * 2_000_000 + b'"x"]'
WARM, SECONDS = 3.0, 30.0
PATIENCE = 10.0  # seconds after which a health check counts as failed, and as having taken that long


# --- the crowds -------------------------------------------------------------------------------------------------------


async def slow(host: str, port: int, token: str) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        for byte in b"POST /api/runs/list HTTP/1.1\r\nHost: a\r\n" + b"X-Slow: yes\r\n" * 1000:
            writer.write(bytes([byte]))
            await writer.drain()
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1), 1.0)
                return  # it was answered or cut off
    finally:
        writer.close()


async def large(host: str, port: int, token: str) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        head = f"POST /api/runs/list HTTP/1.1\r\nHost: a\r\nContent-Length: {len(BODY)}\r\n\r\n"
        writer.write(head.encode())
        for start in range(0, len(BODY), 65_536):
            writer.write(BODY[start : start + 65_536])
            await writer.drain()
        await reader.read()
    finally:
        writer.close()


async def flood(host: str, port: int, token: str) -> None:
    body = json.dumps({"actors": [derive("bench", "nobody")]})
    head = f"POST /api/events/list HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
    reader, writer = await asyncio.open_connection(host, port)
    try:
        while True:
            writer.write(request)
            answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            await reader.readexactly(int(answer.split("content-length:")[1].split("\r\n")[0]))
    finally:
        writer.close()


CROWDS: tuple[tuple[int, Callable[[str, int, str], Awaitable[None]]], ...] = (
    (SLOW, slow),
    (LARGE, large),
    (FLOOD, flood),
)


async def crowd(url: str, token: str) -> None:
    """All of them, for ever: whoever is cut off comes again after a moment."""
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None

    async def repeat(one: Callable[[str, int, str], Awaitable[None]]) -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                await one(str(parts.hostname), int(parts.port or 0), token)
            await asyncio.sleep(0.2)

    await asyncio.gather(*(repeat(one) for count, one in CROWDS for _ in range(count)))


# --- the other tenant -------------------------------------------------------------------------------------------------


class Watch(threading.Thread):
    """Asks for the health ten times a second, on a new connection each time as a monitor does."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._address, self.walls, self.failed, self.over = urlsplit(url).netloc, list[float](), 0, threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.1):
            begun = time.perf_counter()
            connection = http.client.HTTPConnection(self._address, timeout=PATIENCE)
            try:
                connection.request("GET", "/healthcheck")
                healthy = connection.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                healthy = False
            finally:
                connection.close()
            self.failed += not healthy
            self.walls.append(time.perf_counter() - begun if healthy else PATIENCE)


def started(server: Server, name: str) -> float:
    """Seconds from a task's submission until it runs, or has run."""
    begun = time.perf_counter()
    submit(server, task(name, "true"))
    while True:
        run = server.call("/api/project/main/runs/get", {"run_name": name})
        if run["status"] in ("running", "done"):
            break
        if run["status"] in ("failed", "terminated"):
            raise SystemExit(f"{name} ended {run['status']}: {run.get('error')}")
        time.sleep(0.05)
    wall = time.perf_counter() - begun
    while server.call("/api/project/main/runs/get", {"run_name": name})["status"] != "done":
        time.sleep(0.05)
    return wall


def prepare(server: Server) -> str:
    """The noisy tenant, with a long history and a huge fleet. Returns its token."""
    token: str = server.call("/api/users/create", {"username": "noisy", "global_role": "user"})["creds"]["token"]
    project = server.call("/api/projects/create", {"project_name": "noisy"}, token=token)["project_id"]
    store, now = SqliteStore(server.data / "plane.db"), time.time_ns() // 1000
    target = (Target(type="secret", id=derive("bench", "secret"), name="s"),)
    for start in range(0, EVENTS, A_COMMIT):
        ids = [(number, derive("bench", "event", number)) for number in range(start, start + A_COMMIT)]
        store.commit(
            [
                nouns.put(Event(id=id_, project_id=project, at=now - n, type=EventType.changed, targets=target))
                for n, id_ in ids
            ]
        )
    store.close()
    (server.data / "fake-cloud" / "script.json").write_text(json.dumps({"absent": 2 * NODES}))
    fleet = {"type": "fleet", "name": "huge", "nodes": NODES, "resources": {"cpu": "2..", "gpu": "0.."}}
    spec = {"configuration": fleet, "profile": {}}
    server.call("/api/project/noisy/fleets/apply", {"plan": {"spec": spec}, "force": False}, token=token)
    return token


def ordered(server: Server) -> int:
    """How many machines of the huge fleet there are by now."""
    (fleet,) = server.call("/api/project/noisy/fleets/list", {})
    return len(fleet["instances"])


def peak_mb(pid: int) -> float:
    """The most memory that a process ever had."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return round(int(line.split()[1]) / 1024, 1)


def p99(samples: list[float]) -> float:
    return statistics.quantiles(samples, n=100, method="inclusive")[98] if len(samples) > 1 else max(samples, default=0)


def main() -> None:
    with running_server("--fake-cloud") as server:
        wait_local_host(server)
        command = [sys.executable, "-m", "tests.bench.load", server.url, prepare(server)]
        crowds = subprocess.Popen(command, cwd=ROOT)
        try:
            time.sleep(WARM)
            watch, starts, end = Watch(server.url), list[float](), time.monotonic() + SECONDS
            watch.start()
            while time.monotonic() < end:
                starts.append(started(server, f"task-{len(starts)}"))
            watch.over.set()
            watch.join()
            if crowds.poll() is not None:
                raise SystemExit("the crowds went home")
        finally:
            crowds.kill()
            crowds.wait()
        report(
            "load",
            health_p99_ms=p99(watch.walls) * 1000,
            health_failed=watch.failed,
            start_p99_s=p99(starts),
            peak_mb=peak_mb(server_pid(server)),
            tasks=len(starts),
            machines=ordered(server),
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(crowd(sys.argv[1], sys.argv[2]))
    else:
        main()
