"""The list of a router's workers in its agent's calls, as replicas come and go."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.runs import Run, RunBody
from chalicelib.domain.services import Traffic
from chalicelib.store import nouns
from chalicelib.usecases.agents.calls import ORDER_PAUSE, has_news
from chalicelib.usecases.services import router_workers
from tests.usecases.cluster import Cluster, running, spec_of
from tests.world import nouns as b
from tests.world.plane import World


@pytest.fixture
def cluster(world: World) -> Cluster:
    made = Cluster.of(world, internal_ip="10.0.0.5")
    made.agent.join()
    return made


def part(routing: str, group: str) -> dict[str, Any]:
    return {"service_port": 8000, "routing": routing, "replica_group": group, "networked": True}


def service(cluster: Cluster) -> tuple[Job, Job]:
    """A router and its worker on one host, both running, neither ready."""
    router = cluster.place("app", spec=part("router", "front"), replica_group="front")
    run = cluster.world.again(b.run("app"))
    assert isinstance(run, Run)
    worker = b.job(run, replica=1, status=router.status, assignment=router.assignment, due_at=None, replica_group="gpu")
    (first,) = cluster.world.again(RunBody(run_id=run.id, run_spec="{}", job_specs=())).job_specs
    body = RunBody(run_id=run.id, run_spec="{}", job_specs=(first, spec_of("app", {}, part("worker", "gpu"))))
    known = cluster.world.again(body)
    busy = b.holding(cluster.instance, worker, 1)
    cluster.world.store.commit([nouns.put(each) for each in (worker, body.with_(version=known.version), busy)])
    cluster.agent.sync(running(router, listens=False, workers=""), running(worker, listens=False))
    return cluster.job(router), cluster.job(worker)


def entry_of(answer: dict[str, Any], router: Job) -> dict[str, Any]:
    found: dict[str, Any] = next(task for task in answer["tasks"] if task["id"] == router.id)
    return found


def test_a_routers_task_says_that_it_is_one_and_shares_its_hosts_network(cluster: Cluster) -> None:
    router = cluster.place("app", spec=part("router", "front"), replica_group="front")
    spec = entry_of(cluster.agent.sync(), router)["spec"]
    assert (spec["router"], spec["network"]) == (True, "host")
    alone = cluster.place("alone", spec={"service_port": 8000})
    spec = entry_of(cluster.agent.sync(running(router)), alone)["spec"]
    assert "router" not in spec and "network" not in spec


def test_it_hears_of_workers_that_are_ready_once_each(cluster: Cluster) -> None:
    router, worker = service(cluster)
    answer = cluster.agent.sync(running(router, listens=True, workers=""), running(worker, listens=False))
    first = entry_of(answer, router)
    assert first["worker_urls"] == [] and first["workers"] and has_news(answer)
    ready = running(worker, listens=True, host_port=8123)
    answer = cluster.agent.sync(running(router, listens=True, workers=first["workers"]), ready)
    second = entry_of(answer, router)
    assert second["worker_urls"] == ["http://10.0.0.5:8123"] and second["workers"] != first["workers"]
    answer = cluster.agent.sync(running(router, listens=True, workers=second["workers"]), ready)
    assert "workers" not in entry_of(answer, router) and not has_news(answer)
    assert answer["next_sync_in"] <= ORDER_PAUSE


def test_a_worker_that_drains_is_taken_away(cluster: Cluster) -> None:
    router, worker = service(cluster)
    cluster.agent.sync(running(router, listens=True), running(worker, listens=True))
    cluster.save(cluster.job(worker).with_(draining_at=cluster.world.at))
    answer = cluster.agent.sync(running(router, listens=True, workers="an earlier list"), running(worker, listens=True))
    assert entry_of(answer, router)["worker_urls"] == []


def test_the_routers_agent_is_called_when_a_worker_becomes_ready(cluster: Cluster) -> None:
    router, worker = service(cluster)
    cluster.world.rung.clear()
    cluster.agent.sync(running(router, listens=True), running(worker, listens=True))
    assert cluster.instance.id in cluster.world.rung


def test_no_other_agent_is_called_and_none_once_the_router_has_ended(cluster: Cluster) -> None:
    router, worker = service(cluster)
    assert worker.assignment is not None
    cluster.save(worker.with_(assignment=worker.assignment.with_(instance_id="elsewhere")))
    plane = cluster.world.plane
    assert router_workers.routers(plane, [worker]) == [cluster.instance.id]
    cluster.save(router.with_(status=JobStatus.done))
    assert router_workers.routers(plane, [worker]) == []


def test_an_agent_of_an_earlier_version_is_told_nothing(cluster: Cluster) -> None:
    router, worker = service(cluster)
    answer = cluster.agent.sync(running(router, listens=True), running(worker, listens=True))
    assert "workers" not in entry_of(answer, router)


def test_a_worker_that_drains_is_let_go_once_its_router_has_only_the_others(cluster: Cluster) -> None:
    router, worker = service(cluster)
    cluster.agent.sync(running(router, listens=True), running(worker, listens=True))
    before = entry_of(cluster.agent.sync(running(router, listens=True, workers=""), running(worker)), router)["workers"]
    drains = cluster.job(worker).with_(draining_at=cluster.world.plane.clock.now())
    cluster.world.store.commit([nouns.put(drains)])

    def seen() -> Traffic | None:
        return nouns.find(cluster.world.store, Traffic, keys.traffic(router.run_id, f"router/{router.id}"))

    def sync(**fields: Any) -> dict[str, Any]:
        return cluster.agent.sync(running(router, listens=True, **fields), running(worker, listens=True))

    answer = sync(workers=before, cleared=before)
    after = entry_of(answer, router)["workers"]
    assert after != before and seen() is None, "it was cleared for the list that still had the worker"
    sync(workers=after, cleared=before)
    assert seen() is None
    sync(workers=after, cleared=after)
    found = seen()
    assert found is not None and found.let_go == (worker.id,) and found.quiet
    version = found.version
    sync(workers=after, cleared=after)
    assert (again := seen()) is not None and again.version == version, "said once"
