"""A service of a real server whose load steps up: how soon it is decided that it needs another replica, and how soon
that answers. The load is 50 requests a second where one replica is to get five, from a quiet moment on, and nothing
delays the decision (`scale_up_delay: 0s`): what is measured is the door's report, its way to the planner, and the
start of a process."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.bench.measure import report, running_server, submit, wait_local_host
from tests.harness.relays import answers, service
from tests.harness.server import Server, until

RUNS, PER_S = 3, 50
SCALING = {"metric": "rps", "target": 5, "window": "30s", "scale_up_delay": "0s", "scale_down_delay": "10m"}


def main() -> None:
    decided, answered = list[float](), list[float]()
    with running_server("--local-hosts", "3") as server:
        wait_local_host(server)
        for number in range(RUNS):
            name = f"steps-{number}"
            spec = service(name)
            spec["configuration"] |= {"replicas": "1..2", "scaling": SCALING}
            submit(server, spec)
            until(f"{name} to answer", lambda name=name: answers(server, name))
            first, second = asyncio.run(stepped(server, name))
            decided.append(first)
            answered.append(second)
            server.cli("stop", name, "-y")
    report("rollout", step_decided_s=decided, step_answered_s=answered)


async def stepped(server: Server, name: str) -> tuple[float, float]:
    """Seconds from the first request of the step to the decision, and to the first answer of the new replica."""
    loading = asyncio.create_task(load(server, name))
    began = time.monotonic()
    try:
        await asyncio.to_thread(until, "the decision", lambda: len(jobs(server, name)) > 1, every=0.1)
        decided = time.monotonic() - began
        await asyncio.to_thread(until, "both to answer", lambda: len(seen) > 1, every=0.1)
        return decided, time.monotonic() - began
    finally:
        loading.cancel()
        seen.clear()


seen: set[str] = set()  # the replicas that have answered


async def load(server: Server, name: str) -> None:
    """Requests at the same distance from each other, on one connection."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    request = f"GET /proxy/services/main/{name}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    due = time.monotonic()
    while True:
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(head.partition("content-length: ")[2].split("\r")[0]))
        seen.add(head.partition("x-replica: ")[2].split("\r")[0])
        due += 1 / PER_S
        await asyncio.sleep(max(0.0, due - time.monotonic()))


def jobs(server: Server, name: str) -> list[dict[str, Any]]:
    return list(server.call("/api/project/main/runs/get", {"run_name": name})["jobs"])


if __name__ == "__main__":
    main()
