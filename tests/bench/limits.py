"""What one embedded server carries on this machine: how many hosts, queued runs, requests a second and followers of a
log, until the answer to `dstack ps`, or a line of the log, takes longer than BOUND once in a hundred times.

Each load grows by steps, and ends with the last step that was within the bound, or with the last of all, so a figure is
what the server carries at least. What makes the load is on the same machine and takes its share of the cores. Hosts are
simulated: the agent's own session code, without jobs. A load has BUDGET seconds, and no further step after these.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import selectors
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.bench.burst import host_process, joined
from tests.bench.hosts import add_hosts
from tests.bench.measure import report, running_server, submit, task
from tests.harness.server import Server, until
from tests.harness.streams import Stream

BOUND = 200.0  # milliseconds
BUDGET = 25.0  # seconds for the steps of one load
HOSTS, QUEUED = (250, 500, 1_000, 2_000), (250, 1_000, 2_500, 5_000)
CALLERS, FOLLOWERS = (2, 4, 8, 16, 32, 64), (25, 100, 250, 500)
PROBES, PAUSE = 100, 0.03
SECONDS = 3.0  # of a step with callers or followers
NEWEST = {"project_name": "main", "only_active": False, "limit": 20}  # what `dstack ps` asks for


@dataclass(frozen=True)
class Carried:
    size: float = 0
    slowest_ms: float = 0.0


Measure = Callable[[int], Carried]


def climbed(steps: Sequence[int], measure: Measure, now: Callable[[], float] = time.monotonic) -> Carried:
    """The last step within the bound."""
    last, begun = Carried(), now()
    for step in steps:
        if now() - begun > BUDGET:
            break
        found = measure(step)
        if found.slowest_ms > BOUND:
            break
        last = found
    return last


def slowest(samples: Sequence[float]) -> float:
    """What one in a hundred takes: in milliseconds, of seconds."""
    return sorted(samples)[min(len(samples) - 1, int(len(samples) * 0.99))] * 1000


def probed(server: Server) -> float:
    def once() -> float:
        begun = time.perf_counter()
        server.call("/api/runs/list", NEWEST)
        time.sleep(PAUSE)
        return time.perf_counter() - begun - PAUSE

    return slowest([once() for _ in range(PROBES)])


# --- the loads ------------------------------------------------------------------------------------------------------


def of_hosts(server: Server) -> Carried:
    """Of hosts without jobs, each of which has a call waiting all the time."""
    project = server.call("/api/projects/main/get")["project_id"]
    there = 0
    with ExitStack() as crowds:

        def add(count: int) -> Carried:
            nonlocal there
            tokens = add_hosts(server.data, project, count - there, f"hosts-{count}")
            crowds.enter_context(living(server, tokens))
            there = count
            until("the hosts to join", lambda: joined(server) == count, seconds=300, every=0.5)
            return Carried(count, probed(server))

        return climbed(HOSTS, add)


@contextmanager
def living(server: Server, tokens: dict[str, str]) -> Iterator[None]:
    _, child_end = multiprocessing.Pipe()
    crowd = multiprocessing.Process(target=host_process, args=(server.url, tokens, 1.0, child_end))
    crowd.start()
    try:
        yield
    finally:
        crowd.kill()
        crowd.join()


def of_queue(server: Server) -> Carried:
    """Of runs that wait for capacity that there is not."""
    waits = {"retry": {"on_events": ["no-capacity"], "duration": "1d"}, "resources": {"cpu": "500.."}}
    there = 0

    def add(count: int) -> Carried:
        nonlocal there
        with ThreadPoolExecutor(4) as pool:
            names = [f"waits-{number}" for number in range(there, count)]
            list(pool.map(lambda name: submit(server, task(name, "true", **waits)), names))
        there = count
        return Carried(count, probed(server))

    return climbed(QUEUED, add)


def of_requests(server: Server) -> Carried:
    """Callers who ask for the list of runs, each again as soon as it has it, over a kept connection."""
    for number in range(20):
        submit(server, task(f"there-{number}", "true"))

    def call(count: int) -> Carried:
        taken = asyncio.run(asked(server, count))
        return Carried(len(taken) / SECONDS, slowest(taken))

    return climbed(CALLERS, call)


async def asked(server: Server, callers: int) -> list[float]:
    """How long each answer took."""
    address, body, taken = urlsplit(server.url), json.dumps(NEWEST), list[float]()
    head = f"POST /api/runs/list HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {server.token}\r\n"
    request = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()

    async def caller(end: float) -> None:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        while (begun := time.perf_counter()) < end:
            writer.write(request)
            answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            if not answer.startswith("http/1.1 200"):
                raise SystemExit(f"the list of runs was answered {answer.splitlines()[0]}")
            await reader.readexactly(int(answer.split("content-length:")[1].split("\r\n")[0]))
            taken.append(time.perf_counter() - begun)
        writer.close()

    end = time.perf_counter() + SECONDS
    await asyncio.gather(*(caller(end) for _ in range(callers)))
    return taken


def of_followers(server: Server) -> Carried:
    """Streams of one log: how long a printed line takes to all of them."""
    lines = "import time\nwhile True: print(time.time(), flush=True); time.sleep(0.2)"
    submit(server, task("prints", f"exec python3 -c '{lines}'"))
    until("the job to run", lambda: _status(server, "prints") == "running")
    with ExitStack() as open_, selectors.DefaultSelector() as all_:

        def follow(count: int) -> Carried:
            while len(all_.get_map()) < count:
                stream = open_.enter_context(Stream(server.url, server.token, "prints", "logs"))
                all_.register(stream.sock, selectors.EVENT_READ, stream)
            received(all_, 1.0)  # what was printed before
            return Carried(count, slowest(received(all_, SECONDS)))

        return climbed(FOLLOWERS, follow)


def received(followers: selectors.BaseSelector, seconds: float) -> list[float]:
    """How old each line was as it came."""
    ages, end = [], time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        for key, _ in followers.select(left):
            text = key.data.receive()
            if not text:
                raise SystemExit(f"a follower of the log was cut off: {key.data.closed}")
            ages.append(time.time() - float(text.split()[-1]))
    return ages


def _status(server: Server, run: str) -> str:
    return str(server.call("/api/project/main/runs/get", {"run_name": run})["status"])


def main() -> None:
    argparse.ArgumentParser(prog="python -m tests.bench.limits", description=__doc__).parse_args()
    with running_server("--no-local-fleet") as server:
        requests = of_requests(server)
    with running_server("--no-local-fleet") as server:
        hosts = of_hosts(server)
    with running_server("--no-local-fleet") as server:
        queued = of_queue(server)
    with running_server() as server:
        followers = of_followers(server)
    found = {"hosts": hosts, "queued": queued, "requests_per_s": requests, "followers": followers}
    sizes = {name: [float(one.size)] for name, one in found.items()}
    slow = {f"{name.removesuffix('_per_s')}_slowest_ms": [one.slowest_ms] for name, one in found.items()}
    report("limits", **sizes, **slow)


if __name__ == "__main__":
    main()
