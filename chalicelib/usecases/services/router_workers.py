"""The workers of a service's router: the addresses of the replicas that may get requests, as its agent gets them.

A replica is listed from when it is ready until it drains, under its address in the network that it shares with the
router's host. A router is the door of its workers: once it has only the listed workers, those that drain are released.
"""

from __future__ import annotations

import hashlib

from chalicelib.domain import keys
from chalicelib.domain.instances import Instance
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.services import ROUTER, Traffic
from chalicelib.planning.jobs.nodes import address_of
from chalicelib.usecases.ports import ChangePorts, RecordPorts
from chalicelib.usecases.services import traffic


def worker_update(plane: RecordPorts, job: Job, known: str | None) -> tuple[str, list[str]] | None:
    """The list of a router's workers and its revision, unless its agent has that list. `known`: the revision that the
    agent has; None: the job isn't a router."""
    if known is None:
        return None
    urls = _workers(plane, job)
    revision = _revision(urls)
    return None if revision == known else (revision, urls)


def let_go(plane: ChangePorts, router: Job, cleared: str) -> None:
    """Release draining workers: the router has only the workers of the list `cleared`, so if that is the current list,
    which is without them, they get no more requests."""
    _, jobs = plane.read.run_and_jobs(router.run_id)
    going = (job for job in jobs if job.status is JobStatus.running and job.draining_at is not None)
    drained = tuple(sorted(job.id for job in going if plane.read.job_spec(job).routing == "worker"))
    if drained and cleared == _revision(_workers(plane, router)):
        door = f"{ROUTER}{router.id}"
        seen = Traffic(run_id=router.run_id, door=door, at=plane.clock.now(), quiet=True, let_go=drained)
        traffic.report(plane, door, [seen])


def _revision(urls: list[str]) -> str:
    return hashlib.sha256("\n".join(urls).encode()).hexdigest()[:16]


def _workers(plane: RecordPorts, router: Job) -> list[str]:
    _, jobs = plane.read.run_and_jobs(router.run_id)
    ready = [
        (job, spec)
        for job in jobs
        if job.status is JobStatus.running and job.ready_at is not None and job.draining_at is None
        if (spec := plane.read.job_spec(job)).routing == "worker"
    ]
    places = [keys.instance(job.assignment.instance_id) for job, _ in ready if job.assignment is not None]
    hosts = plane.read.find_many(Instance, places)
    return sorted(_url(job, spec, host) for (job, spec), host in zip(ready, hosts, strict=True) if host is not None)


def _url(job: Job, spec: JobSpec, host: Instance) -> str:
    return f"http://{address_of(host)}:{job.host_port or spec.service_port}"


def routers(plane: RecordPorts, workers: list[Job]) -> list[str]:
    """The instances of the routers that need to know at once of these workers, which have just become ready."""
    found: dict[str, None] = {}
    for run_id in dict.fromkeys(job.run_id for job in workers if plane.read.job_spec(job).routing == "worker"):
        for job in plane.read.run_and_jobs(run_id)[1]:
            if job.assignment is not None and not job.finished and plane.read.job_spec(job).routing == "router":
                found[job.assignment.instance_id] = None
    return list(found)
