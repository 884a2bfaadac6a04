"""The addresses of replicas that another replica needs before it starts."""

from __future__ import annotations

from chalicelib.domain import keys
from chalicelib.domain.instances import Instance
from chalicelib.domain.jobs import Job
from chalicelib.planning.jobs.neighbours import Reference, members, needed
from chalicelib.planning.jobs.nodes import address_of
from chalicelib.usecases.ports import RecordPorts


def addresses(plane: RecordPorts, job: Job) -> dict[Reference, str] | None:
    """The addresses that the job's task refers to; None while some replica has none."""
    found: dict[Reference, str] = {}
    wanted = needed(plane.read.job_spec(job))
    if not wanted:
        return found
    _, jobs = plane.read.run_and_jobs(job.run_id)
    groups = [each.replica_group for each in plane.read.job_specs(job.run_id, job.deployment_num)]
    for group, index in wanted:
        group_jobs = members(jobs, groups[group], job.deployment_num)
        place = group_jobs[index].assignment if index < len(group_jobs) else None
        host = None if place is None else plane.read.find_many(Instance, [keys.instance(place.instance_id)])[0]
        address = "" if host is None else address_of(host)
        if not address:
            return None
        found[group, index] = address
    return found
