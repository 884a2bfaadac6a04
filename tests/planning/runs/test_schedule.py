"""Runs that start by a schedule: what they wait for, how often they start, and what ends that."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.domain.instants import DAY, HOUR, MINUTE, SECOND, from_iso
from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.reasons import JobReason, RunReason
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.domain.specs import cron
from chalicelib.domain.specs.profiles import Schedule
from chalicelib.planning.kernel.requests import stop_run
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.runs.schedule import next_start
from tests.planning.runs.test_replicas import Replicas
from tests.world import nouns as b

HOURLY = {"cron": "0 * * * *"}
DONE, FAILED = JobReason.done_by_runner, JobReason.container_exited_with_error


def scheduled(nodes: int = 1, **spec: object) -> Replicas:
    """A run of one replica that runs now, and whose schedule is hourly."""
    return Replicas(1, nodes, **{"retry": None, "schedule": HOURLY, **spec})


def ends(world: Replicas, reason: JobReason = DONE) -> None:
    for slot in list(world.statuses()):
        world.ends(slot, reason)
    world.decide()
    if not world.run.finished and world.run.status is RunStatus.terminating:
        world.decide()


def on_the_hour(at: int) -> int:
    return (at // HOUR + 1) * HOUR


@pytest.mark.parametrize("reason", [DONE, FAILED])
def test_a_run_waits_for_its_next_start_and_again_once_that_has_ended(reason: JobReason) -> None:
    world = scheduled()
    ends(world, reason)
    at = on_the_hour(world.now)
    assert (world.run.status, world.run.next_start, world.run.due_at) == (RunStatus.pending, at, at)
    assert (world.run.reason, world.run.retries, world.run.fleet_id, world.run.finished_at) == (None, (), None, None)
    assert world.run.message == f"the next start is at {datetime.fromtimestamp(at / SECOND, UTC):%Y-%m-%d %H:%M} UTC"
    before = len(world.jobs)
    world.decide()
    assert len(world.jobs) == before, "it isn't time yet"
    world.decide(after=(at - world.now) // SECOND)
    job = world[0, 0]
    assert (world.run.status, world.run.next_start, world.run.triggered_at) == (RunStatus.submitted, None, at)
    assert (job.status, job.submission_num, job.submitted_at, job.due_at) == (JobStatus.submitted, 1, at, at)


def test_all_nodes_start_again_together() -> None:
    world = scheduled(3)
    ends(world)
    world.decide(after=3600)
    assert {job.submission_num for job in (world[0, node] for node in range(3))} == {1}
    assert {status for status in world.statuses().values()} == {"submitted"}


def test_a_start_that_was_cut_short_is_completed() -> None:
    """More nodes than one commit takes are submitted in parts; a crash may fall between them."""
    world = scheduled(3)
    ends(world)
    pending, gone = world.run, dict(world.jobs)
    world.decide(after=3600)
    first = world[0, 0]
    world.run, world.jobs = pending, {**gone, first.id: first}
    world.decide()
    assert [world[0, node].submission_num for node in range(3)] == [1, 1, 1]
    assert world[0, 0] == first


def test_what_would_have_started_meanwhile_is_skipped() -> None:
    world = scheduled()
    world.decide(after=3 * 3600)
    ends(world)
    assert world.run.next_start == on_the_hour(world.now)


def test_whoever_stops_the_run_ends_its_schedule() -> None:
    world = scheduled()
    ends(world)
    plan = stop_run(world.run, RunReason.stopped_by_user, Draft(world.now))
    (world.run,) = (noun for noun in plan.steps[0].saves if isinstance(noun, Run))
    world.decide()
    assert (world.run.status, world.run.reason) == (RunStatus.terminated, RunReason.stopped_by_user)
    assert world.run.due_at is None


def test_a_stop_while_it_runs_ends_its_schedule_too() -> None:
    world = scheduled()
    plan = stop_run(world.run, RunReason.aborted_by_user, Draft(world.now))
    (world.run,) = (noun for noun in plan.steps[0].saves if isinstance(noun, Run))
    world.decide()
    world.leaves((0, 0))
    world.decide()
    assert world.run.status is RunStatus.terminated


def test_a_start_has_all_its_retries() -> None:
    """What earlier starts used up doesn't count, nor how long ago the run was submitted."""
    world = scheduled(retry={"on_events": ["error"], "duration": "1h"})
    ends(world, FAILED)
    assert world.run.retries and world.run.next_start is None, "it waits for its retry, not for its schedule"
    world.decide(after=2 * 3600)
    world.place(world[0, 0], JobStatus.running)
    world.decide()
    ends(world, DONE)
    assert world.run.next_start is not None and world.run.retries == ()
    world.decide(after=5 * 3600)
    world.place(world[0, 0], JobStatus.running)
    world.decide()
    ends(world, FAILED)
    assert [retry.attempt for retry in world.run.retries] == [1]


def test_times_are_those_of_the_zone() -> None:
    noon = Schedule.model_validate({"cron": "0 12 * * *", "timezone": "Asia/Tokyo"})
    assert next_start(noon, from_iso("2026-01-01T00:00:00")) == from_iso("2026-01-01T03:00:00")
    assert next_start(noon, from_iso("2026-01-01T03:00:00")) == from_iso("2026-01-02T03:00:00"), "strictly later"


def test_a_day_that_never_comes_has_no_start() -> None:
    never, may = "0 0 30 2 *", "0 0 1 5 *"
    assert next_start(Schedule.model_construct(cron=[never]), from_iso("2026-01-01T00:00:00")) is None
    both = Schedule.model_construct(cron=[never, may])
    assert next_start(both, from_iso("2026-01-01T00:00:00")) == from_iso("2026-05-01T00:00:00")


def test_of_several_expressions_the_first_counts() -> None:
    twice = Schedule.model_validate({"cron": ["0 18 * * *", "30 6 * * *"]})
    assert next_start(twice, from_iso("2026-01-01T07:00:00")) == from_iso("2026-01-01T18:00:00")
    assert next_start(twice, from_iso("2026-01-01T18:00:00")) == from_iso("2026-01-02T06:30:00")


@pytest.mark.parametrize(
    ("expression", "zone", "at", "wanted"),
    [
        ("*/20 * * * *", "UTC", "2026-01-01T00:20:00", "2026-01-01T00:40:00"),
        ("5/20 3 * * *", "UTC", "2026-01-01T03:06:00", "2026-01-01T03:25:00"),
        ("0 9 * * mon-fri", "UTC", "2026-11-27T09:00:00", "2026-11-30T09:00:00"),  # a Friday
        ("0 9 * * 0", "UTC", "2026-11-27T09:00:00", "2026-11-30T09:00:00"),  # 0 is Monday
        ("0 0 13 * fri", "UTC", "2026-01-01T00:00:00", "2026-02-13T00:00:00"),  # both must match
        ("0 0 last * *", "UTC", "2028-02-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 31 * *", "UTC", "2026-01-31T00:00:00", "2026-03-31T00:00:00"),
        ("0 0 29 2 sun", "UTC", "2077-01-01T00:00:00", "2088-02-29T00:00:00"),
        ("0 0 1 jan,jul *", "UTC", "2026-01-01T00:00:00", "2026-07-01T00:00:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T22:00:00", "2026-03-29T01:30:00"),  # skipped: an hour later there
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T22:00:00", "2026-10-25T00:30:00"),  # twice: the first
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00", "2026-10-26T01:30:00"),
        ("0 0 * * *", "Pacific/Kiritimati", "2026-01-01T00:00:00", "2026-01-01T10:00:00"),
    ],
)
def test_when_it_comes_next(expression: str, zone: str, at: str, wanted: str) -> None:
    assert cron.problem(expression) is None
    found = cron.next_after(expression, datetime.fromisoformat(at + "+00:00"), zone)
    assert found is not None and found.isoformat() == wanted + "+00:00"


FIELDS = st.tuples(
    st.sampled_from(["*", "0", "7,30", "*/17", "50-59"]),
    st.sampled_from(["*", "0", "9-17/4", "23", "2,3"]),
    st.sampled_from(["*", "1", "15,31", "last"]),
    st.sampled_from(["*", "feb", "3-5", "jan,dec"]),
    st.sampled_from(["*", "mon-fri", "6", "tue,thu"]),
)


@given(FIELDS, st.integers(0, 30 * 365 * DAY // MINUTE), st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns"]))
def test_no_moment_between_now_and_the_next_was_meant(fields: tuple[str, ...], minutes: int, zone: str) -> None:
    """Against asking every single minute of two days."""
    expression = " ".join(fields)
    at = b.NOW // MINUTE * MINUTE + minutes * MINUTE
    start = next_start(Schedule.model_validate({"cron": expression, "timezone": zone}), at)
    assert start is not None and start > at
    if start - at <= 2 * DAY:
        assert next_start(Schedule.model_validate({"cron": expression, "timezone": zone}), start - 1) == start
        middle = at + (start - at) // 2
        assert next_start(Schedule.model_validate({"cron": expression, "timezone": zone}), middle) == start


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ({"cron": "0 0 30 2 *"}, "no day ever matches `0 0 30 2 *`"),
        ({"cron": "0 0 * * *", "timezone": "Mars/Olympus"}, "there is no time zone `Mars/Olympus`"),
        ({"cron": "0 0 * * *", "timezone": "../etc/passwd"}, "there is no time zone"),
        ({"cron": "0 0 * * *", "timezone": "Europe"}, "there is no time zone `Europe`"),
        ({"cron": "0 0 * * *", "timezone": ""}, "there is no time zone"),
    ],
)
def test_what_never_comes_or_is_nowhere_is_refused(written: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text.replace("*", r"\*")):
        Schedule.model_validate(written)
