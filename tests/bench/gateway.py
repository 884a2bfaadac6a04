"""A gateway's nginx beside a direct connection: what it adds to a request, what one worker carries, streams, changes of
its services under load, and its memory. The upstream is an nginx, too, where the figure is about speed.

Every request has a token whose verdict is known, a rate limit that lets it pass, and is counted. A worker shares the
machine with the upstream and the clients, so what it carries is told for a second of its own CPU. How fast a machine's
network stack is decides most of it, so an nginx that only passes on, with as many headers, is measured beside ours.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from chalicelib.agent.gateway.nginx import MODULES
from chalicelib.domain.serving import Served, ServedReplica
from chalicelib.domain.specs.services import RateLimit
from tests.bench.measure import report, threads_cpu_of
from tests.harness.ports import free_port
from tests.harness.server import until
from tests.serving.caller import Caller
from tests.serving.door import TOKEN, Replica, service
from tests.serving.nginx_door import DOMAIN, NginxDoor

HOST = f"app.{DOMAIN}"
LINES = f"Host: {HOST}\r\nAuthorization: Bearer {TOKEN}\r\n"
PLAIN = """
worker_processes 1; pid %(folder)s/plain; error_log %(folder)s/log;
events { worker_connections 4096; }
http { access_log off; keepalive_requests 100000000; proxy_http_version 1.1; proxy_buffering off;
  upstream replicas { server 127.0.0.1:%(upstream)d; keepalive 128; keepalive_requests 1000000; }
  server { listen 127.0.0.1:%(port)d;
    proxy_set_header Host $http_host; proxy_set_header Connection "";
    proxy_set_header X-Real-IP $remote_addr; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-Host $http_host;
    location / { proxy_pass http://replicas; }
  } }
"""
UPSTREAM = """
load_module %(modules)s/ndk_http_module.so; load_module %(modules)s/ngx_http_lua_module.so;
worker_processes 1; pid %(folder)s/upstream; error_log %(folder)s/log;
events { worker_connections 4096; }
http { access_log off; keepalive_requests 100000000;
  server { listen 127.0.0.1:%(port)d;
    location / { default_type application/json; return 200 '%(body)s'; }
    location /stream { content_by_lua_block {
      for number = 1, tonumber(ngx.var.arg_n) do
        ngx.print('data: {"n": ' .. number .. '}\\n\\n')
        ngx.flush(true)
        ngx.sleep(tonumber(ngx.var.arg_gap))
      end
      ngx.print('data: [DONE]\\n\\n')
    } }
  } }
"""
BODY = "{" + '"a": "' + "x" * 430 + '"}'
PAIRS, STREAMS, EVENTS, GAP = 3000, 300, 30, 0.1
CHANGES, CLIENTS, LONG = 20, 32, 20
WRK_SECONDS = 4


class Listening(Protocol):
    """A door."""

    @property
    def address(self) -> tuple[str, int]: ...


class Changing(Listening, Protocol):
    """One that is told of services."""

    def serve(self, *services: Served) -> None: ...


@contextmanager
def started(folder: Path, name: str, text: str, **values: int) -> Iterator[subprocess.Popen[bytes]]:
    conf = folder / f"{name}.conf"
    conf.write_text(text % {"folder": folder, **values})
    command = [shutil.which("nginx", path="/usr/sbin:/usr/bin") or "nginx", "-e", str(folder / "log")]
    with subprocess.Popen([*command, "-c", str(conf), "-g", "daemon off;"]) as process:
        try:
            until(name, (folder / name).exists, seconds=5)
            yield process
        finally:
            process.terminate()


@contextmanager
def upstream(folder: Path) -> Iterator[ServedReplica]:
    port = free_port()
    text = UPSTREAM.replace("%(modules)s", MODULES).replace("%(body)s", BODY)
    with started(folder, "upstream", text, port=port):
        yield ServedReplica(job_id="fast", instance_id="i", port=port, address="127.0.0.1", ready=True)


@dataclass(frozen=True)
class Plain:
    """An nginx that only passes on."""

    address: tuple[str, int]
    worker: int


@contextmanager
def plain(folder: Path, port_of_upstream: int) -> Iterator[Plain]:
    port = free_port()
    with started(folder, "plain", PLAIN, port=port, upstream=port_of_upstream) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        until("its worker", lambda: bool(children.read_text().split()), seconds=5)
        yield Plain(("127.0.0.1", port), int(children.read_text().split()[0]))


def opened(*replicas: Replica | ServedReplica) -> Served:
    limits = (RateLimit(rps=1e9, burst=10**9),)
    return service(replicas, auth=True, rate_limits=limits)


def in_turn(*places: tuple[str, int]) -> list[list[float]]:
    """Milliseconds of requests to each of these, one after the other: what slows one down slows down all."""
    request = f"GET / HTTP/1.1\r\n{LINES}\r\n".encode()
    taken: list[list[float]] = [[] for _ in places]
    with ExitStack() as stack:
        callers = [stack.enter_context(Caller(place)) for place in places]
        for _ in range(PAIRS):
            for caller, its in zip(callers, taken, strict=True):
                began = time.perf_counter()
                caller.send(request)
                caller.socket.recv(65536)
                its.append((time.perf_counter() - began) * 1000)
    return [each[PAIRS // 10 :] for each in taken]


def added(taken: list[float], direct: list[float]) -> float:
    return statistics.median(through - straight for through, straight in zip(taken, direct, strict=True))


def carried(door: Listening, worker: int) -> tuple[float, float]:
    """Requests a second, and a CPU second of the worker, of 32 clients."""
    before = threads_cpu_of(worker)
    per_s = rate(door.address[1])
    return per_s, per_s * WRK_SECONDS / (threads_cpu_of(worker) - before)


def rate(port: int) -> float:
    """Requests a second of 32 clients. These are a program in C, which takes a twentieth of the time that the server's
    door takes for a request."""
    url = f"http://127.0.0.1:{port}/"
    token = f"Authorization: Bearer {TOKEN}"
    command = ["wrk", "-t1", "-c32", f"-d{WRK_SECONDS}s", "-H", f"Host: {HOST}", "-H", token, url]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in output:
        raise SystemExit(output)
    return int(next(line for line in output.splitlines() if " requests in " in line).split()[0]) / WRK_SECONDS


async def events(address: tuple[str, int], count: int, gap: float) -> list[float]:
    """The gaps between the events of one stream; raises if it breaks."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(f"GET /stream?n={count}&gap={gap} HTTP/1.1\r\n{LINES}\r\n".encode())
    times = []
    while True:
        line = await reader.readline()
        if line.startswith(b"data: {"):
            times.append(time.perf_counter())
        elif line.startswith(b"data: [DONE]"):
            break
        elif not line:
            raise SystemExit(f"a stream broke after {len(times)} events")
    writer.close()
    return [(later - earlier) * 1000 for earlier, later in pairwise(times)]


async def streams(address: tuple[str, int]) -> float:
    """The 99th percentile of the gaps of many streams."""
    found = await asyncio.gather(*(events(address, EVENTS, GAP) for _ in range(STREAMS)))
    gaps = sorted(gap for each in found for gap in each)
    return gaps[len(gaps) * 99 // 100]


async def changes(door: Changing, served: Served, one: Replica, two: Replica) -> tuple[int, int]:
    """Requests that were answered, and failed, while the replicas change; streams must not break."""
    ok = failed = 0
    over = False

    async def client() -> None:
        nonlocal ok, failed
        reader, writer = await asyncio.open_connection(*door.address)
        while not over:
            writer.write(f"GET /delay?s=0.02 HTTP/1.1\r\n{LINES}\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0])
            await reader.readexactly(size)
            if head.startswith(b"HTTP/1.1 200"):
                ok += 1
            else:
                failed += 1
        writer.close()

    clients = [asyncio.create_task(client()) for _ in range(CLIENTS)]
    long = [asyncio.create_task(events(door.address, 90, 0.1)) for _ in range(LONG)]
    sets = [(one,), (one, two), (two,), (one, two)]
    for number in range(CHANGES):
        await asyncio.sleep(0.4)
        now = tuple(each.served() for each in sets[number % len(sets)])
        await asyncio.to_thread(door.serve, served.with_(replicas=now))
    await asyncio.gather(*long)
    over = True
    await asyncio.gather(*clients)
    return ok, failed


def applied(door: NginxDoor) -> tuple[list[float], list[float]]:
    """Milliseconds to tell nginx of 100 services with 300 replicas, and of a change of one of them."""
    every, one = [], []
    for number in range(10):
        replicas = [
            ServedReplica(job_id=f"j{number}-{place}", instance_id="i", port=1, address="10.0.0.1", ready=True)
            for place in range(3)
        ]
        services = [service(replicas, name=f"app-{place}", auth=True) for place in range(100)]
        configuration = {"services": [door._entry(each) for each in services]}
        began = time.perf_counter()
        door.configure(configuration)
        every.append((time.perf_counter() - began) * 1000)
        configuration = {"services": [{**configuration["services"][0], "replicas": []}, *configuration["services"][1:]]}
        began = time.perf_counter()
        door.configure(configuration)
        one.append((time.perf_counter() - began) * 1000)
    return every, one


def main() -> None:
    if not (shutil.which("wrk") and Path(MODULES, "ngx_http_lua_module.so").exists()):
        needs = "apt-get install nginx libnginx-mod-http-lua lua-cjson wrk"
        print(json.dumps({"bench": "gateway", "left_out": f"it needs `{needs}`"}))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "gateway").mkdir()
        door = NginxDoor(folder / "gateway")
        try:
            measured(door, folder)
        finally:
            door.stop()


def measured(door: NginxDoor, folder: Path) -> None:
    door.allow(TOKEN, "main")
    with upstream(folder) as fast:
        door.serve(opened(fast))
        worker = door.nginx.pids()[1]
        with plain(folder, fast.port) as bare:
            straight, through, through_bare = in_turn(("127.0.0.1", fast.port), door.address, bare.address)
            pairs = [(carried(door, worker), carried(bare, bare.worker)) for _ in range(5)]
        direct = asyncio.run(streams(("127.0.0.1", fast.port)))
        gap = asyncio.run(streams(door.address))
    one, two = Replica("one"), Replica("two")
    try:
        served = opened(one)
        door.serve(served)
        ok, failed = asyncio.run(changes(door, served, one, two))
    finally:
        one.stop()
        two.stop()
    every, single = applied(door)
    report(
        "gateway",
        added_ms=[added(through, straight)],
        p99_ms=[sorted(through)[len(through) * 99 // 100]],
        plain_added_ms=[added(through_bare, straight)],
        per_s=[rate_and_cost[0] for rate_and_cost, _ in pairs],
        per_cpu_s=[rate_and_cost[1] for rate_and_cost, _ in pairs],
        plain_per_cpu_s=[its[1] for _, its in pairs],
        stream_gap_ms=[gap],
        stream_gap_direct_ms=[direct],
        under_change=[float(ok)],
        failed_under_change=[float(failed)],
        apply_ms=every,
        apply_one_ms=single,
        rss_mb=[door.memory() / 2**20],
    )


if __name__ == "__main__":
    main()
