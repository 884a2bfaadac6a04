"""One second of work: from submit to done, embedded."""

from __future__ import annotations

import time

from tests.bench.measure import cpu_of, report, running_server, server_pid, submit, task, wait_local_host


def main(runs: int = 7) -> None:
    walls, cpus = [], []
    with running_server() as server:
        wait_local_host(server)
        for number in range(runs + 1):
            name = f"one-{number}"
            begun, before = time.perf_counter(), cpu_of(server_pid(server))
            submit(server, task(name, "sleep 1"))
            while True:
                run = server.call("/api/project/main/runs/get", {"run_name": name})
                if run["status"] in ("done", "failed", "terminated"):
                    break
                time.sleep(0.02)
            if run["status"] != "done":
                raise SystemExit(f"{name} ended {run['status']}: {run.get('error')}")
            walls.append(time.perf_counter() - begun)
            cpus.append((cpu_of(server_pid(server)) - before) * 1000)
    report("single", wall_s=walls[1:], server_cpu_ms=cpus[1:])


if __name__ == "__main__":
    main()
