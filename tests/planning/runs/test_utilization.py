"""`utilization_policy`: a run whose GPUs do too little for a whole window ends, and not a sample sooner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.api.wire.runs import job_message
from chalicelib.domain.instants import HOUR, MINUTE, SECOND, Micros
from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.reasons import JobReason, RunReason
from chalicelib.planning.runs.field_support import refusals
from chalicelib.planning.runs.run_pass import RunPass
from chalicelib.planning.runs.snapshot import Sample
from chalicelib.planning.runs.utilization import MAX_SAMPLE_GAP, RECHECK, STALE, inactive, quiet_since, underused
from tests.planning.runs.test_run import World
from tests.world import nouns as b

POLICY = {"min_gpu_utilization": 10, "time_window": "10m"}
WINDOW = 10 * MINUTE


def world(gpus: int = 2, minutes: float = 30, **spec: Any) -> World:
    """A job that has run for so long on a machine with GPUs."""
    made = World("running", spec=spec or {"utilization_policy": POLICY})
    assert made.job.assignment is not None
    offer = b.offer(has=b.resources(gpus=gpus))
    made.job = made.job.with_(assignment=made.job.assignment.with_(offer=offer))
    made.now = b.NOW + round(minutes * MINUTE)
    made.presence = b.presence_of(made.instance, last=made.now, promise=b.DAY)
    return made


def used(world: World, *busy: Callable[[float], float | None], every: int = 10, last: int = 3) -> World:
    """Samples of each GPU since the job began, by the minutes that were left until now; `last`: seconds ago."""
    ages = range(last, (world.now - b.NOW) // SECOND, every)
    samples = [Sample(world.now - age * SECOND, tuple(each(age / 60) for each in busy)) for age in reversed(ages)]
    world.usage = {world.job.id: tuple(samples)}
    return world


def next_check(world: World) -> Micros:
    """When this wants to be asked again; the run has reasons of its own to look before."""
    found = [question(RunPass(world.snapshot), world.job) for question in (inactive, underused)]
    assert [each.reason for each in found] == [None, None]
    return min(each.check_at for each in found if each.check_at is not None)


def always(percent: float | None) -> Callable[[float], float | None]:
    return lambda ago: percent


def busy_until(minutes: float) -> Callable[[float], float | None]:
    return lambda ago: 50.0 if ago > minutes else 3.0


@pytest.mark.parametrize("where", ["configuration", "profile"])
def test_a_gpu_below_for_the_whole_window_ends_the_job(where: str) -> None:
    made = used(world(), always(90.0), busy_until(10.2))
    if where == "profile":
        made.spec = b.run_spec({"name": "p", "utilization_policy": POLICY})
    made.decide()
    assert (made.job.status, made.job.reason) == (
        JobStatus.terminating,
        JobReason.terminated_due_to_utilization_policy,
    )
    assert made.job.message == "GPU 1 was below 10 % for 10 minutes (`utilization_policy`)"
    made.job = made.job.with_(status=JobStatus.terminated, finished_at=made.now)
    made.decide()
    assert made.run.reason is RunReason.job_failed, "it isn't retried"


@pytest.mark.parametrize(
    "busy",
    [
        (always(90.0), busy_until(9.8)),
        (always(10.0), always(10.0)),
        (always(12.0), lambda ago: 11.0 if 4 < ago < 4.2 else 0.0),
        (always(None), always(None)),
        (lambda ago: None if 5 < ago < 5.2 else 0.0,),
        (lambda ago: 0.0 if ago > 0.1 else 10.0,),
    ],
    ids=["not yet", "at the minimum", "busy for a moment", "unknown", "unknown for a moment", "busy again"],
)
def test_what_isnt_below_all_the_time_goes_on(busy: Any) -> None:
    made = used(world(), *busy)
    made.decide()
    assert made.job.status == JobStatus.running


def test_nothing_is_asked_before_a_window_has_passed_and_then_it_is_time() -> None:
    made = used(world(minutes=9.9), always(0.0))
    assert next_check(made) == b.NOW + WINDOW
    made.now = b.NOW + WINDOW - 5 * SECOND
    assert used(made, always(0.0)).decide().next_wake == b.NOW + WINDOW


def test_the_next_look_is_when_the_window_may_have_passed() -> None:
    made = used(world(), busy_until(4))
    assert abs(next_check(made) - (made.now + 6 * MINUTE)) < 20 * SECOND
    busy = used(world(), always(80.0))
    assert next_check(busy) == busy.usage[busy.job.id][-1].at + WINDOW


def test_samples_that_are_on_their_way_are_waited_for() -> None:
    made = used(world(), busy_until(10), last=40)
    assert next_check(made) == made.now + RECHECK


@pytest.mark.parametrize("samples", ["none", "old"])
def test_a_host_that_says_nothing_ends_nothing(samples: str) -> None:
    made = world()
    if samples == "old":
        used(made, always(0.0), last=STALE // SECOND + 1)
    assert next_check(made) == made.now + STALE


def test_a_hole_in_the_samples_proves_nothing() -> None:
    made = used(world(), always(0.0))
    at = made.now - 3 * MINUTE
    samples = tuple(
        sample for sample in made.usage[made.job.id] if not at - MAX_SAMPLE_GAP - 10 * SECOND < sample.at < at
    )
    made.usage = {made.job.id: samples}
    made.decide()
    assert made.job.status == JobStatus.running


def test_a_machine_without_gpus_has_none_to_use() -> None:
    made = used(world(gpus=0), always(0.0))
    made.decide()
    assert made.job.status == JobStatus.running


def test_a_host_that_is_silent_is_judged_once_it_is_back() -> None:
    made = used(world(), always(0.0))
    made.presence = b.presence_of(made.instance, last=made.now - HOUR)
    made.decide()
    assert made.job.status == JobStatus.running and made.job.disconnected_at == made.now


def test_a_gpu_that_isnt_in_every_sample() -> None:
    samples = [Sample(0, (1.0, 1.0)), Sample(SECOND, (1.0,)), Sample(2 * SECOND, (1.0, 1.0))]
    assert quiet_since(samples, 10) == [0, 2 * SECOND]


@pytest.mark.parametrize(("window", "path"), [("61m", "configuration"), ("2h", "profile")])
def test_a_window_that_samples_dont_cover_is_refused(window: str, path: str) -> None:
    policy = {"utilization_policy": {**POLICY, "time_window": window}}
    spec = b.run_spec(**policy) if path == "configuration" else b.run_spec({"name": "p", **policy})
    (problem,) = refusals(spec)
    assert problem.path == f"{path}.utilization_policy.time_window" and "1h" in problem.hint
    assert refusals(b.run_spec(utilization_policy={**POLICY, "time_window": "1h"})) == []


def test_jobs_without_a_policy_are_left_alone() -> None:
    made = used(world(commands=["x"]), always(0.0))
    made.decide()
    assert made.job.status == JobStatus.running


def test_it_is_on_the_wire_as_clients_know_it() -> None:
    spec = b.job_spec(b.run_spec(utilization_policy=POLICY)).model_dump(mode="json")
    assert spec["utilization_policy"] == {"min_gpu_utilization": 10, "time_window": 600}


# --- nothing to judge by ----------------------------------------------------------------------------------------------

NOTHING = "`utilization_policy` has nothing to judge by: "


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: used(world(), always(None), always(None)), "nobody reports how busy its GPUs are"),
        (lambda: used(world(), always(90.0), always(None)), "nobody reports how busy GPU 1 is"),
        (lambda: used(world(), always(90.0)), "nobody reports how busy GPU 1 is"),
        (world, "nobody reports how busy its GPUs are"),
        (lambda: world(gpus=0, minutes=1), "its machine has no GPU"),
        (lambda: used(world(minutes=9), always(None)), ""),
        (lambda: used(world(), always(90.0), lambda ago: None if ago < 9.5 else 90.0), ""),
    ],
    ids=["unreported", "one of two", "one is missing", "no samples", "no GPU", "too early", "once"],
)
def test_that_a_policy_cant_judge_is_said(made: Callable[[], World], why: str) -> None:
    one = made()
    one.decide()
    assert one.job.status == JobStatus.running
    assert one.job.unjudged == (NOTHING + why if why else "")
    shown = job_message(one.job)
    assert shown == (one.job.unjudged or None)
    before = one.job
    one.decide()
    assert one.job == before, "said once"


def test_it_is_no_longer_said_once_there_is_something_to_judge_by() -> None:
    one = used(world(), always(None), always(None))
    one.decide()
    assert one.job.unjudged
    used(one, always(90.0), always(90.0)).decide()
    assert one.job.unjudged == ""
