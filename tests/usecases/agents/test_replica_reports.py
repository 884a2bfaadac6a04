"""Agents' reports on a service's replica: the job, its event, and the wakes that follow."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.events import EventType
from chalicelib.domain.jobs import Job
from tests.usecases.cluster import Cluster, running
from tests.world.plane import World

PROBE = {
    "type": "http",
    "url": "/health?key=${{ env.KEY }}",
    "method": "post",
    "headers": [{"name": "X-Key", "value": "${{ env.KEY }} ${{ secrets.none }}"}],
    "body": '{"key": "${{ env.KEY }}"}',
    "timeout": 10,
    "interval": 15,
    "ready_after": 2,
    "until_ready": False,
}


@pytest.fixture
def cluster(world: World) -> Cluster:
    made = Cluster.of(world)
    made.agent.join()
    return made


def replica(cluster: Cluster, *probes: dict[str, Any], **spec: Any) -> Job:
    job = cluster.place("app", {"KEY": "k1"}, {"service_port": 8000, "probes": probes, **spec})
    cluster.agent.sync(running(job, listens=False))
    cluster.world.take_woken()
    return cluster.job(job)


def reported(cluster: Cluster, job: Job, **fields: Any) -> Job:
    cluster.agent.sync(running(job, **fields))
    return cluster.job(job)


def test_a_replica_becomes_ready_with_an_event_and_its_run_is_looked_at(cluster: Cluster) -> None:
    job = replica(cluster, PROBE)
    assert (job.ready_at, job.probes) == (None, (0,))
    assert reported(cluster, job, listens=True, probes=[1]).ready_at is None
    assert f"run/{job.run_id}" in cluster.world.take_woken()
    cluster.world.clock.pass_(3)
    job = reported(cluster, job, listens=True, probes=[2])
    assert job.ready_at == cluster.world.at and f"run/{job.run_id}" in cluster.world.take_woken()
    ready = [event for event in cluster.events if event.type is EventType.ready]
    assert [(event.message, event.targets[0].id) for event in ready] == [("ready to receive requests", job.id)]


def test_a_steady_replica_writes_nothing(cluster: Cluster) -> None:
    job = reported(cluster, replica(cluster, PROBE), listens=True, probes=[2], host_port=8000, queue=0)
    cluster.world.clock.pass_(1)
    assert reported(cluster, job, listens=True, probes=[2], host_port=8000, queue=0) == job


def test_a_probe_that_fails_later_is_shown_and_it_stays_ready(cluster: Cluster) -> None:
    job = reported(cluster, replica(cluster, PROBE), listens=True, probes=[2])
    after = reported(cluster, job, listens=True, probes=[0])
    assert (after.probes, after.ready_at) == ((0,), job.ready_at)


def test_a_replica_of_an_earlier_agent_is_ready_once_it_runs(cluster: Cluster) -> None:
    job = cluster.place("app", {}, {"service_port": 8000, "probes": (PROBE,)})
    assert reported(cluster, job).ready_at is not None


def test_a_task_is_never_ready(cluster: Cluster) -> None:
    job = reported(cluster, cluster.place(), listens=True, probes=[1], queue=3, host_port=80)
    assert (job.ready_at, job.listens, job.queue, job.host_port) == (None, False, None, None)


def test_the_agent_gets_the_port_and_the_probes_with_their_variables_filled_in(cluster: Cluster) -> None:
    job = cluster.place("app", {"KEY": "k1"}, {"service_port": 8000, "probes": (PROBE,), "queued": True})
    (entry,) = cluster.agent.sync()["tasks"]
    task = entry["spec"]
    assert (task["id"], task["service_port"], task["queue"]) == (job.id, 8000, True)
    assert task["env"]["DSTACK_SERVICE_PORT"] == "8000"
    (probe,) = task["probes"]
    assert (probe["url"], probe["body"]) == ("/health?key=k1", '{"key": "k1"}')
    assert probe["headers"] == [{"name": "X-Key", "value": "k1 ${{ secrets.none }}"}], "secrets stay out of probes"
    assert probe["ready_after"] == 2


def test_a_task_without_a_port_has_none_of_it(cluster: Cluster) -> None:
    cluster.place()
    task = cluster.agent.sync()["tasks"][0]["spec"]
    assert not {"service_port", "probes", "queue"} & task.keys() and "DSTACK_SERVICE_PORT" not in task["env"]
