"""A replica that needs the addresses of others is sent to its agent once they are known."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.instances import Instance
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.runs import Run, RunBody
from chalicelib.planning.jobs.neighbours import ROUTER_IP
from chalicelib.store import nouns
from chalicelib.store.port import Delete
from tests.usecases.cluster import Cluster, running, spec_of
from tests.world import nouns as b
from tests.world.plane import World

ELSEWHERE = b.host(1, b.fleet("local"), internal_ip="")


@pytest.fixture
def cluster(world: World) -> Cluster:
    made = Cluster.of(world, internal_ip="10.0.0.5")
    made.agent.join()
    world.save(ELSEWHERE)
    return made


def worker(cluster: Cluster) -> tuple[Job, Job]:
    """A worker of Dynamo on our host, and its router, which waits for a place."""
    part: dict[str, Any] = {"service_port": 8000, "routing": "worker", "replica_group": "gpu", "discovery": 1}
    worker = cluster.place("app", spec=part, replica_group="gpu")
    run = cluster.world.again(b.run("app"))
    assert isinstance(run, Run)
    router = b.job(run, replica=1, replica_group="front")
    body: RunBody = cluster.world.again(RunBody(run_id=run.id, run_spec="{}", job_specs=()))
    front = spec_of("app", {}, {**part, "routing": "router", "replica_group": "front"})
    after = body.with_(job_specs=(*body.job_specs, front))
    cluster.world.store.commit([nouns.put(router), nouns.put(after)])
    return worker, cluster.job(router)


def sent(cluster: Cluster, job: Job) -> dict[str, Any] | None:
    answer = cluster.agent.sync()
    found: dict[str, Any] | None = next((task for task in answer["tasks"] if task["id"] == job.id), None)
    return found


def goes_to(cluster: Cluster, job: Job, host: Instance, **changes: Any) -> None:
    place = cluster.jobs[0].assignment
    assert place is not None
    where = place.with_(instance_id=host.id, instance_name=host.name)
    cluster.save(cluster.job(job).with_(status=JobStatus.provisioning, assignment=where, due_at=None, **changes))


def test_a_worker_waits_until_its_router_has_a_machine_with_an_address(cluster: Cluster) -> None:
    job, router = worker(cluster)
    assert sent(cluster, job) is None, "its router has no place yet"
    goes_to(cluster, router, ELSEWHERE)
    host = cluster.world.again(ELSEWHERE)
    cluster.save(host.with_(offer=host.offer.with_(backend="aws")))
    assert sent(cluster, job) is None, "its machine has no address yet"
    cluster.save(cluster.world.again(ELSEWHERE).with_(internal_ip="10.0.0.6"))
    task = sent(cluster, job)
    assert task is not None and task["spec"]["env"][ROUTER_IP] == "10.0.0.6"


def test_a_worker_waits_for_a_router_that_there_isnt_yet(cluster: Cluster) -> None:
    job, router = worker(cluster)
    cluster.world.store.commit([Delete(nouns.key_of(router))])
    assert sent(cluster, job) is None


def test_one_that_runs_is_not_asked_for_addresses_again(cluster: Cluster) -> None:
    job, router = worker(cluster)
    goes_to(cluster, router, cluster.instance)
    assert sent(cluster, job) is not None
    cluster.agent.sync(running(job))
    cluster.save(cluster.job(router).with_(status=JobStatus.terminating))
    answer = cluster.agent.sync(running(job))
    assert [task["want"] for task in answer["tasks"] if task["id"] == job.id] == ["run"]
