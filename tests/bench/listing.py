"""`runs/list`: a page of 100 out of 10,000, CPU of the server.

One run is submitted and ends, as there is no fleet; the others are copies of it, written straight to the store.
"""

from __future__ import annotations

from pathlib import Path

from chalicelib.domain import keys
from chalicelib.domain.ids import derive
from chalicelib.domain.jobs import Job
from chalicelib.domain.runs import Run, RunBody
from chalicelib.store import nouns
from chalicelib.store.sqlite import SqliteStore
from tests.bench.api import per_call
from tests.bench.measure import report, running_server, submit, task
from tests.harness.server import until

RUNS = 10_000
A_COMMIT = 30  # runs; each is three records


def add_copies(data: Path, run_id: str, count: int) -> None:
    store = SqliteStore(data / "plane.db")
    run = nouns.find(store, Run, keys.run(run_id))
    body = nouns.find(store, RunBody, keys.run_body(run_id, 0))
    job = nouns.find(store, Job, keys.job(run_id, 0, 0, 0))
    assert run and body and job, "the run was submitted"
    for start in range(0, count, A_COMMIT):
        changes = []
        for number in range(start, min(start + A_COMMIT, count)):
            id_, at = derive(run_id, "copy", number), run.submitted_at - number - 1
            changes += [
                nouns.put(run.with_(id=id_, name=f"run-{number}", submitted_at=at, version=0)),
                nouns.put(body.with_(run_id=id_, version=0)),
                nouns.put(job.with_(id=derive(id_, "job"), run_id=id_, submitted_at=at, version=0)),
            ]
        store.commit(changes)
    store.close()


def main() -> None:
    with running_server("--no-local-fleet") as server:
        first = submit(server, task("first", "true"))["id"]
        active = {"project_name": "main", "only_active": True, "limit": 1}
        until("the run to end", lambda: not server.call("/api/runs/list", active))
        add_copies(server.data, first, RUNS - 1)
        query = {"project_name": "main", "only_active": False, "limit": 100, "job_submissions_limit": 1}
        assert len(server.call("/api/runs/list", query)) == 100
        cpu, wall = per_call(server, lambda _: server.call("/api/runs/list", query))
        report("listing", list_cpu_ms=cpu, list_wall_ms=wall)


if __name__ == "__main__":
    main()
