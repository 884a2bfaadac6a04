"""What follows from a machine's health: it is shown, it keeps new jobs away, and what runs goes on."""

from __future__ import annotations

import pytest

from chalicelib.domain.events import Event, EventType
from chalicelib.domain.instances import Health, Instance, InstanceStatus, Trouble
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.machines.instance import decide_instance
from chalicelib.planning.machines.snapshots import InstanceSnapshot
from tests.planning.machines.test_instance import World
from tests.planning.placing.test_queue import decide, jobs_of, placed
from tests.world import nouns as b
from tests.world.nouns import lint

LOCAL = b.fleet("local")
FALLEN = Trouble(status="failure", message="GPU 0: Xid 79, GPU has fallen off the bus.", since=b.NOW)
NEARLY = Trouble(status="warning", message="the disk under /data is nearly full", since=b.NOW)


def ill(num: int = 0, **fields: object) -> Instance:
    return b.host(num, LOCAL, health="failure", health_message=FALLEN.message, **fields)


def health_events(plan: Plan) -> list[Event]:
    return [event for step in plan.steps for event in step.events if event.type is EventType.health]


# --- health of an instance --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("troubles", "status", "message"),
    [
        ((), "healthy", ""),
        ((NEARLY,), "warning", NEARLY.message),
        ((NEARLY, FALLEN), "failure", f"{FALLEN.message}; {NEARLY.message}"),
    ],
)
def test_the_worst_counts_and_comes_first(troubles: tuple[Trouble, ...], status: str, message: str) -> None:
    health = Health(troubles=troubles)
    assert (health.status, health.message) == (status, message)


def test_a_machine_with_many_troubles_tells_three() -> None:
    health = Health(troubles=tuple(NEARLY.with_(message=str(number)) for number in range(5)))
    assert health.message == "0; 1; 2; and 2 more"


@pytest.mark.parametrize("status", ["idle", "busy"])
def test_what_the_agent_reports_is_adopted_told_and_taken_back(status: str) -> None:
    world = World(status).with_job("running") if status == "busy" else World(status)
    plan = world.reported(health=Health(troubles=(FALLEN,))).decide()
    assert (world.instance.health, world.instance.health_message) == ("failure", FALLEN.message)
    assert world.instance.status == InstanceStatus(status), "what runs there goes on"
    (event,) = health_events(plan)
    assert event.message == f"health healthy → failure: {FALLEN.message}"
    queue = f"queue/{world.instance.project_id}"
    assert any(queue in step.wake for step in plan.steps)
    assert health_events(world.decide()) == [], "it is told once"
    plan = world.reported(health=Health()).decide()
    assert (world.instance.health, world.instance.health_message) == ("healthy", "")
    assert any(queue in step.wake for step in plan.steps), "those who wait for it are looked at again"


def test_a_warning_is_shown_and_wakes_nobody() -> None:
    world = World("idle")
    plan = world.reported(health=Health(troubles=(NEARLY,))).decide()
    assert world.instance.health == "warning" and len(health_events(plan)) == 1
    assert all(not unit.startswith("queue/") for step in plan.steps for unit in step.wake)


def test_a_text_that_changes_is_shown_and_no_event() -> None:
    world = World("idle", health="failure", health_message="the disk under /data is full")
    for count in range(3):
        counting = FALLEN.with_(message=f"GPU 0: {count} errors")
        plan = world.reported(health=Health(troubles=(counting,))).decide()
        assert health_events(plan) == [] and world.instance.health_message == counting.message
        assert not any(step.wake for step in plan.steps)
    (event,) = health_events(world.reported(health=Health(troubles=(NEARLY,))).decide())
    assert (event.before, event.after, event.detail) == ("failure", "warning", NEARLY.message)


def test_an_agent_that_doesnt_tell_changes_nothing() -> None:
    world = World("idle", health="failure", health_message=FALLEN.message)
    world.reported().decide()
    assert world.instance.health == "failure"


def test_a_machine_that_joins_ill_takes_no_jobs() -> None:
    world = World("provisioning")
    world.reported(health=Health(troubles=(FALLEN,))).decide()
    assert (world.instance.status, world.instance.health) == (InstanceStatus.idle, "failure")


def test_the_looks_of_an_ill_machine_come_to_rest() -> None:
    host = ill()
    seen = b.presence_of(host, health=Health(troubles=(FALLEN,)), facts=b.host_facts())
    snapshot = InstanceSnapshot(b.NOW + 1, host, seen, b.view(LOCAL, host), ())
    plan = decide_instance(snapshot)
    assert lint(snapshot, plan) == [] and health_events(plan) == []


# --- placement --------------------------------------------------------------------------------------------------------


def test_a_job_goes_past_an_ill_host() -> None:
    assert placed(decide(b.waiting(b.queued("a"), fleets=(b.view(LOCAL, ill(0), b.host(1, LOCAL)),)))) == {
        "a": "local-1"
    }


def test_a_job_that_only_an_ill_host_could_take_waits_and_says_why() -> None:
    job = jobs_of(decide(b.waiting(b.queued("a"), fleets=(b.view(LOCAL, ill()),))))["a"]
    assert job.message == f"waiting for local-0 in fleet `local` to be healthy again ({FALLEN.message})"


@pytest.mark.parametrize("first", [0, 1])
def test_a_free_host_that_is_ill_is_named_before_one_that_is_busy(first: int) -> None:
    other = b.holding(b.host(1 - first, LOCAL, status=InstanceStatus.busy), b.job(b.run("other")), 0)
    hosts = sorted((ill(first), other), key=lambda each: each.num)
    job = jobs_of(decide(b.waiting(b.queued("a"), fleets=(b.view(LOCAL, *hosts),))))["a"]
    assert f"local-{first} in fleet `local` to be healthy again" in job.message


def test_a_host_with_a_warning_takes_jobs() -> None:
    host = b.host(0, LOCAL, health="warning", health_message=NEARLY.message)
    assert placed(decide(b.waiting(b.queued("a"), fleets=(b.view(LOCAL, host),)))) == {"a": "local-0"}
