"""Backstops: what moves things on if the signal that should have done it is lost. One history each.

No wake-up ever arrives in any of them (`quiet.py`), so only the deadline under test moves things on, within the time
that it promises; without it nothing happens, or only much later.
"""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.backends.simulated.script import Fault
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import SECOND
from chalicelib.domain.jobs import Job
from chalicelib.domain.reasons import InstanceReason, JobReason
from chalicelib.engine.kinds import KINDS
from chalicelib.planning.kernel.plan import Effect, Plan
from chalicelib.planning.kernel.purchases import Create, Describe, Terminate
from chalicelib.planning.machines.instance import decide_instance
from chalicelib.planning.machines.snapshots import InstanceSnapshot
from chalicelib.usecases.machines import fleets
from chalicelib.usecases.pace import EMBEDDED, PER_CALL, Pace
from chalicelib.usecases.runs import runs
from tests.simulation.hosts import Work
from tests.simulation.plane import Parts
from tests.simulation.quiet import SIZE, Quiet
from tests.simulation.world import Violation

PASS_EVERY = 2.0  # seconds: a pass looks every second
NEW = EMBEDDED.recheck + PASS_EVERY  # until a new run is looked at of which nobody was told
HELD = 20.0  # a call that the server holds ends by itself after this, and counts as heard until then
GONE = 10.0  # from the first request to end a machine until the second finds it gone


def became(kind: type, status: str) -> Any:
    return lambda old, new: isinstance(new, kind) and old.status != status and new.status == status  # type: ignore[attr-defined]


def running(**terms: Any) -> Quiet:
    """A plane with one run on a machine of the cloud."""
    plane = Quiet(**terms)
    plane.fleet(idle_duration=300)
    plane.task(Work(seconds=10_000))
    plane.until(plane.ran("running"), 120)
    return plane


def idle(**terms: Any) -> Quiet:
    """A plane with one unused machine of the cloud."""
    plane = Quiet(**terms)
    plane.fleet("1..1")
    plane.until(plane.is_("idle"), 30)
    return plane


# --- runs -------------------------------------------------------------------------------------------------------------


def test_a_submitted_run_is_placed() -> None:
    plane = Quiet()
    plane.host()
    plane.until(plane.is_("idle"), 60)
    plane.task()
    plane.until(plane.placed("provisioning"), NEW)


def test_a_run_whose_job_failed_before_anybody_looked_at_it_ends() -> None:
    plane = Quiet()
    plane.host()
    plane.until(plane.is_("idle"), 60)
    plane.die_after(became(Job, "failed"))
    plane.task(resources={"gpu": "H100:8"})
    plane.until(plane.ran("failed"), NEW + 61)


def test_a_run_is_told_that_it_runs() -> None:
    plane = Quiet()
    plane.host()
    plane.until(plane.is_("idle"), 60)
    plane.task(Work(seconds=1000))
    plane.until(plane.placed("running"), 70)
    plane.until(plane.ran("running"), 61)


def test_a_run_hears_that_its_job_has_a_place() -> None:
    plane = Quiet()
    plane.host(after=30)
    plane.task(Work(starts=1e6))
    plane.die_after(became(Job, "provisioning"))
    plane.until(plane.placed("provisioning"), 670)
    plane.until(plane.ran("provisioning"), 61)


def test_a_run_whose_job_has_ended_ends() -> None:
    plane = running()
    plane.hosts.hosts[plane.agent.name]._exit(next(iter(plane.agent.tasks.values())), 0, "done_by_runner")
    plane.until(plane.placed("done"), 5)
    plane.until(plane.ran("done"), 61)


def test_a_stopped_run_begins_to_end() -> None:
    plane = running()
    runs.stop(plane.plane, plane.user, plane.project, ["run"], abort=False)
    plane.until(plane.placed("terminating"), PASS_EVERY)


def test_a_run_that_waits_to_be_tried_again_is() -> None:
    plane = Quiet()
    plane.host()
    plane.until(plane.is_("idle"), 60)
    plane.task(Work(failures=1), retry=True)
    plane.until(plane.ran("pending"), 200)
    plane.until(lambda: plane.job.submission_num == 1, 17)
    plane.until(plane.ran("done"), 150)


def test_a_waiting_job_takes_a_place_that_came_free() -> None:
    plane = Quiet()
    plane.host()
    plane.until(plane.is_("idle"), 60)
    plane.task(Work(seconds=100), name="first")
    plane.until(plane.placed("provisioning"), NEW)
    plane.task(name="second")
    plane.until(lambda: "waiting" in plane.job.message, NEW)
    plane.until(plane.is_("idle"), 130)
    plane.until(plane.placed("provisioning"), 61)


# --- jobs on a host ---------------------------------------------------------------------------------------------------


def test_a_task_that_never_starts_ends() -> None:
    plane = Quiet()
    plane.host()
    plane.until(plane.is_("idle"), 60)
    plane.task(Work(starts=1e6))
    plane.until(plane.placed("provisioning"), NEW)
    took = plane.until(plane.placed("terminating"), 602)
    assert took > 590
    assert plane.job.reason is JobReason.waiting_runner_limit_exceeded


def test_an_image_that_is_never_there_ends_its_job() -> None:
    plane = Quiet()
    plane.host()
    plane.until(plane.is_("idle"), 60)
    plane.task(Work(pulls=True, starts=1e6))
    plane.until(plane.placed("pulling"), 60)
    took = plane.until(plane.placed("terminating"), 1202)
    assert took > 1190
    assert plane.job.reason is JobReason.waiting_runner_limit_exceeded


def test_a_task_that_its_agent_lets_run_too_long_ends() -> None:
    plane = Quiet()
    plane.host()
    plane.until(plane.is_("idle"), 60)
    plane.task(Work(seconds=10_000), max_duration=30)
    plane.until(plane.placed("running"), 60)
    took = plane.until(plane.placed("terminating"), 91)
    assert took > 85
    assert plane.job.reason is JobReason.max_duration_exceeded


@pytest.mark.parametrize(("pace", "promise"), [(EMBEDDED, 60), (PER_CALL, 330)])
def test_a_job_whose_host_falls_silent_ends(pace: Pace, promise: int) -> None:
    plane = running(pace=pace)
    plane.agent.dead = True
    longest = promise + pace.grain
    plane.until(lambda: plane.job.disconnected_at is not None, longest + HELD + PASS_EVERY)
    took = plane.until(plane.placed("failed"), longest + PASS_EVERY)  # after a missed report, the same period again
    assert took > promise - PASS_EVERY
    assert plane.job.reason is JobReason.instance_unreachable


def test_a_stopped_job_whose_host_falls_silent_ends() -> None:
    plane = running()
    runs.stop(plane.plane, plane.user, plane.project, ["run"], abort=False)
    plane.agent.dead = True
    plane.until(plane.placed("terminating"), PASS_EVERY)
    plane.until(plane.placed("terminated"), 125)


def test_a_place_is_found_by_an_agent_that_nobody_rang() -> None:
    plane = Quiet()
    plane.host()
    plane.until(plane.is_("idle"), 60)
    plane.site.loses_news = lambda: True
    plane.task()
    plane.until(plane.placed("running"), 21 + 5)  # a long poll ends by itself after 20 s


# --- purchases --------------------------------------------------------------------------------------------------------


def test_a_purchase_that_nobody_made_is_repeated() -> None:
    plane = Quiet()
    plane.lose(Create)
    plane.fleet("1..1")
    plane.until(plane.is_("pending"), PASS_EVERY)
    took = plane.until(plane.is_("provisioning"), 22 + PASS_EVERY)  # 20 s for a call, 2 s until it can be seen
    assert took > 15


def test_a_purchase_whose_buyer_died_is_adopted() -> None:
    plane = Quiet(boot=60 * SECOND)
    plane.die_after(lambda old, new: isinstance(new, Instance) and len(new.handles) == 2)
    plane.fleet("1..1")
    plane.until(lambda: len(plane.scene.watch.instances) == 1 and len(plane.instance.handles) == 2, 5)
    plane.until(plane.is_("provisioning"), 22 + PASS_EVERY)
    assert len(plane.site.cloud.machines()) == 1


def test_a_purchase_that_came_too_late_is_repeated_by_a_pass() -> None:
    plane = Quiet()
    late: list[Any] = []

    def lost(effect: Effect) -> bool:
        if late or not isinstance(effect, Create):
            return False
        late.append(effect)
        return True

    plane.site.loses_effect = lost
    plane.fleet("1..1")
    plane.until(lambda: bool(late), PASS_EVERY)
    plane.world.after(30, lambda: plane.site.processes[0].executor.execute(late[0]))
    plane.pass_(40)
    assert len(plane.site.cloud.machines()) == 1


def test_a_purchase_that_failed_for_a_moment_is_repeated() -> None:
    plane = Quiet()
    plane.site.script.faults = [Fault("create", "Throttled", retry_after=7)]
    plane.fleet("1..1")
    plane.until(lambda: bool(plane.scene.watch.instances) and bool(plane.instance.message), 5)
    plane.until(plane.is_("provisioning"), 7 + PASS_EVERY)


def test_a_fleet_whose_offer_was_refused_tries_the_next() -> None:
    plane = Quiet()
    plane.site.script.faults = [Fault("create", "InsufficientCapacity")]
    plane.die_after(became(Instance, "terminated"))
    plane.fleet("1..1")
    plane.until(plane.is_("terminated"), 5)
    plane.until(lambda: plane.instance.num == 1, PASS_EVERY)


def test_a_job_whose_offer_was_refused_tries_the_next() -> None:
    plane = Quiet()
    plane.site.script.faults = [Fault("create", "InsufficientCapacity")]
    plane.die_after(became(Instance, "terminated"))
    plane.fleet()
    plane.task()
    plane.until(plane.is_("terminated"), NEW + 5)
    plane.until(lambda: plane.instance.num == 1, PASS_EVERY)


def test_a_fleet_without_an_offer_asks_again() -> None:
    plane = Quiet()
    plane.site.script.faults = [Fault("create", "InsufficientCapacity", times=500)]
    plane.fleet("1..1", regions=["sim-north"], spot_policy="on-demand", max_price=0.05)
    plane.until(lambda: "will retry" in plane.cloud.message, 60)
    plane.site.script.faults = []
    plane.until(plane.is_("provisioning"), 62)


def test_a_machine_that_is_ended_while_it_is_bought_is_looked_for_until_it_can_be_seen() -> None:
    plane = Quiet(cloud_lag=5 * SECOND)
    plane.site.backend.made = lambda: plane.die("with a disk that nobody has written down")
    plane.fleet("1..1")
    plane.until(lambda: bool(plane.site.cloud.resources()), PASS_EVERY)
    fleets.delete(plane.plane, plane.user, plane.project, ["cloud"])
    took = plane.until(plane.is_("terminated"), 25 + GONE)  # 20 s for a call, 5 s until it can be seen
    assert took > 20
    assert not plane.site.cloud.resources()


# --- machines: the first word -----------------------------------------------------------------------------------------


def test_a_machine_whose_agent_was_heard_joins() -> None:
    plane = Quiet()
    plane.fleet("1..1")
    plane.until(plane.is_("provisioning"), 5)
    plane.until(plane.is_("idle"), 2 + 15 + PASS_EVERY)


def test_a_host_whose_agent_was_heard_late_joins() -> None:
    plane = Quiet()
    plane.host(after=20)
    plane.pass_(21)
    took = plane.until(plane.is_("idle"), 600)
    assert took > 500


def test_a_machine_that_is_lost_before_its_agent_was_heard_is_missed() -> None:
    plane = Quiet(boot=60 * SECOND)
    plane.fleet("1..1")
    plane.until(plane.is_("provisioning"), 5)
    plane.lose(Describe)
    plane.pass_(10)
    plane.site.cloud.lose(plane.site.cloud.machines()[0]["id"])
    plane.until(lambda: plane.scene.watch.instances[plane.instance.id].status != "provisioning", 15 + 15 + PASS_EVERY)
    assert plane.instance.reason is not InstanceReason.provisioning_timeout


def test_a_machine_whose_agent_never_comes_is_given_back() -> None:
    plane = Quiet()
    plane.site.script.absent = 1
    plane.fleet("1..1")
    plane.until(plane.is_("provisioning"), 5)
    first = plane.instance.id
    plane.until(lambda: plane.scene.watch.instances[first].status == "terminated", 120 + 15 + GONE)
    assert plane.scene.watch.instances[first].reason is InstanceReason.provisioning_timeout


# --- machines: silence ------------------------------------------------------------------------------------------------


def test_a_silent_machine_is_asked_about_again() -> None:
    plane = idle()
    first = plane.instance.id
    plane.lose(Describe)
    plane.site.cloud.lose(plane.site.cloud.machines()[0]["id"])
    plane.until(lambda: plane.scene.watch.instances[first].unreachable, 70)
    plane.until(lambda: plane.scene.watch.instances[first].status == "terminated", 60 + GONE)


def test_a_silent_machine_that_its_cloud_still_shows_is_given_up() -> None:
    plane = idle()
    first = plane.instance.id
    plane.agent.dead = True
    plane.until(lambda: plane.scene.watch.instances[first].unreachable, 70)
    took = plane.until(lambda: plane.scene.watch.instances[first].status == "terminated", 1200 + GONE)
    assert took > 1190
    assert plane.scene.watch.instances[first].reason is InstanceReason.unreachable


@pytest.mark.parametrize("bought", [True, False])
def test_a_machine_that_is_back_is_reachable(bought: bool) -> None:
    if bought:
        plane = idle()
    else:
        plane = Quiet()
        plane.host()
        plane.until(plane.is_("idle"), 60)
    plane.agent.cut_off_until = plane.world.seconds() + 100
    plane.until(lambda: plane.instance.unreachable, 100)
    plane.until(lambda: not plane.instance.unreachable, 100 + (60 if bought else 600) + PASS_EVERY)


def test_a_host_that_was_changed_is_known_as_what_it_is() -> None:
    plane = Quiet()
    plane.host()
    plane.until(plane.is_("idle"), 60)
    plane.pass_(100)
    plane.agent.facts = {**SIZE, "cpus": 4, "hostname": "local", "runtimes": ["process"]}
    plane.agent.boot()
    plane.until(lambda: plane.instance.offer.instance.resources.cpus == 4, 65)


# --- machines: the way out --------------------------------------------------------------------------------------------


def test_an_idle_machine_is_given_back() -> None:
    plane = Quiet(pace=PER_CALL)
    plane.fleet(idle_duration=100)
    plane.task()
    plane.until(plane.placed("done"), 120)
    plane.until(plane.is_("terminated"), 100 + GONE)


def test_a_machine_that_was_idle_and_then_used_is_given_back() -> None:
    plane = Quiet()
    plane.fleet(idle_duration=100)
    plane.task(name="first")
    plane.until(plane.is_("idle"), 120)
    plane.task(name="second")
    plane.until(plane.is_("busy"), NEW)
    plane.until(plane.is_("idle"), 120)
    plane.until(plane.is_("terminated"), 100 + GONE)


def test_a_request_to_end_that_was_lost_is_repeated() -> None:
    plane = idle()
    first = plane.instance.id
    plane.lose(Terminate)
    fleets.delete(plane.plane, plane.user, plane.project, ["cloud"])
    plane.until(lambda: plane.scene.watch.instances[first].status == "terminated", 5 + GONE)


def test_a_request_to_end_that_a_cloud_forgot_is_repeated() -> None:
    plane = idle()
    plane.site.script.lies = 2
    fleets.delete(plane.plane, plane.user, plane.project, ["cloud"])
    plane.until(plane.is_("terminated"), 5 + 10 + 20 + 3 * PASS_EVERY)
    assert not plane.site.cloud.resources()


def test_a_deleted_fleet_ends_when_its_last_machine_has() -> None:
    plane = idle()
    fleets.delete(plane.plane, plane.user, plane.project, ["cloud"])
    plane.until(lambda: plane.instance.status == "terminating", PASS_EVERY)
    plane.until(plane.is_("terminated"), 20)
    plane.until(lambda: plane.cloud.deleted, 60 + PASS_EVERY)


def test_a_fleet_that_lost_a_machine_it_must_have_buys_another() -> None:
    plane = idle()
    plane.site.cloud.lose(plane.site.cloud.machines()[0]["id"])
    first = plane.instance.id
    plane.until(lambda: plane.scene.watch.instances[first].status == "terminated", 140)
    plane.until(lambda: plane.instance.num == 1, PASS_EVERY)


# --- the engine -------------------------------------------------------------------------------------------------------


def test_a_look_that_failed_is_repeated() -> None:
    failures = iter([ZeroDivisionError("a bug")])

    def fails_once(snapshot: InstanceSnapshot) -> Plan:
        for failure in failures:
            raise failure
        return decide_instance(snapshot)

    plane = Quiet(Parts(kinds=KINDS.deciding("instance", decide=fails_once)))
    plane.fleet("1..1")
    plane.lose(Create)
    with pytest.raises(Violation, match="ZeroDivisionError"):
        plane.pass_(60)
    assert plane.is_("pending")()
    plane.until(plane.is_("idle"), 10 + 22 + PASS_EVERY)
