"""Orders and reports about a gateway's replica in the calls of its machine's agent."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.gateways import Gateway, ReplicaState
from chalicelib.domain.reports import GatewayReport
from chalicelib.errors import Invalid
from chalicelib.usecases.agents.gateway_replicas import settling
from tests.usecases.cluster import INSTANCE, Cluster
from tests.world import gateways as g
from tests.world.plane import World

DOOR = g.gateway()
WANTED = {"id": DOOR.id, "num": 0, "http": 80, "https": 443}


def carrying(world: World, **seat: Any) -> Cluster:
    """A machine that has joined, and a gateway that it is to carry."""
    cluster = Cluster.of(world)
    cluster.agent.join()
    instance = g.seated(DOOR, cluster.instance, **seat)
    world.save(instance, g.carrying(DOOR, instance, state=ReplicaState.provisioning).with_(version=0))
    world.take_woken()
    return cluster


def door(world: World) -> Gateway:
    found: Gateway = world.again(DOOR)
    return found


def report(state: str = "running", **more: Any) -> dict[str, Any]:
    return {**WANTED, "state": state, "message": "", **more}


def test_an_agent_hears_which_gateway_its_machine_carries_until_it_is_about_that(world: World) -> None:
    cluster = carrying(world)
    answer = cluster.agent.sync()
    assert (answer["gateway"], answer["news"]) == (WANTED, True)
    answer = cluster.agent.sync(gateway=report("installing"))
    assert (answer["gateway"], answer["news"]) == (WANTED, False)
    answer = cluster.agent.sync(gateway=report("starting", http=8080))
    assert (answer["gateway"], answer["news"]) == (WANTED, True), "it is about another port"


def test_what_it_says_is_the_replicas_state(world: World) -> None:
    cluster = carrying(world)
    cluster.agent.sync(gateway=report("installing"))
    (replica,) = door(world).replicas
    assert (replica.state, replica.message) == (ReplicaState.provisioning, "installing")
    cluster.agent.sync(gateway=report("failed", message="apt-get fails"))
    (replica,) = door(world).replicas
    assert (replica.failed, replica.message) == (True, "apt-get fails")
    world.take_woken()
    cluster.agent.sync(gateway=report())
    (replica,) = door(world).replicas
    assert (replica.state, replica.failed, replica.message) == (ReplicaState.running, False, "")
    assert DOOR.unit in world.take_woken()
    before = door(world)
    cluster.agent.sync(gateway=report())
    assert door(world) == before, "nothing new"


def test_what_it_says_of_another_place_is_late(world: World) -> None:
    cluster = carrying(world)
    for other in ({"num": 1}, {"http": 8080}, {"https": None}, {"id": "another"}):
        cluster.agent.sync(gateway=report(**other))
        assert door(world).replicas[0].state is ReplicaState.provisioning


def test_a_replica_that_is_to_leave_has_left_once_its_agent_says_nothing_of_it(world: World) -> None:
    cluster = carrying(world, leaving=True)
    answer = cluster.agent.sync(gateway=report())
    assert "gateway" not in answer and answer["news"]
    assert cluster.instance.gateway is not None and door(world).replicas[0].state is ReplicaState.provisioning
    answer = cluster.agent.sync()
    assert cluster.instance.gateway is None and not answer["news"]
    assert DOOR.unit in world.take_woken()


def test_a_machine_without_a_gateway_is_told_to_remove_what_it_has(world: World) -> None:
    cluster = Cluster.of(world)
    cluster.agent.join()
    answer = cluster.agent.sync(gateway=report())
    assert "gateway" not in answer and answer["news"]
    assert not cluster.agent.sync()["news"]


@pytest.mark.parametrize("wrong", [{"state": "up"}, {"http": 0}, {"http": 70000}, {"message": "x" * 1001}])
def test_a_report_that_makes_no_sense_is_refused(world: World, wrong: dict[str, Any]) -> None:
    cluster = carrying(world)
    with pytest.raises(Invalid, match="gateway"):
        cluster.agent.sync(gateway=report(**wrong))
    assert cluster.instance.id == INSTANCE


def test_who_installs_is_asked_again_soon() -> None:
    seat = g.seated(DOOR, g.host()).gateway
    states = {
        state: GatewayReport.model_validate(report(state)) for state in ("installing", "starting", "running", "failed")
    }
    assert settling(seat, None) and settling(None, states["running"]) and not settling(None, None)
    assert [settling(seat, each) for each in states.values()] == [True, True, False, False]
