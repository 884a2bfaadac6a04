"""Tasks on several nodes in containers: all of an attempt are bought at once, beside each other, and none is left of an
attempt that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.backends.simulated.catalog import CONTAINERS
from chalicelib.backends.simulated.cloud import FACTS, FakeCloud
from chalicelib.domain import keys
from chalicelib.domain.instances import Presence
from chalicelib.domain.instants import MINUTE
from chalicelib.domain.reasons import JobReason
from chalicelib.engine.silent_agents import silent_units
from chalicelib.planning.kernel.purchases import CreateSeveral
from chalicelib.store import nouns
from tests.engine.test_gang_purchases import World, gang, started
from tests.engine.test_gang_volumes import add
from tests.world import nouns as b
from tests.world.gangs import jobs_of, task

PODS = {"resources": {"cpu": "2..", "memory": "8GB.."}, "instance_types": ["sim.2cpu"], "regions": [CONTAINERS]}


class Pods(FakeCloud):
    def __init__(self, now: Callable[[], int], **how: Any) -> None:
        super().__init__(now, facts=FACTS.with_(containers=True), **how)


class OneByOne(Pods):
    """Creates each with a call of its own."""

    def __init__(self, now: Callable[[], int], **how: Any) -> None:
        super().__init__(now, **how)
        self.facts = self.facts.with_(batch=0)


def a_gang(nodes: int = 8, cloud: type[FakeCloud] = Pods, *, run: dict[str, Any] | None = None, **script: Any) -> Any:
    world = World.with_fleet("0..20", cloud, **script)
    found = task(world, "train", nodes, **{**PODS, **(run or {})})
    world.woken.append(f"queue/{b.PROJECT}")
    return world, found


def gangs(world: World) -> list[dict[str, Any]]:
    return [body["container"]["gang"] for body in world.cloud.machines()]


@pytest.mark.parametrize("cloud", [Pods, OneByOne])
def test_all_are_requested_in_one_pass_as_one_gang_and_start_when_the_last_exists(cloud: type[FakeCloud]) -> None:
    world, run = a_gang(cloud=cloud)
    world.take_pass()
    assert gang(world, run).status == "sealed" and len(world.machines) == 8
    assert [isinstance(effect, CreateSeveral) for effect in world.bought] == ([True] if cloud is Pods else [False] * 8)
    assert sorted(each["rank"] for each in gangs(world)) == list(range(8))
    assert {(each["nodes"], each["token"]) for each in gangs(world)} == {(8, gangs(world)[0]["token"])}
    assert all(body["started"] for body in world.cloud.machines())
    world.until(lambda: started(world, run))
    places = gang(world, run).places
    assert [job.assignment.instance_id for job in jobs_of(world, run)] == list(places)
    assert list(gang(world, run).addresses) == [each.internal_ip for each in world.machines] and all(places)


def test_if_the_last_can_t_be_created_none_runs_and_all_are_removed() -> None:
    world, run = a_gang(capacity={f"{CONTAINERS}/sim.2cpu": 7})
    world.take_pass()
    assert len(world.cloud.machines()) == 7 and not any(body["started"] for body in world.cloud.machines())
    world.until(lambda: jobs_of(world, run)[0].finished)
    world.until(lambda: not world.cloud.resources())
    message = jobs_of(world, run)[0].message
    assert "has tried every matching offer (no sim.2cpu is left in sim-pods (simulated)" in message
    assert not world.staying


@pytest.mark.slow
def test_then_the_next_offer_is_tried_with_new_ones() -> None:
    room = {f"{CONTAINERS}/sim.2cpu": 7}
    world, run = a_gang(run={"instance_types": ["sim.2cpu", "sim.4cpu"]}, capacity=room)
    world.until(lambda: started(world, run))
    assert [each.offer.instance.name for each in world.staying] == ["sim.4cpu"] * 8
    assert gang(world, run).attempt == 1 and len({each["token"] for each in gangs(world)}) == 1
    assert [each.gang[-2:] for each in world.staying] == ["/1"] * 8
    world.until(lambda: len(world.cloud.machines()) == 8)


def test_one_that_has_no_room_when_it_should_start_ends_the_attempt_of_all() -> None:
    world, run = a_gang(3, short=1)

    def over() -> bool:
        world.woken.extend([f"run/{run.id}", *(f"instance/{each.id}" for each in world.machines)])
        return jobs_of(world, run)[0].finished

    world.until(over, seconds=10, absent=frozenset({"cloud-0"}))
    world.until(lambda: not world.cloud.resources())
    assert "no sim.2cpu was left" in jobs_of(world, run)[0].message


@pytest.mark.slow
def test_one_node_that_is_lost_costs_all_and_a_retry_has_new_ones() -> None:
    world, run = a_gang(3, run={"retry": {"on_events": ["interruption"], "duration": "1h"}})
    world.until(lambda: started(world, run))
    first = list(world.staying)
    lost = first[1]
    world.clock.at += MINUTE  # so that it can't be one that isn't shown yet
    (machine,) = [body for body in world.cloud.machines() if dict(body["tags"])["dstack-instance"] == lost.id]
    world.cloud.lose(machine["id"])
    for each in first:  # the others have nothing to say either
        presence = nouns.find(world.store, Presence, keys.presence(each.id))
        assert presence is not None
        world.save(presence.with_(seen_until=world.at))

    def again() -> bool:
        world.woken.extend(silent_units(world.store, world.clock))
        world.woken.extend([f"run/{run.id}", *(f"instance/{each.id}" for each in first)])
        return len(world.staying) == 3 and not {each.id for each in first} & {each.id for each in world.staying}

    world.until(again, seconds=20)
    assert {each.gang for each in world.staying}.isdisjoint(each.gang for each in first)
    _, jobs = world.plane.read.run_and_jobs(run.id)
    reasons = {job.job_num: job.reason for job in jobs if job.submission_num == 0}
    assert reasons[1] is JobReason.interrupted_by_no_capacity and reasons[0] is not reasons[1]


def test_each_node_has_its_volume_from_the_first_request_on() -> None:
    world, _ = a_gang(2, run={"volumes": ["data-${{ dstack.node_rank }}:/data"]})
    add(world, 2, backend="dstack", region=CONTAINERS)
    world.take_pass()
    mounted = {body["container"]["gang"]["rank"]: body["container"]["mounts"] for body in world.cloud.machines()}
    assert [(mount[1], mount[0]) for rank in (0, 1) for mount in mounted[rank]] == [
        ("/data", "vol-data-0"),
        ("/data", "vol-data-1"),
    ]


def test_where_containers_don_t_reach_each_other_a_task_on_several_nodes_is_refused_by_name() -> None:
    class Alone(Pods):
        def offers(self) -> Any:
            terms = [each.terms.with_(grants=()) for each in super().offers()]
            return [each.with_(terms=own) for each, own in zip(super().offers(), terms, strict=True)]

    world, run = a_gang(2, Alone)
    world.until(lambda: jobs_of(world, run)[0].finished)
    assert "it doesn't reach others, as the nodes of a task do" in jobs_of(world, run)[0].message
    assert not world.machines


def test_a_fleet_of_machines_that_reach_each_other_is_no_place_for_containers_beside_them() -> None:
    """What determines where a cluster is, is its first machine, and no container."""
    world, run = a_gang(2)
    world.until(lambda: started(world, run))
    other = task(world, "other", 2, **{**PODS, "regions": ["sim-east"]})
    world.woken.append(f"queue/{b.PROJECT}")
    world.until(lambda: started(world, other))
    assert {each.offer.is_container for each in world.staying} == {True, False}
