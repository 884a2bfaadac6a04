"""Tasks on several nodes: from submit until every node runs. One JSON line.

`real_8_s` is on eight agents of this machine, with real processes. The others are on simulated hosts, through the real
API, engine and agent protocol: how long it takes and how much CPU the server takes, for 10 to 200 nodes.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from datetime import datetime
from multiprocessing.connection import Connection

from tests.bench.burst import active, joined
from tests.bench.hosts import Host, Started, add_hosts
from tests.bench.measure import cpu_of, report, running_server, server_pid, submit, task
from tests.harness.server import Server, until
from tests.runtime.live import logs_of, run_of

SIZES = (10, 50, 100, 200)
RUNS, REAL = 3, 8
JOB_SECONDS = 2.0


def main() -> None:
    real = on_this_machine()
    walls, cpus = simulated()
    shown = {f"wall_{nodes}_s": walls[nodes] for nodes in SIZES}
    costs = {f"cpu_per_node_{nodes}_ms": [cpu / nodes * 1000 for cpu in cpus[nodes]] for nodes in SIZES}
    report("gangs", **{f"real_{REAL}_s": real}, **shown, **costs)


def on_this_machine() -> list[float]:
    found = []
    with running_server("--local-hosts", str(REAL)) as server:
        until("all hosts to join", lambda: joined(server) == REAL)
        for number in range(RUNS + 1):
            name = f"real-{number}"
            begun = submit(server, task(name, "date +%s.%N", "sleep 1", nodes=REAL))["submitted_at"]
            until(f"{name} to end", lambda: not active(server))
            jobs = [job["job_submissions"][-1] for job in run_of(server, name)["jobs"]]
            if any(job["status"] != "done" for job in jobs):
                raise SystemExit(f"{name} ended {[job['status'] for job in jobs]}")
            last = max(float(log.split()[0]) for log in logs_of(server, name))
            found.append(last - datetime.fromisoformat(begun).timestamp())
    return found[1:]


def simulated() -> tuple[dict[int, list[float]], dict[int, list[float]]]:
    walls: dict[int, list[float]] = {nodes: [] for nodes in SIZES}
    cpus: dict[int, list[float]] = {nodes: [] for nodes in SIZES}
    with running_server("--no-local-fleet") as server:
        project = server.call("/api/projects/main/get")
        tokens = add_hosts(server.data, project["project_id"], max(SIZES), placement="cluster")
        parent_end, child_end = multiprocessing.Pipe()
        crowd = multiprocessing.Process(target=host_process, args=(server.url, tokens, child_end))
        crowd.start()
        try:
            until("all hosts to join", lambda: joined(server) == max(SIZES), every=0.2)
            for number in range(RUNS):
                for nodes in SIZES:
                    wall, cpu = one_start(server, f"gang-{nodes}-{number}", nodes, parent_end)
                    walls[nodes].append(wall)
                    cpus[nodes].append(cpu)
        finally:
            crowd.kill()
            crowd.join()
    return walls, cpus


def one_start(server: Server, name: str, nodes: int, crowd: Connection) -> tuple[float, float]:
    """Seconds until all its nodes run, and the server's CPU seconds until all have ended."""
    before = cpu_of(server_pid(server))
    run = submit(server, task(name, "true", nodes=nodes))
    until(f"{name} to end", lambda: not active(server), every=0.2)
    cpu = cpu_of(server_pid(server)) - before
    ids = {job["job_submissions"][-1]["id"] for job in run_of(server, name)["jobs"]}
    crowd.send("when did they start?")
    began = [at for job, at in crowd.recv().items() if job in ids]
    if len(began) != nodes:
        raise SystemExit(f"{len(began)} of {nodes} nodes of {name} ran")
    return max(began) - datetime.fromisoformat(run["submitted_at"]).timestamp(), cpu


def host_process(url: str, tokens: dict[str, str], pipe: Connection) -> None:
    started = Started()

    async def live() -> None:
        hosts = [Host(url, instance, token, JOB_SECONDS, started) for instance, token in tokens.items()]
        crowd = [asyncio.create_task(host.run()) for host in hosts]
        while crowd:
            await asyncio.to_thread(pipe.recv)
            pipe.send(started.at)

    asyncio.run(live())


if __name__ == "__main__":
    main()
