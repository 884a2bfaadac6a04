"""Many short jobs on many simulated hosts, through the real API, engine and agent protocol. One JSON line.

`python -m tests.bench.burst --jobs N --hosts N --job-seconds S --runs R`: each of R runs has a server of its own. Ends
with status 1 where a job was lost or ran twice. That CPU a job is flat, `--jobs 10000` shows in some minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from multiprocessing.connection import Connection
from typing import Any

from tests.bench.hosts import Host, Started, add_hosts
from tests.bench.measure import cpu_of, report, running_server, server_pid, submit, task
from tests.harness.server import Server, until

SUBMITTERS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=150)
    parser.add_argument("--hosts", type=int, default=150)
    parser.add_argument("--job-seconds", type=float, default=1.0)
    parser.add_argument("--patience", type=float, default=300.0, help="seconds to wait for the last job")
    parser.add_argument("--runs", type=int, default=1)
    chosen = parser.parse_args()
    runs = [one_run(chosen) for _ in range(chosen.runs)]
    lost, duplicated = sum(run["lost"] for run in runs), sum(run["duplicated"] for run in runs)
    figures = {name: [run[name] for run in runs] for name in runs[0] if name not in ("lost", "duplicated")}
    report(f"burst-{chosen.jobs}", hosts=chosen.hosts, **figures, lost=lost, duplicated=duplicated)
    if lost or duplicated:
        raise SystemExit(1)


def one_run(chosen: argparse.Namespace) -> dict[str, Any]:
    with running_server("--no-local-fleet") as server:
        project = server.call("/api/projects/main/get")
        tokens = add_hosts(server.data, project["project_id"], chosen.hosts)
        parent_end, child_end = multiprocessing.Pipe()
        crowd = multiprocessing.Process(target=host_process, args=(server.url, tokens, chosen.job_seconds, child_end))
        crowd.start()
        try:
            until("all hosts to join", lambda: joined(server) == chosen.hosts, every=0.2)
            return burst(server, chosen, parent_end)
        finally:
            crowd.kill()
            crowd.join()


def host_process(url: str, tokens: dict[str, str], job_seconds: float, pipe: Connection) -> None:
    started = Started()

    async def live() -> None:
        hosts = [Host(url, instance, token, job_seconds, started) for instance, token in tokens.items()]
        crowd = [asyncio.create_task(host.run()) for host in hosts]
        await asyncio.to_thread(pipe.recv)  # the bench asks once, at the end
        for one in crowd:
            one.cancel()

    asyncio.run(live())
    pipe.send((started.at, started.twice))


def joined(server: Server) -> int:
    fleets = server.call("/api/project/main/fleets/list", {})
    return sum(i["status"] == "idle" for fleet in fleets for i in fleet["instances"])


def burst(server: Server, chosen: argparse.Namespace, pipe: Any) -> dict[str, Any]:
    names = [f"job-{number}" for number in range(chosen.jobs)]
    before, begun = cpu_of(server_pid(server)), time.time()
    with ThreadPoolExecutor(SUBMITTERS) as pool:
        list(pool.map(lambda name: submit(server, task(name, "sleep 1")), names))
    submitted = time.time()
    while active(server) and time.time() - begun < chosen.patience:
        time.sleep(0.25)
    wall, cpu = time.time() - begun, cpu_of(server_pid(server)) - before
    pipe.send("enough")
    started, twice = pipe.recv()
    runs = finished(server)
    ends = [datetime.fromisoformat(run["latest_job_submission"]["finished_at"]).timestamp() for run in runs]
    starts = sorted(
        started[run["latest_job_submission"]["id"]] - datetime.fromisoformat(run["submitted_at"]).timestamp()
        for run in runs
        if run["latest_job_submission"]["id"] in started
    )
    return {
        "wall_s": (max(ends) - begun) if len(runs) == chosen.jobs else wall,
        "submit_s": submitted - begun,
        "start_p50_s": statistics.median(starts) if starts else 0.0,
        "start_p95_s": starts[int(len(starts) * 0.95)] if starts else 0.0,
        "cpu_per_job_ms": cpu / chosen.jobs * 1000,
        "lost": chosen.jobs - len(runs),
        "duplicated": len(twice),
    }


def active(server: Server) -> bool:
    query = {"project_name": "main", "only_active": True, "limit": 1, "include_jobs": False}
    return bool(server.call("/api/runs/list", query))


def finished(server: Server) -> list[dict[str, Any]]:
    """All runs that are done, page by page."""
    found: list[dict[str, Any]] = []
    query: dict[str, Any] = {"project_name": "main", "only_active": False, "limit": 100, "job_submissions_limit": 1}
    while True:
        page = server.call("/api/runs/list", query)
        found += [run for run in page if run["status"] == "done"]
        if len(page) < 100:
            return found
        query |= {"prev_submitted_at": page[-1]["submitted_at"], "prev_run_id": page[-1]["id"]}


if __name__ == "__main__":
    main()
