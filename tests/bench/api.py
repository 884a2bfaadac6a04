"""CPU of the server for the calls that clients make most."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.bench.measure import cpu_of, report, running_server, server_pid, submit, task, wait_local_host
from tests.harness.server import Server

CALLS = 100  # in each of several rounds
ROUNDS = 5


def per_call(server: Server, work: Callable[[int], object]) -> tuple[list[float], list[float]]:
    """Milliseconds a call, of the server's CPU and of the wall, of each round."""
    for number in range(10):
        work(-number - 1)
    cpus, walls = [], []
    for turn in range(ROUNDS):
        before, begun = cpu_of(server_pid(server)), time.perf_counter()
        for number in range(CALLS):
            work(turn * CALLS + number)
        cpus.append((cpu_of(server_pid(server)) - before) / CALLS * 1000)
        walls.append((time.perf_counter() - begun) / CALLS * 1000)
    return cpus, walls


def main() -> None:
    with running_server("--fake-cloud") as server:
        wait_local_host(server)
        plan = {"run_spec": task("planned", "true"), "max_offers": 20}
        get_plan, get_plan_wall = per_call(server, lambda _: server.call("/api/project/main/runs/get_plan", plan))
        # A task that no host can take yet waits in the queue, so that what is measured is the submit alone.
        waiting = {"retry": True, "creation_policy": "reuse"}
        big = {"cpu": "900..", "memory": "0.1GB..", "disk": None}
        spec = task("x", "true", **waiting) | {}
        spec["configuration"]["resources"] = big

        def one(number: int) -> object:
            name = f"queued-{number}" if number >= 0 else f"warm{number}"
            return submit(server, {**spec, "run_name": name, "configuration": {**spec["configuration"], "name": name}})

        submitted, submitted_wall = per_call(server, one)
    report(
        "api",
        get_plan_cpu_ms=get_plan,
        get_plan_wall_ms=get_plan_wall,
        submit_cpu_ms=submitted,
        submit_wall_ms=submitted_wall,
    )


if __name__ == "__main__":
    main()
