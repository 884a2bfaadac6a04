"""The sessions of a job as its agent reports them, and the use of its GPUs: from a message to the decision."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.jobs import Job
from tests.usecases.cluster import Cluster, running
from tests.world.plane import World


@pytest.fixture
def cluster(world: World) -> Cluster:
    made = Cluster.of(world)
    made.agent.join()
    return made


def reported(cluster: Cluster, job: Job, wrong: int = 0, **sessions: Any) -> Job:
    """The job after its agent's report. `wrong`: what its machine's clock is ahead."""
    cluster.agent.sync(running(job, **sessions), at=cluster.world.at + wrong)
    return cluster.job(job)


@pytest.mark.parametrize("wrong", [0, 10 * MINUTE, -10 * MINUTE])
def test_when_the_last_session_ended_is_read_by_the_machines_own_clock(cluster: Cluster, wrong: int) -> None:
    job = cluster.place()
    job = reported(cluster, job, wrong, connections=1, idle_since=None)
    assert (job.connections, job.inactive_since) == (1, None)
    cluster.world.clock.pass_(60)
    ended = cluster.world.at
    cluster.world.clock.pass_(5)
    cluster.world.take_woken()
    job = reported(cluster, job, wrong, connections=0, idle_since=ended + wrong)
    assert (job.connections, job.inactive_since) == (0, ended)
    assert f"run/{job.run_id}" in cluster.world.take_woken(), "when it ends is decided anew"


def test_the_same_again_writes_nothing(cluster: Cluster) -> None:
    job = cluster.place()
    since = cluster.world.at - 5 * SECOND
    job = reported(cluster, job, connections=0, idle_since=since)
    cluster.world.clock.pass_(7)
    assert reported(cluster, job, connections=0, idle_since=since) == job


def test_a_new_session_and_its_end_count_anew(cluster: Cluster) -> None:
    job = cluster.place()
    reported(cluster, job, connections=0, idle_since=cluster.world.at)
    cluster.world.clock.pass_(300)
    assert reported(cluster, job, connections=2, idle_since=None).inactive_since is None
    cluster.world.clock.pass_(300)
    assert reported(cluster, job, connections=0, idle_since=cluster.world.at).inactive_since == cluster.world.at


def test_an_agent_that_doesnt_count_them_says_nothing(cluster: Cluster) -> None:
    job = reported(cluster, cluster.place())
    assert (job.connections, job.inactive_since) == (None, None)


def test_a_restarted_agent_goes_on_counting(cluster: Cluster) -> None:
    job = cluster.place()
    reported(cluster, job, connections=1, idle_since=None)
    cluster.agent.boot, cluster.agent.seq = "boot-2", 0
    assert reported(cluster, job, connections=1, idle_since=None).connections == 1
