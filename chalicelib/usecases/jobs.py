"""Finding one job of a run."""

from __future__ import annotations

from chalicelib.domain import keys
from chalicelib.domain.jobs import Job
from chalicelib.domain.tenants import Project
from chalicelib.errors import NotFound
from chalicelib.store import nouns
from chalicelib.store.port import Store


def newest_job(
    store: Store, project: Project, run_name: str, replica_num: int, job_num: int, *, run_id: str | None = None
) -> Job:
    """Its newest submission. A run of another project is treated as unknown."""
    if run_id is None:
        found = nouns.find_target(store, keys.run_name(project.id, run_name))
        run_id = None if found is None else found[0]
    place = f"job/{replica_num:05d}/{job_num:05d}/"
    low, high = place, place[:-1] + "0"
    page = store.query("main", f"run/{run_id}", low=low, high=high, limit=1, reverse=True)
    jobs = [nouns.read(Job, record) for record in page.records]
    if not jobs or jobs[0].project_id != project.id or jobs[0].run_name != run_name:
        which = f"replica {replica_num}, job {job_num}"
        raise NotFound(f"There is no run {run_name[:80]!r} with {which} in project {project.name}.")
    return jobs[0]
