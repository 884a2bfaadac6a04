"""What the agent of a service's router gets: the addresses of the replicas that may have requests.

A worker counts once it is ready, and no more once it drains. It is named by the address that the hosts of its network
know it by; the router's own host is in that network, as all nodes of a task are. A router is the door to its workers:
once it has none beside those that it should have, those that drain are let go.
"""

from __future__ import annotations

import hashlib
from typing import Any

from chalicelib.domain import keys
from chalicelib.domain.instances import Instance
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.services import ROUTER, Traffic
from chalicelib.planning.jobs.nodes import address_of
from chalicelib.usecases.ports import ChangePorts, RecordPorts
from chalicelib.usecases.services import traffic


def worker_update(plane: RecordPorts, job: Job, known: str | None) -> dict[str, Any]:
    """What a router's agent should hear that goes by the list `known`; None: this job isn't a router's."""
    if known is None:
        return {}
    urls = _workers(plane, job)
    revision = _revision(urls)
    return {} if revision == known else {"workers": revision, "worker_urls": urls}


def let_go(plane: ChangePorts, router: Job, cleared: str) -> None:
    """A router has none but the workers of the list `cleared`: those that drain, if that is the list without them, get
    nothing from it any more."""
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
    """The instances of the routers that should hear at once of these workers, which have just become ready."""
    found: dict[str, None] = {}
    for run_id in dict.fromkeys(job.run_id for job in workers if plane.read.job_spec(job).routing == "worker"):
        for job in plane.read.run_and_jobs(run_id)[1]:
            if job.assignment is not None and not job.finished and plane.read.job_spec(job).routing == "router":
                found[job.assignment.instance_id] = None
    return list(found)
