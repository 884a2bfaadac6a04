"""The server's own door beside a direct connection: what it adds to a request, what it carries, streams, a replica that
is killed under load, and twenty changes of the replicas under 32 clients and 20 streams. The door is in a process of
its own, as in `dstack server`; the upstream is an nginx.

Every request has a token whose verdict is known, a rate limit that lets it pass, and is counted. The door shares the
machine with the upstream and the clients, so what it carries is told for a second of its own CPU, too.

Nobody but the door is what is measured: the clients of `per_s` are wrk, which gets 18,000 to 24,000 requests a second
from that nginx on the same two cores directly (`direct_per_s`), and all clients are in another process than the door.
Single requests go in turn, one direct and one through the door, and streams come once from each, of the same clients; a
machine that is busy with something else shows in both.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chalicelib.agent.gateway.nginx import MODULES
from chalicelib.domain.serving import Served
from chalicelib.serving.door import DoorSettings
from tests.bench.gateway import CLIENTS, LINES, added, carried, changes, in_turn, rate, streams, upstream
from tests.bench.gateway import opened as limited
from tests.bench.measure import report
from tests.harness.server import ROOT
from tests.serving.door import TOKEN, Replica
from tests.serving.embedded import opened

PROJECT, DOMAIN = "example", "test"  # the host of the gateway's bench is app.example.test
KILLED_AFTER, LOAD = 1.0, 3.0  # seconds


def serve_door() -> None:
    """A door in this process, until the standard input ends: it serves what each line there says."""
    with opened(DoorSettings(domain=DOMAIN)) as door:
        door.allow(TOKEN, PROJECT)
        print(door.address[1], flush=True)
        for line in sys.stdin:
            door.serve(Served.model_validate_json(line))
            print("served", flush=True)


class Door:
    """What the gateway's bench needs to know of one."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._input, self._output, self.pid = process.stdin, process.stdout, process.pid
        self.address = ("127.0.0.1", int(self._output.readline()))

    def serve(self, *services: Served) -> None:
        for service in services:
            self._input.write(service.model_dump_json() + "\n")
            self._input.flush()
            assert self._output.readline() == "served\n"


@contextmanager
def door() -> Iterator[Door]:
    command = [sys.executable, "-m", "tests.bench.services", "door"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Door(process)


async def load(address: tuple[str, int], seconds: float) -> tuple[int, int]:
    """Requests that were answered, and that failed."""
    ok = failed = 0
    end = time.monotonic() + seconds

    async def client() -> None:
        nonlocal ok, failed
        reader, writer = await asyncio.open_connection(*address)
        while time.monotonic() < end:
            writer.write(f"GET /delay?s=0.01 HTTP/1.1\r\n{LINES}\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0])
            await reader.readexactly(size)
            ok, failed = (ok + 1, failed) if head.startswith(b"HTTP/1.1 200") else (ok, failed + 1)
        writer.close()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return ok, failed


async def killed(address: tuple[str, int], victim: Replica) -> tuple[int, int]:
    """The same, while one of two replicas is killed."""
    going = asyncio.create_task(load(address, LOAD))
    await asyncio.sleep(KILLED_AFTER)
    await asyncio.to_thread(victim.kill)
    return await going


def main() -> None:
    if not (shutil.which("wrk") and Path(MODULES, "ngx_http_lua_module.so").exists()):
        needs = "apt-get install nginx libnginx-mod-http-lua lua-cjson wrk"
        print(json.dumps({"bench": "services", "left_out": f"it needs `{needs}`"}))
        return
    with tempfile.TemporaryDirectory() as folder, door() as through, upstream(Path(folder)) as fast:
        through.serve(limited(fast).with_(project_name=PROJECT))
        straight, taken = in_turn(("127.0.0.1", fast.port), through.address)
        rates, direct_rates = [], []
        for _ in range(3):
            rates.append(carried(through, through.pid))
            direct_rates.append(rate(fast.port))
        direct = asyncio.run(streams(("127.0.0.1", fast.port)))
        gap = asyncio.run(streams(through.address))
        one, two = Replica("one"), Replica("two")
        try:
            through.serve(limited(one, two).with_(project_name=PROJECT))
            ok, failed = asyncio.run(killed(through.address, one))
            one.stop()
            one = Replica("one")
            changing = limited(one).with_(project_name=PROJECT)
            through.serve(changing)
            changed, lost = asyncio.run(changes(through, changing, one, two))
        finally:
            one.stop()
            two.stop()
    report(
        "services",
        added_ms=[added(taken, straight)],
        p99_ms=[sorted(taken)[len(taken) * 99 // 100]],
        per_s=[each for each, _ in rates],
        per_cpu_s=[each for _, each in rates],
        direct_per_s=direct_rates,
        stream_gap_ms=[gap],
        stream_gap_direct_ms=[direct],
        stream_gap_added_ms=[gap - direct],
        under_kill=[float(ok)],
        failed_under_kill=[float(failed)],
        under_change=[float(changed)],
        failed_under_change=[float(lost)],
    )


if __name__ == "__main__":
    serve_door() if sys.argv[1:] == ["door"] else main()
