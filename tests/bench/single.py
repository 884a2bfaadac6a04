"""One second of work: from submit to done, embedded."""

from __future__ import annotations

import statistics
import time

from tests.bench.measure import report, running_server, submit, task, wait_local_host


def main(runs: int = 7) -> None:
    walls = []
    with running_server() as server:
        wait_local_host(server)
        for number in range(runs + 1):
            name = f"one-{number}"
            begun = time.perf_counter()
            submit(server, task(name, "sleep 1"))
            while True:
                run = server.call("/api/project/main/runs/get", {"run_name": name})
                if run["status"] in ("done", "failed", "terminated"):
                    break
                time.sleep(0.02)
            if run["status"] != "done":
                raise SystemExit(f"{name} ended {run['status']}: {run.get('error')}")
            walls.append(time.perf_counter() - begun)
    walls = walls[1:]
    report("single", wall_s=round(statistics.median(walls), 3), max_s=round(max(walls), 3), runs=runs, budget_s=3)


if __name__ == "__main__":
    main()
