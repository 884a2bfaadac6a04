"""`runs/list`: a page of 100 out of 10,000, CPU of the server."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from tests.bench.api import per_call_ms
from tests.bench.measure import report, running_server, submit, task
from tests.harness.server import until

RUNS = 10_000


def main() -> None:
    with running_server("--no-local-fleet") as server:
        begun = time.perf_counter()
        with ThreadPoolExecutor(4) as pool:
            for _ in pool.map(lambda number: submit(server, task(f"run-{number}", "true")), range(RUNS)):
                continue
        submitted = time.perf_counter() - begun
        # There is no fleet, so each run ends for want of capacity; what is measured is the listing alone.
        active = {"project_name": "main", "only_active": True, "limit": 1}
        until("every run to end", lambda: not server.call("/api/runs/list", active), seconds=120, every=0.5)
        query = {"project_name": "main", "only_active": False, "limit": 100, "job_submissions_limit": 1}
        cpu, wall = per_call_ms(server, lambda _: server.call("/api/runs/list", query))
        report(
            "listing",
            runs=RUNS,
            page=100,
            list_cpu_ms=cpu,
            list_wall_ms=wall,
            submit_all_s=round(submitted, 1),
            budget_ms=10,
        )


if __name__ == "__main__":
    main()
