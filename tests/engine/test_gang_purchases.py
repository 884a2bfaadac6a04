"""Tasks on several nodes for which machines are bought: all where the first is, and none is left if that fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.simulated.cloud import FACTS, FakeCloud
from chalicelib.backends.simulated.script import Script
from chalicelib.backends.spi import CreateRequest, CreateResult
from chalicelib.domain import keys
from chalicelib.domain.gangs import Gang, GangStatus
from chalicelib.domain.instances import Instance, InstanceStatus, Presence, instance_id
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.reasons import InstanceReason, JobReason, RunReason
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.engine.effects.context import EffectContext
from chalicelib.engine.execute import Executor
from chalicelib.engine.load import Loader
from chalicelib.engine.read import Reader
from chalicelib.errors import Transient
from chalicelib.planning.kernel.purchases import Create, CreateSeveral
from chalicelib.planning.placing.gang_placement import CHUNK
from chalicelib.store import nouns
from tests.world import nouns as b
from tests.world.engine import Engine
from tests.world.gangs import gang_of, jobs_of, task
from tests.world.ports import Books

SMALL = {"resources": {"cpu": "2..", "memory": "8GB.."}, "instance_types": ["sim.2cpu"]}
EAST, NORTH, WEST = "sim-east", "sim-north", "sim-west"  # north is the cheapest, then east


class World(Engine):
    """An engine, a simulated cloud, and machines whose agents report once they are up."""

    cloud: FakeCloud
    script: Script
    bought: list[Create | CreateSeveral]

    @classmethod
    def with_fleet(cls, nodes: Any = "0..8", cloud_of: type[FakeCloud] = FakeCloud, **script: Any) -> World:
        plan = Script(boot=2 * SECOND, end=0, **script)
        box: list[World] = []
        cloud = cloud_of(lambda: box[0].at, script=plan)
        world = cls.in_memory(backends=Accounts([Account.of(cloud)]), catalog=Books(cloud_of(lambda: 0).offers()))
        box.append(world)
        world.cloud, world.script, world.bought = cloud, plan, []
        world.fleet("cloud", nodes=nodes, placement="cluster")
        return world

    @property
    def machines(self) -> list[Instance]:
        fleet = b.fleet("cloud").id
        found = [nouns.find(self.store, Instance, keys.instance(instance_id(fleet, number))) for number in range(80)]
        return [each for each in found if each is not None]

    @property
    def staying(self) -> list[Instance]:
        leaving = (InstanceStatus.terminating, InstanceStatus.terminated)
        return [each for each in self.machines if each.status not in leaving]

    def take_pass(self, *, seconds: float = 1.0, absent: frozenset[str] = frozenset()) -> None:
        """A pass, all effects that it ordered, and the reports of machines that are up."""
        units, self.woken[:] = set(self.woken), []
        done = self.reconciler().run(units)
        assert not done.failed, done.failed
        backends = self.plane.backends
        here = EffectContext(self.store, self, backends, "install", b"k" * 32, "http://plane:3000")
        executor = Executor(here, Loader(Reader(self.store), self.plane.catalog, backends), wake=self.woken.extend)
        todo, self.effects[:] = list(self.effects), []
        self.bought += [effect for effect in todo if isinstance(effect, Create | CreateSeveral)]
        for effect in todo:
            executor.execute(effect)
        self.clock.at += round(seconds * SECOND)
        for instance in self.machines:
            self._report(instance, absent)

    def _report(self, instance: Instance, absent: frozenset[str]) -> None:
        up = instance.id in self._up()
        young = instance.status in (InstanceStatus.pending, InstanceStatus.provisioning)
        if (
            up
            and young
            and instance.name not in absent
            and nouns.find(self.store, Presence, keys.presence(instance.id)) is None
        ):
            facts = b.host_facts(cpus=2, gb=8, addresses=(f"10.0.0.{instance.num + 1}",))
            self.save(b.presence_of(instance, last=self.at, promise=60 * MINUTE, facts=facts))
            self.woken.append(f"instance/{instance.id}")

    def _up(self) -> set[str]:
        """The instances whose machines run."""
        running = (body for body in self.cloud.machines() if body["running_at"] <= self.at)
        return {dict(body["tags"])["dstack-instance"] for body in running}

    def until(self, what: Any, *, passes: int = 80, **how: Any) -> None:
        for _ in range(passes):
            if what():
                return
            self.take_pass(**how)
        raise AssertionError(f"it never came to that: {[(i.name, i.status, i.message) for i in self.machines]}")


def places(world: World) -> set[tuple[str, str]]:
    return {(each.offer.region, each.zone) for each in world.staying if each.zone}  # else its answer was lost


def gang(world: World, run: Run) -> Gang:
    found = gang_of(world, run)
    assert found is not None
    return found


def started(world: World, run: Run) -> bool:
    return {job.status for job in jobs_of(world, run)} == {JobStatus.provisioning}


@pytest.mark.parametrize("nodes", [2, 8])
def test_a_gang_buys_its_whole_cluster_the_first_machine_first(nodes: int) -> None:
    world = World.with_fleet()
    run = task(world, "train", nodes, **SMALL)
    world.woken.append(f"queue/{b.PROJECT}")
    world.take_pass()
    assert len(world.machines) == 1 and gang(world, run).status is GangStatus.gathering
    world.until(lambda: started(world, run))
    assert places(world) == {(NORTH, "sim-north-a")} and len(world.machines) == nodes
    assert [len(each.claims) for each in world.machines] == [1] * nodes
    where = [job.assignment.instance_id for job in jobs_of(world, run) if job.assignment]
    assert list(gang(world, run).places) == where and where[0] == world.machines[0].id


@pytest.mark.slow
def test_more_than_one_commit_takes() -> None:
    world = World.with_fleet("0..")
    run = task(world, "train", CHUNK + 5, **SMALL)
    world.until(lambda: started(world, run))
    assert len(world.machines) == CHUNK + 5 and len(places(world)) == 1


@pytest.mark.slow
def test_it_buys_only_what_is_missing() -> None:
    world = World.with_fleet({"min": 0, "target": 0, "max": 8})
    one = task(world, "one", 2, **SMALL)
    world.until(lambda: started(world, one))
    two = task(world, "two", 3, **SMALL)
    world.until(lambda: started(world, two))
    assert len(world.machines) == 5 and len(places(world)) == 1
    assert {len(each.claims) for each in world.machines} == {1}


@pytest.mark.slow
def test_a_region_without_the_rest_is_left_for_the_next() -> None:
    world = World.with_fleet(capacity={f"{NORTH}/sim.2cpu": 2})
    run = task(world, "train", 4, **SMALL)
    world.until(lambda: started(world, run))
    assert {each.offer.region for each in world.staying} == {EAST} and len(world.staying) == 4
    assert len(places(world)) == 1
    world.until(lambda: len(world.cloud.machines()) == 4)
    gone = [each for each in world.machines if each.offer.region == NORTH]
    assert len(gone) >= 3 and not any(each.claims for each in gone)
    assert any("for the other nodes of train" in each.message for each in gone)
    assert len(world.cloud.machines()) == 4


@pytest.mark.slow
def test_if_no_region_has_all_nothing_is_kept_and_the_reason_is_said() -> None:
    world = World.with_fleet(capacity={f"{region}/sim.2cpu": 3 for region in (EAST, NORTH, WEST)})
    run = task(world, "train", 4, **SMALL)
    world.until(lambda: jobs_of(world, run)[0].finished, passes=200)
    lead = jobs_of(world, run)[0]
    assert lead.reason is JobReason.failed_to_start_due_to_no_capacity
    assert "no sim.2cpu is left in" in lead.message
    world.until(lambda: not world.staying, passes=200, seconds=30.0)
    assert world.cloud.machines() == []


def test_a_cluster_that_may_never_be_large_enough_buys_nothing() -> None:
    world = World.with_fleet("0..3")
    run = task(world, "train", 4, **SMALL)
    world.until(lambda: jobs_of(world, run)[0].finished)
    assert world.machines == [] and "may have 3 machines" in jobs_of(world, run)[0].message


@pytest.mark.slow
def test_a_node_that_never_comes_ends_the_attempt_and_frees_the_others() -> None:
    world = World.with_fleet()
    run = task(world, "train", 3, **SMALL)
    world.until(lambda: len(world.machines) == 3)
    late = frozenset([world.machines[1].name])
    world.until(lambda: all(job.finished for job in jobs_of(world, run)), absent=late, seconds=20.0)
    assert not any(each.claims for each in world.machines) and gang(world, run).places == ()
    assert world.at <= b.NOW + FACTS.provisioning_timeout + 2 * MINUTE
    world.until(lambda: not world.staying, absent=late, passes=200, seconds=30.0)  # they idle as any machine does
    assert world.cloud.machines() == []


@pytest.mark.slow
def test_a_run_that_is_stopped_while_machines_come_keeps_none_and_buys_no_more() -> None:
    world = World.with_fleet()
    run = task(world, "train", 4, **SMALL)
    world.until(lambda: len(world.machines) == 4)
    stopped = world.again(run)
    world.save(stopped.with_(status=RunStatus.terminating, reason=RunReason.stopped_by_user, due_at=world.at))
    world.until(lambda: world.again(run).finished)
    assert not any(each.claims for each in world.machines)
    world.until(lambda: not world.staying, passes=200, seconds=30.0)
    assert len(world.machines) == 4 and world.cloud.machines() == []


@pytest.mark.slow
def test_what_one_gang_leaves_isnt_given_to_another_in_the_same_look() -> None:
    """It is being ended."""
    world = World.with_fleet("0..20", capacity={f"{NORTH}/sim.2cpu": 3})
    large = task(world, "large", 4, **SMALL)
    world.until(lambda: any("no sim.2cpu is left" in each.message for each in world.machines))
    small = task(world, "small", 2, **SMALL)
    world.until(lambda: started(world, large) and started(world, small))
    assert len(places(world)) == 1 and len({place for run in (large, small) for place in gang(world, run).places}) == 6


# --- several in one call ---------------------------------------------------------------------------------------------


class NoAnswer(FakeCloud):
    """It creates what it is asked for, and its answer is lost."""

    def create_several(self, requests: Sequence[CreateRequest]) -> Iterator[CreateResult]:
        list(super().create_several(requests))
        raise Transient("the connection was reset")
        yield


class HalfAnAnswer(FakeCloud):
    """It breaks off in the middle of its answer."""

    def create_several(self, requests: Sequence[CreateRequest]) -> Iterator[CreateResult]:
        made = list(super().create_several(requests))
        yield from made[: len(made) // 2]
        raise Transient("the connection was reset")


class OneByOne(FakeCloud):
    """It can't create several in one call, although it could when that was decided."""

    create_several = None  # type: ignore[assignment]


def several(world: World) -> list[int]:
    return [len(each.units) if isinstance(each, CreateSeveral) else 1 for each in world.bought]


@pytest.mark.slow
def test_the_rest_is_bought_in_as_few_calls_as_the_backend_allows() -> None:
    world = World.with_fleet("0..")
    run = task(world, "train", 20, **SMALL)
    world.until(lambda: started(world, run))
    assert FACTS.batch == 8 and several(world) == [1, 8, 8, 3]


def test_so_are_the_machines_of_a_fleet() -> None:
    world = World.with_fleet("6")
    world.woken.append(f"fleet/{b.fleet('cloud').id}")
    world.until(lambda: [each.status for each in world.machines] == [InstanceStatus.idle] * 6)
    assert several(world) == [1, 5] and len(places(world)) == 1


@pytest.mark.parametrize("cloud", [NoAnswer, HalfAnAnswer, OneByOne])
def test_whatever_comes_of_that_call_each_machine_is_bought_once(cloud: type[FakeCloud]) -> None:
    world = World.with_fleet(cloud_of=cloud)
    run = task(world, "train", 5, **SMALL)
    world.until(lambda: started(world, run))
    assert several(world)[:2] == [1, 4]
    assert len(world.machines) == 5 == len(world.cloud.machines()) and len(places(world)) == 1
    owners = [dict(body["tags"])["dstack-instance"] for body in world.cloud.machines()]
    assert sorted(owners) == sorted(each.id for each in world.machines)


def test_what_is_created_one_by_one_is_known_to_be_there_at_once() -> None:
    world = World.with_fleet(cloud_of=OneByOne)
    task(world, "train", 5, **SMALL)
    world.until(lambda: several(world) == [1, 4])
    assert len(world.machines) == 5 and InstanceStatus.pending not in {each.status for each in world.machines}


def test_a_machine_that_is_refused_in_that_call_costs_the_others_nothing() -> None:
    world = World.with_fleet("0..8", capacity={f"{NORTH}/sim.2cpu": 3})
    run = task(world, "train", 4, **{**SMALL, "instance_types": ["sim.2cpu", "sim.4cpu"]})
    world.until(lambda: started(world, run))
    kinds = sorted(each.offer.instance.name for each in world.staying)
    assert kinds == ["sim.2cpu"] * 3 + ["sim.4cpu"] and len(places(world)) == 1
    assert len(world.cloud.machines()) == 4


class Unwanted(FakeCloud):
    """While it creates several machines, somebody ends the first of them."""

    meanwhile: Any = staticmethod(lambda instance_id: None)

    def create_several(self, requests: Sequence[CreateRequest]) -> Iterator[CreateResult]:
        made = list(super().create_several(requests))
        self.meanwhile(requests[0].instance_id)
        yield from made


@pytest.mark.parametrize("status", [InstanceStatus.terminating, InstanceStatus.terminated])
def test_one_that_ends_during_that_call_is_given_back_and_the_others_stay(status: InstanceStatus) -> None:
    world = World.with_fleet("4", cloud_of=Unwanted)
    ended: list[str] = []

    def end(instance_id: str) -> None:
        found = nouns.find(world.store, Instance, keys.instance(instance_id))
        assert found is not None
        ended.append(found.id)
        world.save(found.with_(status=status, reason=InstanceReason.terminated_by_user, due_at=world.at))

    world.cloud.meanwhile = end  # type: ignore[attr-defined]
    world.woken.append(f"fleet/{b.fleet('cloud').id}")
    world.until(lambda: len(ended) == 1)
    world.cloud.meanwhile = lambda instance_id: None  # type: ignore[attr-defined]
    world.until(lambda: len([each for each in world.machines if each.status is InstanceStatus.idle]) == 4)
    world.until(lambda: len(world.cloud.machines()) == 4)
    assert ended[0] not in {dict(body["tags"]).get("dstack-instance") for body in world.cloud.resources()}
