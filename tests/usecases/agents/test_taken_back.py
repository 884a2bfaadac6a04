"""Spot interruption notices in the reports of agents."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.offers import CONTAINER
from chalicelib.domain.reasons import InstanceReason
from chalicelib.errors import Invalid
from chalicelib.planning.machines.interruptions import NOTICE
from tests.usecases.cluster import INSTANCE, Cluster, running
from tests.world import nouns as b
from tests.world.plane import World


def spot_machine(world: World) -> Cluster:
    cluster = Cluster.of(world, offer=b.offer(has=b.resources(spot=True)))
    cluster.agent.join()
    return cluster


def test_a_spot_machine_that_hears_that_it_is_taken_back_ends_and_has_its_time(world: World) -> None:
    cluster = spot_machine(world)
    job = cluster.place()
    cluster.agent.sync(running(job))
    world.take_woken()
    cluster.agent.sync(running(job), taken_back_in=90.5)
    instance = cluster.instance
    assert (instance.status, instance.reason) == (InstanceStatus.terminating, InstanceReason.error)
    assert instance.message == "the cloud reclaimed the spot machine"
    assert instance.taken_back_at == world.clock.at + 90_500_000
    assert {f"instance/{INSTANCE}", f"run/{job.run_id}"} <= world.take_woken()
    world.clock.pass_(5)
    cluster.agent.sync(running(job), taken_back_in=85.5)
    assert cluster.instance == instance  # once


def test_a_machine_that_isnt_a_spot_machine_is_taken_back_by_nobody(world: World) -> None:
    cluster = Cluster.of(world)
    cluster.agent.join()
    cluster.agent.sync(taken_back_in=10.0)
    assert cluster.instance.status is InstanceStatus.idle


def test_a_container_that_is_asked_to_end_is_taken_back_and_leaves_its_job_time(world: World) -> None:
    cluster = Cluster.of(world, offer=b.offer("pod", instance_runtime=CONTAINER))
    cluster.agent.join()
    job = cluster.place()
    cluster.agent.sync(running(job))
    cluster.agent.sync(running(job), taken_back_in=0.0)
    assert cluster.instance.status is InstanceStatus.terminating
    assert cluster.instance.taken_back_at == world.clock.at + NOTICE


@pytest.mark.parametrize("seconds", [-1, 3_601, "soon"])
def test_a_time_that_makes_no_sense_is_refused(world: World, seconds: Any) -> None:
    cluster = spot_machine(world)
    with pytest.raises(Invalid, match="taken_back_in"):
        cluster.agent.sync(taken_back_in=seconds)
    assert cluster.instance.status is InstanceStatus.idle
