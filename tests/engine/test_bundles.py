"""Machines that are bought in one purchase: all of them for one task, and they end together, once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.simulated.cloud import FACTS, FakeCloud
from chalicelib.backends.simulated.script import Script
from chalicelib.backends.spi import CreateRequest
from chalicelib.domain import keys
from chalicelib.domain.boot_script import read_user_data
from chalicelib.domain.bundles import rank
from chalicelib.domain.fleets import Fleet, FleetStatus
from chalicelib.domain.gangs import GangStatus
from chalicelib.domain.instances import Handle, Instance, InstanceStatus
from chalicelib.domain.instants import HOUR, MINUTE, SECOND
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.offers import Offer
from chalicelib.domain.reasons import InstanceReason, JobReason, RunReason
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.errors import Transient
from chalicelib.planning.kernel.purchases import Create
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.placing.gang_placement import CHUNK
from chalicelib.store import nouns
from chalicelib.store.port import Change
from tests.engine import test_gang_purchases as one_by_one
from tests.engine.test_gang_purchases import gang, started
from tests.world import nouns as b
from tests.world.gangs import jobs_of, task
from tests.world.ports import Books, CountingStore

TYPE, SIZE, NORTH = "sim.2cpu-x4", 4, "sim-north"
FOUR: dict[str, Any] = {"resources": {"cpu": "2..", "memory": "8GB.."}, "instance_types": [TYPE]}
BUNDLES = FACTS.with_(bundles=True)
LEAVING = (InstanceStatus.terminating, InstanceStatus.terminated)


class World(one_by_one.World):
    @classmethod
    def with_fleet(
        cls,
        nodes: Any = "0..8",
        cloud_of: type[FakeCloud] = FakeCloud,
        types: Sequence[str] | None = (TYPE,),
        store_of: type[CountingStore] = CountingStore,
        **script: Any,
    ) -> World:
        plan = Script(boot=2 * SECOND, end=0, **script)
        box: list[World] = []
        cloud = cloud_of(lambda: box[0].at, script=plan, facts=BUNDLES)
        offers = cloud_of(lambda: 0, facts=BUNDLES).offers()
        store = store_of(lambda: box[0].at)
        world = cls.in_memory(backends=Accounts([Account.of(cloud)]), catalog=Books(offers), store=store)
        box.append(world)
        world.cloud, world.script, world.bought = cloud, plan, []
        world.fleet("cloud", nodes=nodes, placement="cluster", idle_duration="1m", instance_types=types)
        return world

    def _up(self) -> set[str]:
        scripts = (script for body in self._running() for script in _scripts(body))
        return {read_user_data(script)[1] for script in scripts}

    def _running(self) -> Iterator[dict[str, Any]]:
        found = self.cloud.machines()
        return (body for body in found if body["comes_up"] and body["running_at"] <= self.at)

    def passes(self, minutes: int) -> None:
        until = self.at + minutes * MINUTE
        while self.at < until:
            self.take_pass(seconds=20.0)

    def ends(self, job: Job) -> None:
        """As its agent reports it."""
        assert job.assignment is not None
        instance = nouns.find(self.store, Instance, keys.instance(job.assignment.instance_id))
        assert instance is not None
        draft = Draft(self.at)
        ending = draft.end_job(self.again(job), JobReason.done_by_runner)
        draft.finish_job(ending, instance)
        self.save(*draft.step().saves)
        self.woken.extend(draft.step().wake)


def _scripts(body: dict[str, Any]) -> Sequence[str]:
    return body["bundle"] or [body["user_data"]]


def bought(world: World) -> int:
    return sum(isinstance(each, Create) for each in world.bought)


def gone(world: World) -> bool:
    return {each.status for each in world.machines} == {InstanceStatus.terminated}


def test_a_task_gets_the_whole_bundle_by_one_purchase_each_node_its_own_machine() -> None:
    world = World.with_fleet()
    run = task(world, "train", SIZE, **FOUR)
    world.until(lambda: started(world, run))
    assert bought(world) == 1 and len(world.cloud.machines()) == 1 and len(world.machines) == SIZE
    assert [each.bundle for each in world.machines] == [0] * SIZE
    assert [each.handles[-1].data.get("worker", "0") for each in world.machines] == ["0", "1", "2", "3"]
    assert len({each.handles[-1].id for each in world.machines}) == 1
    where = [job.assignment.instance_id for job in jobs_of(world, run) if job.assignment]
    assert where == [each.id for each in world.machines] and list(gang(world, run).places) == where
    assert {each.offer.region for each in world.machines} == {NORTH}, "the cheapest"


def test_its_price_is_that_of_a_machine() -> None:
    world = World.with_fleet()
    task(world, "train", SIZE, **FOUR)
    world.until(lambda: len(world.machines) == SIZE)
    assert sum(each.offer.price for each in world.machines) == pytest.approx(4 * 0.06 * 0.92)


@pytest.mark.slow
def test_another_task_reuses_it_as_a_whole_with_the_same_ranks() -> None:
    world = World.with_fleet("0..4")
    one = task(world, "one", SIZE, **FOUR)
    world.until(lambda: started(world, one))
    two = task(world, "two", SIZE, **FOUR)
    for job in reversed(jobs_of(world, one)):
        world.take_pass()
        assert not any(claim.run_id == two.id for each in world.machines for claim in each.claims)
        world.ends(job)
    world.until(lambda: started(world, two))
    assert bought(world) == 1 and [rank(each) for each in world.machines] == [0, 1, 2, 3]
    assert list(gang(world, two).places) == [each.id for each in world.machines]


@pytest.mark.parametrize(("nodes", "text"), [(1, "set `nodes: 4`"), (3, "set `nodes: 4`"), (8, "set `nodes: 4`")])
def test_a_task_with_another_number_of_nodes_learns_the_right_one(nodes: int, text: str) -> None:
    world = World.with_fleet()
    run = task(world, "train", nodes, **FOUR)
    world.woken.append(f"queue/{b.PROJECT}")
    world.until(lambda: jobs_of(world, run)[0].finished)
    message = jobs_of(world, run)[0].message
    assert "sim.2cpu-x4 is 4 machines, which are bought and used together" in message and text in message, message
    assert world.machines == []


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        (1, "is full (4 of 4 nodes), and its machines are used 4 at a time (set `nodes: 4` in the run)"),
        (3, "has 4 machines that fit, but `nodes` allows 0 of them"),
    ],
)
def test_so_it_does_where_the_fleet_has_no_room_for_others(nodes: int, text: str) -> None:
    world = World.with_fleet("4")
    world.save(world_fleet(world).with_(due_at=world.at))
    world.until(lambda: [each.status for each in world.machines] == [InstanceStatus.idle] * SIZE)
    run = task(world, "other", nodes, **FOUR)
    world.woken.append(f"queue/{b.PROJECT}")
    world.until(lambda: jobs_of(world, run)[0].finished)
    assert text in jobs_of(world, run)[0].message


@pytest.mark.slow
def test_no_other_job_gets_a_machine_of_it() -> None:
    world = World.with_fleet(types=None)
    one = task(world, "one", SIZE, **FOUR)
    world.until(lambda: started(world, one))
    for job in jobs_of(world, one):
        world.ends(job)
    small = task(world, "small", 1, **{**FOUR, "instance_types": None})
    pair = task(world, "pair", 2, **{**FOUR, "instance_types": None})
    world.until(lambda: started(world, small) and started(world, pair))
    assert not any(each.claims for each in world.machines if each.bundle is not None)


@pytest.mark.slow
def test_none_of_it_ends_while_a_node_still_runs_and_all_end_once_it_is_idle() -> None:
    world = World.with_fleet()
    run = task(world, "train", SIZE, **FOUR)
    world.until(lambda: started(world, run))
    first, *others = jobs_of(world, run)
    for job in others:
        world.ends(job)
    world.passes(4)
    assert {each.status for each in world.machines} == {InstanceStatus.busy, InstanceStatus.idle}
    world.ends(first)
    world.take_pass(seconds=40.0)
    assert not any(each.status in LEAVING for each in world.machines), "it has just become idle as a whole"
    world.until(lambda: gone(world), passes=30, seconds=10.0)
    assert world.cloud.resources() == []


def test_a_bundle_that_is_refused_is_bought_elsewhere_and_nothing_is_left() -> None:
    world = World.with_fleet(capacity={f"{NORTH}/{TYPE}": 0})
    run = task(world, "train", SIZE, **FOUR)
    world.until(lambda: started(world, run))
    assert {each.offer.region for each in world.staying} == {"sim-east"} and len(world.staying) == SIZE
    world.until(lambda: len([each for each in world.machines if each.status is InstanceStatus.terminated]) == SIZE)
    assert len(world.cloud.machines()) == 1


@pytest.mark.slow
def test_one_that_turns_out_to_be_missing_later_is_given_up_by_all() -> None:
    world = World.with_fleet(short=1)
    run = task(world, "train", SIZE, **FOUR)
    world.until(lambda: started(world, run), passes=200)
    assert {each.offer.region for each in world.staying} == {"sim-east"} and len(world.staying) == SIZE
    assert gang(world, run).status is GangStatus.released


class NoAnswer(FakeCloud):
    """It creates what it is asked for, and its first answer is lost."""

    lost = False

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        made = list(super().create(request))
        if not self.lost:
            self.lost = True
            raise Transient("the connection was reset")
        yield from made


def test_an_answer_that_is_lost_buys_nothing_twice() -> None:
    world = World.with_fleet(cloud_of=NoAnswer)
    run = task(world, "train", SIZE, **FOUR)
    world.until(lambda: started(world, run), passes=200)
    assert len(world.cloud.machines()) == 1 and len(world.machines) == SIZE


@pytest.mark.slow
def test_a_machine_that_never_comes_ends_all() -> None:
    world = World.with_fleet()
    run = task(world, "train", SIZE, **FOUR)
    world.until(lambda: len(world.machines) == SIZE)
    late = frozenset([world.machines[2].name])
    world.until(lambda: all(job.finished for job in jobs_of(world, run)), absent=late, seconds=20.0)
    world.until(lambda: gone(world), absent=late, seconds=20.0)
    assert world.cloud.resources() == []


def test_a_bundle_that_is_lost_ends_every_node() -> None:
    world = World.with_fleet()
    run = task(world, "train", SIZE, **FOUR)
    world.until(lambda: started(world, run))
    world.cloud.lose(world.cloud.machines()[0]["id"])
    lost = world.machines[1]
    world.save(world.again(lost).with_(unreachable_since=world.at - HOUR))
    presence = b.presence_of(lost, last=world.at - HOUR, promise=MINUTE)
    found = nouns.find(world.store, type(presence), keys.presence(lost.id))
    assert found is not None
    world.save(found.with_(seen_until=world.at - MINUTE))
    world.woken.append(f"instance/{lost.id}")
    world.until(lambda: all(each.status in LEAVING for each in world.machines), passes=20)
    assert sum("which was bought together with it, has ended" in each.message for each in world.machines) == SIZE - 1
    world.until(lambda: gone(world), seconds=10.0)
    assert all(job.finished for job in jobs_of(world, run)) and world.cloud.resources() == []


def test_a_stop_before_it_is_there_leaves_nothing() -> None:
    world = World.with_fleet()
    run = task(world, "train", SIZE, **FOUR)
    world.until(lambda: len(world.machines) == SIZE)
    stopped = {"status": RunStatus.terminating, "reason": RunReason.stopped_by_user, "due_at": world.at}
    world.save(world.again(run).with_(**stopped))
    world.until(lambda: gone(world), passes=200, seconds=20.0)
    assert world.cloud.resources() == [] and bought(world) == 1


class Large(FakeCloud):
    """Its bundles don't fit one commit."""

    def offers(self) -> Sequence[Offer]:
        found = super().offers()
        terms = (each.terms.with_(bundle=CHUNK + 5) if each.bundle > 1 else each.terms for each in found)
        return [each.with_(terms=of) for each, of in zip(found, terms, strict=True)]


@pytest.mark.slow
def test_more_than_one_commit_takes() -> None:
    world = World.with_fleet("0..", cloud_of=Large)
    run = task(world, "train", CHUNK + 5, **FOUR)
    world.until(lambda: started(world, run))
    assert bought(world) == 1 and len(world.machines) == CHUNK + 5 and len(world.cloud.machines()) == 1


class Died(BaseException):
    """The process is gone."""


class Mortal(CountingStore):
    """Its client dies at a commit that adds instances, after so many others."""

    left: int | None = None

    def commit(self, changes: Sequence[Change]) -> None:
        if self.left is not None and any(change.key.pk.startswith("instance/") for change in changes):
            if self.left == 0:
                raise Died
            self.left -= 1
        super().commit(changes)


def ordered_in_part() -> tuple[World, Run]:
    """A fleet where the process died after the first of two commits of a bundle, which was for this run."""
    world = World.with_fleet("0..", cloud_of=Large, types=(TYPE, "sim.4cpu"), store_of=Mortal)
    run = task(world, "train", CHUNK + 5, **FOUR)
    store: Any = world.store
    store.left = 1
    with pytest.raises(Died):
        world.take_pass()
    store.left = None
    assert len(world.machines) == CHUNK and not any(isinstance(each, Create) for each in world.effects)
    world.effects.clear()
    return world, run


@pytest.mark.slow
def test_a_process_that_dies_between_two_commits_of_a_bundle_has_bought_nothing() -> None:
    world, run = ordered_in_part()
    world.until(lambda: started(world, run), passes=300, seconds=5.0)
    assert len(world.machines) == 2 * CHUNK + 5 and bought(world) == 1 == len(world.cloud.machines())
    first = world.machines[:CHUNK]
    assert "wasn't ordered as a whole" in " ".join(world.again(each).message for each in first)
    over = lambda: {world.again(each).status for each in first} == {InstanceStatus.terminated}  # noqa: E731
    world.until(over, passes=40, seconds=10.0)
    assert not any(each.status in LEAVING for each in world.machines[CHUNK:]), "they have the missing numbers"


@pytest.mark.slow
def test_a_single_machine_with_the_next_number_isnt_taken_for_one_of_a_bundle_ordered_in_part() -> None:
    world, run = ordered_in_part()
    world.save(world.again(run).with_(status=RunStatus.terminating, reason=RunReason.stopped_by_user, due_at=world.at))
    small = task(world, "small", 1, **{**FOUR, "instance_types": ["sim.4cpu"]})
    world.woken += [f"run/{run.id}", f"queue/{b.PROJECT}"]
    world.until(lambda: started(world, small), passes=100, seconds=5.0)
    part, (single,) = world.machines[:CHUNK], world.machines[CHUNK:]
    assert (single.num, single.bundle) == (CHUNK, None)
    over = lambda: {world.again(each).status for each in part} == {InstanceStatus.terminated}  # noqa: E731
    world.until(over, passes=60, seconds=10.0)
    assert world.again(single).status not in LEAVING and bought(world) == 1 == len(world.cloud.machines())
    assert not any(each.handles for each in world.machines[:CHUNK]), "nor has its VM"


# --- fleets ----------------------------------------------------------------------------------------------------------


def test_a_fleet_buys_as_many_bundles_as_its_nodes_are() -> None:
    world = World.with_fleet("8")
    world.save(world.again(world_fleet(world)).with_(due_at=world.at))
    world.until(lambda: [each.status for each in world.machines] == [InstanceStatus.idle] * 8)
    kinds = {each.offer.instance.name for each in world.machines}
    assert kinds == {TYPE} and bought(world) == 2 and len(world.cloud.machines()) == 2
    assert [each.bundle for each in world.machines] == [0] * 4 + [4] * 4


def world_fleet(world: World) -> Fleet:
    found = nouns.find(world.store, Fleet, keys.fleet(b.fleet("cloud").id))
    assert found is not None
    return found


def test_a_fleet_whose_nodes_are_no_multiple_buys_nothing_and_says_why() -> None:
    world = World.with_fleet("6")
    world.save(world_fleet(world).with_(due_at=world.at))
    world.until(lambda: bool(world_fleet(world).message))
    assert "sim.2cpu-x4 is 4 machines, which are bought and used together" in world_fleet(world).message
    assert world.machines == []


@pytest.mark.slow
def test_a_fleet_with_a_lost_bundle_gets_another_one() -> None:
    world = World.with_fleet("4")
    world.save(world_fleet(world).with_(due_at=world.at))
    world.until(lambda: [each.status for each in world.machines] == [InstanceStatus.idle] * 4)
    draft = Draft(world.at)
    draft.end_instance(world.machines[1], InstanceReason.error, "broken")
    world.save(*draft.step().saves)
    world.woken.extend(draft.step().wake)
    world.until(lambda: [each.status for each in world.staying] == [InstanceStatus.idle] * 4, passes=200)
    assert bought(world) == 2 and len(world.cloud.machines()) == 1


@pytest.mark.slow
def test_a_fleet_that_is_deleted_waits_for_the_last_node() -> None:
    world = World.with_fleet()
    run = task(world, "train", SIZE, **FOUR)
    world.until(lambda: started(world, run))
    first, *others = jobs_of(world, run)
    for job in others:
        world.ends(job)
    fleet = world_fleet(world)
    world.save(fleet.with_(status=FleetStatus.terminating, due_at=world.at))
    world.passes(4)
    assert not any(each.status in LEAVING for each in world.machines)
    assert jobs_of(world, run)[0].status is JobStatus.provisioning
    world.ends(first)
    world.until(lambda: gone(world), passes=100, seconds=10.0)
    assert world.cloud.resources() == []
