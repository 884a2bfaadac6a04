"""CPU of the server for the calls that clients make most."""

from __future__ import annotations

from collections.abc import Callable

from tests.bench.measure import cpu_of, report, running_server, server_pid, submit, task, wait_local_host
from tests.harness.server import Server

CALLS = 200
LISTED = 10_000


def per_call_ms(server: Server, work: Callable[[int], object], calls: int = CALLS) -> float:
    """CPU milliseconds of the server process a call, over many of them."""
    for number in range(10):
        work(-number - 1)
    before = cpu_of(server_pid(server))
    for number in range(calls):
        work(number)
    return round((cpu_of(server_pid(server)) - before) / calls * 1000, 2)


def main() -> None:
    with running_server("--fake-cloud") as server:
        wait_local_host(server)
        plan = {"run_spec": task("planned", "true"), "max_offers": 20}
        get_plan = per_call_ms(server, lambda _: server.call("/api/project/main/runs/get_plan", plan))
        # A task that no host can take yet waits in the queue, so that what is measured is the submit alone.
        waiting = {"retry": True, "creation_policy": "reuse"}
        big = {"cpu": "900..", "memory": "0.1GB..", "disk": None}
        spec = task("x", "true", **waiting) | {}
        spec["configuration"]["resources"] = big

        def one(number: int) -> object:
            name = f"queued-{number}" if number >= 0 else f"warm{number}"
            return submit(server, {**spec, "run_name": name, "configuration": {**spec["configuration"], "name": name}})

        submitted = per_call_ms(server, one)
    report("api", get_plan_cpu_ms=get_plan, submit_cpu_ms=submitted, budget_ms=[5, 8])


if __name__ == "__main__":
    main()
