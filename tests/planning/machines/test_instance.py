"""Wait for the agent, let it idle, notice that it is gone, give it back until that is certain."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.fleets import Fleet, FleetStatus
from chalicelib.domain.instances import Handle, HostFacts, HostGpu, Instance, InstanceStatus
from chalicelib.domain.instants import HOUR, Micros
from chalicelib.domain.jobs import Assignment, Job, JobStatus, Mounted
from chalicelib.domain.offers import Offer
from chalicelib.domain.reasons import InstanceReason, JobReason
from chalicelib.planning.kernel.plan import Effect, Outcome, Plan
from chalicelib.planning.kernel.purchases import Bought, Create, Describe, Left, NotBought, NotDone, Seen, Terminate
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.machines.instance import TO_DETACH, decide_instance, needs_fleet_size
from chalicelib.planning.machines.outcomes import decide_outcome
from chalicelib.planning.machines.snapshots import InstanceSnapshot
from tests.world import nouns as b
from tests.world.nouns import lint

SEEN = HostFacts(
    cpus=8,
    memory_mib=32768,
    disk_mib=100_000,
    arch="x86",
    hostname="h1",
    addresses=("10.0.0.5",),
    runtimes=("process",),
)

OPEN = (
    b.NOW + b.FACTS["aws"].create_timeout + b.FACTS["aws"].visibility_lag
)  # until then the first purchase is under way


class World:
    def __init__(
        self,
        status: str = "pending",
        /,
        *,
        nodes: Any = "0..2",
        blocks: Any = 1,
        facts: BackendFacts | None = None,
        **fields: Any,
    ) -> None:
        self.fleet: Fleet = b.fleet("cloud")
        fresh = {"started_at": None, "idle_since": None} if status in ("pending", "provisioning") else {}
        limits = {"act_until": OPEN, "deadline": b.NOW + 10 * b.MINUTE} if fresh else {}
        self.instance: Instance = b.machine(
            0, self.fleet, status=InstanceStatus(status), **{**fresh, **limits, **fields}
        )
        self.spec = b.fleet_spec(nodes=nodes, blocks=blocks)
        self.siblings: tuple[Instance, ...] = ()
        self.jobs: tuple[Job, ...] = ()
        self.presence: Any = None
        self.facts = facts or b.FACTS["aws"]
        self.now = b.NOW + b.SECOND

    def with_job(self, status: str = "provisioning") -> World:
        job = b.job(b.run(), due_at=None)
        i = self.instance
        where = Assignment(
            instance_id=i.id,
            instance_name=i.name,
            fleet_id=i.fleet_id,
            fleet_name=i.fleet_name,
            offer=i.offer,
            assigned_at=b.NOW,
        )
        self.jobs = (job.with_(status=JobStatus(status), assignment=where, provisioned_at=b.NOW),)
        self.instance = b.holding(i, job)
        return self

    def reported(self, facts: HostFacts = SEEN, **fields: Any) -> World:
        self.presence = b.presence_of(self.instance, last=self.now, facts=facts, **fields)
        return self

    @property
    def snapshot(self) -> InstanceSnapshot:
        view = FleetView(self.fleet, self.spec, (self.instance, *self.siblings))
        return InstanceSnapshot(self.now, self.instance, self.presence, view, self.jobs, self.facts)

    def take(self, plan: Plan) -> Plan:
        assert lint(self.snapshot, plan) == []
        for step in plan.steps:
            for noun in step.saves:
                if isinstance(noun, Instance):
                    self.instance = noun
                elif isinstance(noun, Job):
                    self.jobs = (noun,)
                elif isinstance(noun, Fleet):
                    self.fleet = noun
        return plan

    def decide(self) -> Plan:
        return self.take(decide_instance(self.snapshot))

    def outcome(self, outcome: Outcome) -> Plan:
        return self.take(decide_outcome(self.snapshot, outcome))

    @property
    def unit(self) -> str:
        return f"instance/{self.instance.id}"

    def bought(self) -> Plan:
        return self.outcome(Bought(self.unit, self.instance.epoch, self.instance.act_until or 0))

    def not_bought(self, error: str, message: str, retry_after: float | None = None) -> Plan:
        purchase = (self.instance.epoch, self.instance.act_until or 0)
        return self.outcome(NotBought(self.unit, error, message, retry_after, *purchase))

    def seen(self, state: Any, hostname: str = "", internal_ip: str = "") -> Plan:
        return self.outcome(Seen(self.unit, self.instance.epoch, state, hostname, internal_ip))

    def not_done(self, error: str, message: str) -> Plan:
        return self.outcome(NotDone(self.unit, error, message, None, self.instance.epoch))

    def left(self, going: str = "", open_until: Micros | None = None) -> Plan:
        return self.outcome(Left(self.unit, self.instance.epoch, self.now, open_until, going))


def effects(plan: Plan) -> list[type[Effect]]:
    return [type(effect) for step in plan.steps for effect in step.effects]


# --- buying -----------------------------------------------------------------------------------------------------------


def test_a_purchase_is_repeated_only_when_its_committer_may_act_no_more() -> None:
    world = World(due_at=OPEN)
    world.now = OPEN - 1
    assert effects(world.decide()) == []
    world.now = OPEN
    assert effects(world.decide()) == [Create]
    assert world.instance.act_until == world.now + world.facts.create_timeout + world.facts.visibility_lag


def test_a_machine_that_was_made_is_waited_for_and_looked_at() -> None:
    world = World()
    world.bought()
    assert (world.instance.status, world.instance.act_until) == (InstanceStatus.provisioning, None)
    assert effects(world.decide()) == []
    world.now += 15 * b.SECOND
    assert effects(world.decide()) == [Describe]


@pytest.mark.parametrize("error", ["InsufficientCapacity", "QuotaExceeded", "InvalidCredentials", "MissingPermission"])
def test_an_offer_that_is_refused_sends_the_job_back_and_is_remembered(error: str) -> None:
    world = World().with_job()
    plan = world.not_bought(error, "none left in eu")
    (job,) = world.jobs
    assert (job.status, job.assignment) == (JobStatus.submitted, None)
    assert [(a.offer_key, a.error) for a in job.attempts] == [(world.instance.offer.key, "none left in eu")]
    assert (world.instance.status, world.instance.claims) == (InstanceStatus.terminated, ())
    assert f"queue/{b.PROJECT}" in plan.steps[0].wake


@pytest.mark.parametrize("error", ["InsufficientCapacity", "QuotaExceeded", "Unfit"])
def test_a_machine_that_couldnt_be_created_after_all_was_refused(error: str) -> None:
    """However short a time ago it was bought: the provider shows what became of it. What it left is given back."""
    world = World(handles=(Handle(kind="vm", id="v1"),)).with_job()
    world.bought()
    world.outcome(Seen(world.unit, 0, "gone", refused=error, message="no room after all"))
    (job,) = world.jobs
    assert (job.status, job.assignment) == (JobStatus.submitted, None)
    assert [(a.offer_key, a.error) for a in job.attempts] == [(world.instance.offer.key, "no room after all")]
    assert (world.instance.status, world.instance.claims) == (InstanceStatus.terminating, ())
    assert world.instance.message == f"{world.instance.offer.key}: no room after all"
    assert effects(world.decide()) == [Terminate]


def test_a_machine_that_has_run_is_gone_whatever_its_provider_calls_it() -> None:
    world = World("busy", handles=(Handle(kind="vm", id="v1"),)).with_job("running")
    world.now += HOUR
    world.outcome(Seen(world.unit, 0, "gone", refused="InsufficientCapacity", message="no room after all"))
    assert world.instance.status is InstanceStatus.terminating
    assert world.jobs[0].status is JobStatus.running, "its run decides about it"


def test_a_refusal_after_a_lost_answer_looks_for_what_that_one_made() -> None:
    world = World().with_job()
    world.not_bought("Transient", "reset")
    world.now = world.instance.due_at or 0
    world.decide()
    world.not_bought("InsufficientCapacity", "no")
    assert (world.instance.status, world.jobs[0].status) == (InstanceStatus.terminating, JobStatus.submitted)


def test_what_a_failed_purchase_left_behind_is_given_back() -> None:
    world = World(handles=(Handle(kind="disk", id="d1"),)).with_job()
    world.not_bought("InsufficientCapacity", "no")
    assert world.instance.status == InstanceStatus.terminating
    assert effects(world.decide()) == [Terminate]


@pytest.mark.parametrize("error", ["Transient", "Throttled", "AlreadyThere", "Gone", "BackendError", "SomethingNew"])
def test_an_unknown_outcome_is_repeated_not_replaced(error: str) -> None:
    world = World().with_job()
    world.not_bought(error, "reset", retry_after=7)
    assert (world.instance.status, world.jobs[0].status) == (InstanceStatus.pending, JobStatus.provisioning)
    assert world.instance.due_at is not None
    assert world.instance.due_at >= world.now + 7 * b.SECOND
    world.now = world.instance.due_at
    assert effects(world.decide()) == [Create]


def test_an_unknown_outcome_at_the_deadline_is_cleaned_up() -> None:
    world = World(deadline=b.NOW + 5 * b.SECOND).with_job()
    world.not_bought("Transient", "reset", retry_after=7)
    assert world.instance.status == InstanceStatus.terminating
    assert world.jobs[0].status == JobStatus.submitted


def test_a_job_that_was_stopped_meanwhile_ends_with_the_failed_purchase() -> None:
    world = World().with_job()
    world.jobs = (world.jobs[0].with_(status=JobStatus.terminating, reason=JobReason.terminated_by_user),)
    world.not_bought("InsufficientCapacity", "no")
    assert world.jobs[0].status == JobStatus.terminated


def test_a_fleet_remembers_what_failed_for_no_job() -> None:
    world = World()
    world.not_bought("InsufficientCapacity", "no")
    assert world.fleet.tried == (world.instance.offer.key,)
    assert world.fleet.to_create == 1


@pytest.mark.parametrize("status", ["pending", "provisioning"])
def test_patience_ends_at_the_deadline(status: str) -> None:
    world = World(status, due_at=b.NOW + 10 * b.MINUTE).with_job()
    world.now = b.NOW + 10 * b.MINUTE
    plan = world.decide()
    assert (world.instance.status, world.instance.reason) == (
        InstanceStatus.terminating,
        InstanceReason.provisioning_timeout,
    )
    assert effects(plan) == [Terminate]
    assert f"run/{world.jobs[0].run_id}" in plan.steps[0].wake


# --- joining ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["pending", "provisioning"])
def test_the_agents_first_word_makes_it_idle_or_busy(status: str) -> None:
    alone, taken = World(status).reported(), World(status).with_job().reported()
    alone.decide()
    taken.decide()
    assert (alone.instance.status, taken.instance.status) == (InstanceStatus.idle, InstanceStatus.busy)
    assert (alone.instance.started_at, alone.instance.deadline, alone.instance.hostname) == (alone.now, None, "h1")


@pytest.mark.parametrize(("blocks", "gpus", "total"), [(4, 0, 4), ("auto", 0, 8), ("auto", 2, 2), (3, 0, 1)])
def test_a_host_is_what_its_agent_found_and_is_cut_as_its_fleet_says(blocks: Any, gpus: int, total: int) -> None:
    unknown: Offer = b.offer("host", 0.0, backend="remote", region="", has=b.resources(cpus=1, gb=1))
    world = World(nodes=None, blocks=blocks, offer=unknown)
    cards = (HostGpu(name="T4", memory_mib=15_360, vendor="nvidia", driver="550"),) * gpus
    plan = world.reported(SEEN.with_(gpus=cards)).decide()
    assert world.instance.total_blocks == total
    messages = " ".join(event.message for step in plan.steps for event in step.events)
    assert ("can't be split into 3 equal blocks" in messages) == (blocks == 3)
    assert world.instance.offer.instance.resources.cpus == 8
    assert len(world.instance.offer.instance.resources.gpus) == gpus


def test_a_bought_machine_is_what_was_bought() -> None:
    world = World().reported()
    bought = world.instance.offer
    world.decide()
    assert world.instance.offer == bought


# --- silence ----------------------------------------------------------------------------------------------------------


def test_a_silent_machine_is_flagged_checked_and_given_up_after_twenty_minutes() -> None:
    world = World("idle", idle_seconds=None).reported()
    world.now += b.MINUTE + 1
    assert effects(world.decide()) == [Describe]
    assert world.instance.unreachable
    world.now += 19 * b.MINUTE
    assert Terminate not in effects(world.decide())
    world.now += b.MINUTE
    assert Terminate in effects(world.decide())
    assert world.instance.reason == InstanceReason.unreachable


def test_a_host_that_is_not_ours_stays_however_long_it_is_silent() -> None:
    world = World("idle", nodes=None, offer=b.host().offer, idle_seconds=None).reported()
    world.decide()
    world.now += b.DAY
    world.decide()
    assert (world.instance.status, world.instance.unreachable) == (InstanceStatus.idle, True)
    world.reported().decide()
    assert not world.instance.unreachable


def test_a_plane_that_was_away_does_not_give_up_its_machines() -> None:
    world = World("idle", idle_seconds=None).reported()
    world.now += b.DAY
    world.decide()
    assert world.instance.status == InstanceStatus.idle


@pytest.mark.parametrize("status", ["provisioning", "idle", "busy"])
def test_a_machine_that_the_cloud_took_back_ends(status: str) -> None:
    world = World(status, handles=(Handle(kind="vm", id="v1"),))
    world.now += HOUR
    plan = world.seen("gone")
    assert world.instance.status == InstanceStatus.terminating
    assert effects(plan) == [Terminate]


def test_what_the_cloud_says_of_a_machine_is_kept() -> None:
    world = World("provisioning")
    world.seen("running", "host.example", "10.0.0.9")
    assert (world.instance.hostname, world.instance.internal_ip) == ("host.example", "10.0.0.9")


# --- idling -----------------------------------------------------------------------------------------------------------


def test_an_idle_machine_ends_when_its_time_is_up() -> None:
    world = World("idle", idle_seconds=300)
    plan = world.decide()
    assert (effects(plan), world.instance.due_at) == ([], b.NOW + 300 * b.SECOND)
    world.now = b.NOW + 300 * b.SECOND
    assert effects(world.decide()) == [Terminate]
    assert world.instance.reason == InstanceReason.idle_timeout


@pytest.mark.parametrize("rest", [{"idle_seconds": None}, {"nodes": "1..2"}])
def test_an_idle_machine_stays_where_it_must(rest: dict[str, Any]) -> None:
    world = World("idle", **rest)
    world.now = b.NOW + b.DAY
    world.decide()
    assert world.instance.status == InstanceStatus.idle


def test_above_the_minimum_an_idle_machine_ends_and_guards_the_fleet() -> None:
    world = World("idle", nodes="1..2")
    world.siblings = (b.machine(1, world.fleet),)
    world.now = b.NOW + b.DAY
    plan = world.decide()
    assert world.instance.status == InstanceStatus.terminating
    assert any(isinstance(noun, Fleet) for noun in plan.steps[0].saves)


def test_above_the_maximum_an_idle_machine_ends_at_once_and_guards_the_fleet() -> None:
    world = World("idle", nodes="0..1", idle_seconds=None)
    world.siblings = (b.machine(1, world.fleet),)
    plan = world.decide()
    assert (world.instance.status, world.instance.reason) == (
        InstanceStatus.terminating,
        InstanceReason.max_instances_limit,
    )
    assert any(isinstance(noun, Fleet) for noun in plan.steps[0].saves)


@pytest.mark.parametrize("leaving", [InstanceStatus.terminating, InstanceStatus.terminated])
def test_machines_on_their_way_out_are_none_too_many(leaving: InstanceStatus) -> None:
    world = World("idle", nodes="0..1", idle_seconds=None)
    world.siblings = (b.machine(1, world.fleet, status=leaving),)
    world.decide()
    assert world.instance.status == InstanceStatus.idle


# --- the way out ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "due"), [("1..2", True), ("0..2", False)])
def test_a_fleet_with_a_minimum_that_loses_one_is_due(nodes: str, due: bool) -> None:
    """It is woken as well; this is for the day on which that is lost."""
    world = World("terminating", nodes=nodes)
    world.left()
    assert world.instance.status == InstanceStatus.terminated
    assert (world.fleet.due_at == world.now) is due


def test_a_fleet_whose_purchase_for_a_job_is_refused_is_due_too() -> None:
    world = World("pending", nodes="1..2").with_job()
    world.not_bought("InsufficientCapacity", "none left")
    assert world.fleet.due_at == world.now


def test_a_deleted_fleet_is_not_filled_again() -> None:
    world = World("terminating", nodes="1..2")
    world.fleet = world.fleet.with_(status=FleetStatus.terminating, due_at=b.NOW + HOUR)
    before = world.fleet.due_at
    world.left()
    assert world.fleet.due_at == before


@pytest.mark.parametrize("status", ["provisioning", "idle"])
def test_a_description_that_came_too_soon_is_asked_for_when_its_provider_allows_it(status: str) -> None:
    world = World(status, due_at=b.NOW, idle_seconds=None)
    if status == "idle":
        world.reported()
        world.now += b.MINUTE + 1
    assert effects(world.decide()) == [Describe]
    due = world.instance.due_at or 0
    world.not_done("Transient", "reset")
    assert world.instance.due_at == due
    world.outcome(NotDone(world.unit, "Throttled", "too soon", 2.0, world.instance.epoch))
    assert world.instance.due_at == world.now + 2 * b.SECOND + 1 < due
    world.now = world.instance.due_at
    assert effects(world.decide()) == [Describe]


@pytest.mark.parametrize("status", ["pending", "provisioning", "busy"])
def test_a_machine_of_a_deleted_fleet_ends_when_the_job_that_was_placed_meanwhile_has(status: str) -> None:
    world = World(status).with_job()
    world.fleet = world.fleet.with_(status=FleetStatus.terminating)
    world.reported().decide()
    assert world.instance.status == InstanceStatus.busy
    world.instance = world.instance.with_(claims=())
    world.decide()
    assert (world.instance.status, world.instance.reason) == ("terminating", InstanceReason.terminated_by_user)


def test_termination_is_asked_for_again_and_again() -> None:
    world = World("terminating", due_at=b.NOW)
    pauses = []
    for _ in range(8):
        assert effects(world.decide()) == [Terminate]
        assert world.instance.due_at is not None
        pauses.append((world.instance.due_at - world.now) // b.SECOND)
        assert effects(world.decide()) == []
        world.not_done("Transient", "reset")
        world.now = world.instance.due_at or 0
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300]


def ending(kill_at: Micros | None) -> World:
    """A machine with a disk, whose job has until then to stop."""
    world = World("terminating", due_at=b.NOW, disks=("disk",)).with_job("terminating")
    (job,) = world.jobs
    assert job.assignment is not None
    mounts = (Mounted(id="disk", name="data", path="/data"),)
    world.jobs = (job.with_(assignment=job.assignment.with_(volumes=mounts), kill_at=kill_at),)
    return world


def test_a_machine_waits_for_its_disks_from_its_last_jobs_end() -> None:
    world = ending(b.NOW + HOUR)
    for world.now in (b.NOW + b.SECOND, b.NOW + 6 * b.MINUTE, b.NOW + HOUR, b.NOW + HOUR + TO_DETACH - 1):
        assert effects(world.reported().decide()) == []
    world.jobs, world.instance = (), world.instance.with_(claims=())
    world.now += b.SECOND
    assert effects(world.reported().decide()) == []
    world.now += TO_DETACH - 1
    assert effects(world.reported().decide()) == []
    world.now += 1
    assert effects(world.reported().decide()) == [Terminate]


def test_a_job_that_was_killed_and_stays_isnt_waited_for() -> None:
    world = ending(b.NOW + HOUR)
    world.now = b.NOW + HOUR + TO_DETACH
    assert effects(world.reported().decide()) == [Terminate]


def test_a_job_that_may_stop_as_long_as_it_likes_is_waited_for_while_the_machine_is_heard_of() -> None:
    world = ending(None)
    world.now = b.NOW + b.DAY
    assert effects(world.reported().decide()) == []
    assert world.presence is not None
    world.now = world.presence.seen_until + 1
    assert effects(world.decide()) == [] and world.instance.detach_by == world.now + TO_DETACH
    world.now += TO_DETACH
    assert effects(world.decide()) == [Terminate]


def test_only_the_cloud_says_that_it_is_over() -> None:
    world = World("terminating", due_at=b.NOW, disks=("one", "two"))
    world.decide()
    plan = world.left()
    assert (world.instance.status, world.instance.due_at) == (InstanceStatus.terminated, None)
    assert {f"fleet/{world.fleet.id}", "volume/one", "volume/two"} <= set(plan.steps[0].wake)


def test_the_time_in_which_a_purchase_may_still_be_under_way_is_kept() -> None:
    world = World(due_at=b.NOW)
    world.fleet = world.fleet.with_(status=FleetStatus.terminating)
    world.decide()
    assert world.instance.status == InstanceStatus.terminating
    assert world.instance.act_until == OPEN


def test_a_host_that_is_not_ours_leaves_when_its_last_job_has() -> None:
    world = World("busy", nodes=None, offer=b.host().offer).with_job("running")
    world.fleet = world.fleet.with_(status=FleetStatus.terminating)
    world.decide()
    assert world.instance.status == InstanceStatus.busy
    world.instance, world.jobs = world.instance.with_(claims=()), ()
    assert effects(world.decide()) == []
    assert world.instance.status == InstanceStatus.terminated


@pytest.mark.parametrize(
    "outcome",
    [
        Bought("x", 0, OPEN),
        NotBought("x", "InsufficientCapacity", "", None, 0, OPEN),
        Seen("x", 0, "gone"),
        Left("x", 0, b.NOW),
        NotDone("x", "T", "m"),
    ],
)
def test_an_outcome_that_comes_too_late_changes_nothing(outcome: Outcome) -> None:
    world = World("terminated", act_until=OPEN)
    assert world.outcome(outcome).steps == ()


@pytest.mark.parametrize(
    "outcome",
    [
        Bought("x", 1, OPEN),
        Bought("x", 0, OPEN + 1),
        NotBought("x", "InsufficientCapacity", "", None, 0, OPEN - 1),
        Seen("x", 1, "gone", interrupted=True),
        NotDone("x", "Transient", "m", None, 1),
    ],
)
def test_an_outcome_of_another_purchase_changes_nothing(outcome: Outcome) -> None:
    world = World(handles=(Handle(kind="vm", id="v1"),))
    world.now += HOUR
    assert world.outcome(outcome).steps == ()


def test_a_machine_that_may_only_be_hidden_is_not_called_gone() -> None:
    young = World("provisioning", handles=(Handle(kind="vm", id="v1"),))
    young.seen("gone")
    without = World("provisioning")
    without.now += HOUR
    without.seen("gone")
    assert young.instance.status is without.instance.status is InstanceStatus.provisioning


@pytest.mark.parametrize(("after", "status"), [(0, InstanceStatus.busy), (1, InstanceStatus.terminating)])
def test_a_machine_that_has_reported_is_hidden_for_no_longer_than_the_lag(after: int, status: InstanceStatus) -> None:
    """Though its purchase may have taken minutes longer."""
    joined = b.NOW + 5 * b.SECOND
    world = World("busy", created_at=b.NOW, started_at=joined, handles=(Handle(kind="vm", id="v1"),))
    world.with_job("running")
    world.now = joined + world.facts.visibility_lag - 1 + after
    assert world.now < OPEN
    world.seen("gone")
    assert world.instance.status is status


def test_a_purchase_that_was_open_when_the_looking_began_is_waited_for() -> None:
    world = World("terminating", due_at=b.NOW)
    world.decide()
    world.left(open_until=b.NOW + b.MINUTE)
    assert (world.instance.status, world.instance.due_at) == (InstanceStatus.terminating, b.NOW + b.MINUTE + 1)


@pytest.mark.parametrize(
    ("nodes", "next_num", "rest", "needs"),
    [
        ("0..3", 3, {}, False),
        ("0..3", 4, {}, True),
        ("0..", 400, {}, False),
        ("2..", 400, {"idle_since": b.NOW - HOUR}, True),
        ("2..", 400, {"idle_since": b.NOW}, False),
        ("2..", 400, {"idle_since": b.NOW - HOUR, "idle_seconds": None}, False),
        ("0..", 400, {"idle_since": b.NOW - HOUR}, False),
        (None, 400, {}, False),
    ],
)
def test_the_others_are_counted_only_where_their_number_matters(
    nodes: str | None, next_num: int, rest: dict[str, Any], needs: bool
) -> None:
    fleet = b.fleet("cloud").with_(next_instance_num=next_num)
    instance = b.machine(0, fleet, **rest)
    assert needs_fleet_size(instance, fleet, b.fleet_spec(nodes=nodes), b.NOW) is needs
    assert not needs_fleet_size(b.host(0, fleet), fleet, b.fleet_spec(nodes=nodes), b.NOW)
