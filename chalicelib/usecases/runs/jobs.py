"""Finding one job of a run."""

from __future__ import annotations

from chalicelib.domain import keys
from chalicelib.domain.jobs import Job
from chalicelib.domain.tenants import Project
from chalicelib.engine.read import Reader
from chalicelib.errors import NotFound
from chalicelib.store import nouns


def newest_job(
    read: Reader, project: Project, run_name: str, replica_num: int, job_num: int, *, run_id: str | None = None
) -> Job:
    """The newest submission of a job. A run of another project is treated as unknown."""
    if run_id is None:
        found = nouns.find_target(read.store, keys.run_name(project.id, run_name))
        run_id = None if found is None else found[0]
    job = None if run_id is None else read.newest_job(run_id, replica_num, job_num)
    if job is None or job.project_id != project.id or job.run_name != run_name:
        which = f"replica {replica_num}, job {job_num}"
        raise NotFound(f"There is no run {run_name[:80]!r} with {which} in project {project.name}.")
    return job
