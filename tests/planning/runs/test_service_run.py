"""Services as their runs' passes see them: they scale, fall asleep and wake, roll on, and stop at a bad version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chalicelib.domain.events import EventType
from chalicelib.domain.instants import HOUR, MINUTE, SECOND
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import JobReason, RunReason
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.domain.services import Traffic
from chalicelib.planning.jobs.replica_groups import ASLEEP
from chalicelib.planning.kernel.plan import Plan, Step
from chalicelib.planning.runs.invariants import replica_counts
from chalicelib.planning.runs.rollout import DRAIN, TO_LOAD, UNKNOWN
from chalicelib.planning.runs.run import decide_run
from chalicelib.planning.runs.service_run import RESTART_PAUSE
from chalicelib.planning.runs.snapshot import RunSnapshot
from tests.harness.examples import many
from tests.world.services import ServiceWorld

SCALING = {"metric": "rps", "target": 1, "scale_up_delay": "0s", "scale_down_delay": "30s", "window": "30s"}
RETRY = {"on_events": ["error", "no-capacity"], "duration": "1h"}


def world(hosts: int = 6) -> ServiceWorld:
    made = ServiceWorld()
    made.add_fleet("local", hosts=hosts)
    made.pass_fleet(next(iter(made.fleets)))
    return made


def begun(world: ServiceWorld, **config: Any) -> Run:
    run = world.serve(**config)
    world.round(run, 6)
    return run


def messages(world: ServiceWorld, run: Run, type: EventType = EventType.scaled) -> list[str]:
    return [event.message for event in world.events if event.type is type and event.run_id == run.id]


def numbers(world: ServiceWorld, run: Run) -> list[int]:
    return sorted(job.replica_num for job in world.live(run))


class TestScaling:
    def test_more_and_fewer_with_a_reason(self) -> None:
        small = world()
        run = begun(small, replicas="1..3", scaling=SCALING)
        for _ in range(3):
            small.now += 10 * SECOND
            small.report(run, requests=25)
        small.pass_run(small.runs[run.id])
        assert messages(small, run) == ["replicas 1 → 3: 2.5 requests a second over 30 s, 1 for each replica"]
        small.round(run, 5)
        assert numbers(small, run) == [0, 1, 2]
        for _ in range(5):
            small.now += 10 * SECOND
            small.report(run, requests=1)
            small.round(run)
        small.round(run, 3)
        assert numbers(small, run) == [0]
        ended = [job for job in small.jobs.values() if job.finished]
        assert {job.reason for job in ended} == {JobReason.scaled_down}
        assert small.runs[run.id].status == RunStatus.running

    def test_to_zero_and_back(self) -> None:
        small = world()
        run = begun(small, replicas="0..2", scaling=SCALING)
        assert small.runs[run.id].status == RunStatus.pending
        small.report(run, held=1)
        small.pass_run(small.runs[run.id])
        assert small.runs[run.id].status == RunStatus.submitted
        small.round(run, 5)
        assert len(small.serving(run)) == 1
        small.now += 10 * SECOND
        small.report(run)
        small.pass_run(small.runs[run.id])
        small.now = small.runs[run.id].due_at or 0
        for _ in range(4):
            small.report(run)
            small.round(run, 2)
            small.now += 10 * SECOND
        asleep = small.runs[run.id]
        assert (asleep.status, asleep.message, asleep.fleet_id) == (RunStatus.pending, ASLEEP, None)
        assert not small.live(run)
        small.report(run, held=1)
        small.round(run, 5)
        (job,) = small.serving(run)
        assert (job.replica_num, job.submission_num) == (0, 1)

    def test_a_range_lowered_to_zero_ends_replicas_that_were_never_called(self) -> None:
        small = world()
        run = begun(small, replicas="1..2", scaling=SCALING)
        assert len(small.serving(run)) == 1
        small.apply(run, replicas="0..2", scaling=SCALING)
        small.round(run)
        assert len(small.serving(run)) == 1
        for _ in range(12):
            small.now += 10 * SECOND
            small.round(run)
        assert not small.live(run) and small.runs[run.id].message == ASLEEP
        assert messages(small, run) == ["replicas 1 → 0: no requests yet"]

    def test_while_asleep_it_is_looked_at_once_an_hour(self) -> None:
        small = world()
        run = begun(small, replicas="0..2", scaling=SCALING)
        assert (small.runs[run.id].due_at or 0) >= small.now + HOUR

    def test_it_is_looked_at_when_a_delay_is_over(self) -> None:
        small = world()
        run = begun(small, replicas="1..3", scaling={**SCALING, "scale_up_delay": "5m"})
        small.now += 10 * SECOND
        small.report(run, requests=50)
        small.pass_run(small.runs[run.id])
        changed = small.now
        small.now += 20 * SECOND
        small.report(run, requests=500)
        small.pass_run(small.runs[run.id])
        scale = small.runs[run.id].scales[0]
        assert (scale.desired, scale.wanted) == (2, 3)
        assert "because of scale_up_delay" in scale.why
        small.now = changed + 5 * MINUTE
        small.report(run, requests=500)
        small.pass_run(small.runs[run.id])
        assert small.runs[run.id].scales[0].desired == 3

    def test_a_silent_door_is_told_of_once(self) -> None:
        small = world()
        run = begun(small, replicas="1..3", scaling=SCALING)
        small.report(run, requests=10, busy=1)
        small.now += MINUTE
        for _ in range(3):
            small.pass_run(small.runs[run.id])
            small.now += MINUTE
        assert len(messages(small, run)) == 1
        assert "nothing heard from `server` since" in messages(small, run)[0]

    def test_each_group_by_its_own_rule(self) -> None:
        small = world()
        groups = [
            {"name": "big", "replicas": "1..2", "scaling": SCALING, "commands": ["a"]},
            {"name": "small", "replicas": 2, "commands": ["b"]},
        ]
        run = begun(small, groups=groups)
        small.now += 10 * SECOND
        small.report(run, requests=500)
        small.round(run, 5)
        assert sorted(job.replica_group for job in small.serving(run)) == ["big", "big", "small", "small"]
        assert messages(small, run)[0].startswith("replicas 1 → 2: group big: ")


# By field: another value, how many replicas there should be without it, and with it.
SETTINGS: dict[str, tuple[Any, int, int]] = {
    "metric": ("queue", 2, 3),
    "target": (50, 2, 1),
    "window": ("5m", 2, 1),
    "scale_up_delay": ("5m", 2, 1),
    "scale_down_delay": ("5m", 1, 2),
}
CASES = {f"configuration.{at}{name}": name for at in ("scaling.", "groups.scaling.") for name in SETTINGS}


@pytest.mark.parametrize("path", CASES)
def test_setting(path: str) -> None:
    """Each field changes what is decided, alone, in a service as in a group."""
    name = CASES[path]
    value, without, with_it = SETTINGS[name]
    falls = name == "scale_down_delay"
    for setting, count in ((SCALING, without), ({**SCALING, name: value}, with_it)):
        config: dict[str, Any] = {"replicas": "1..3", "scaling": setting}
        small = world()
        run = begun(small, **({"groups": [{**config, "commands": ["a"]}]} if "groups" in path else config))
        scale = small.runs[run.id].scales[0].with_(at=small.now, desired=1 + falls)
        small.runs[run.id] = small.runs[run.id].with_(scales=(scale,))
        small.now += MINUTE
        small.report(run, requests=0 if falls else 35, busy=0 if falls else 7.5)
        small.pass_run(small.runs[run.id])
        assert small.runs[run.id].scales[0].desired == count, setting


class TestDraining:
    def test_a_replica_with_requests_under_way_is_stopped_when_they_are_over(self) -> None:
        small = world()
        run = begun(small, replicas=2)
        small.apply(run, replicas=1)
        small.report(run, requests=1, busy=1.0)
        small.pass_run(small.runs[run.id])
        (draining,) = [job for job in small.live(run) if job.draining_at is not None]
        assert (draining.replica_num, draining.status) == (1, JobStatus.running)
        small.pass_run(small.runs[run.id])
        assert small.jobs[draining.id].status == JobStatus.running
        small.report(run)
        small.pass_run(small.runs[run.id])
        assert small.jobs[draining.id].reason is JobReason.scaled_down

    @pytest.mark.parametrize(
        ("setting", "known", "time"),
        [({}, True, DRAIN), ({"stop_duration": "5s"}, True, 5 * SECOND), ({}, False, UNKNOWN)],
    )
    def test_at_the_latest_after_its_time(self, setting: dict[str, Any], known: bool, time: int) -> None:
        """`known`: a door has reported it."""
        small = world()
        run = begun(small, replicas=2, **setting)
        if known:
            small.report(run, requests=1, busy=1.0)
        small.apply(run, replicas=1, **setting)
        small.pass_run(small.runs[run.id])
        assert small.runs[run.id].due_at == small.now + time
        small.now += time - SECOND
        small.pass_run(small.runs[run.id])
        assert not [job for job in small.live(run) if job.reason]
        assert small.runs[run.id].due_at == small.now + SECOND
        small.now += SECOND
        small.pass_run(small.runs[run.id])
        assert [job.reason for job in small.live(run) if job.reason] == [JobReason.scaled_down]


class TestDrainingBehindARouter:
    GROUPS = (
        {"name": "front", "replicas": 1, "commands": ["smg"], "router": {"type": "smg"}},
        {"name": "gpu", "replicas": 2, "commands": ["serve"]},
    )

    def draining(self) -> tuple[ServiceWorld, Run, Job, Job]:
        """A worker that nobody needs any more, and its router."""
        small = world()
        run = begun(small, groups=[*self.GROUPS])
        small.apply(run, groups=[self.GROUPS[0], {**self.GROUPS[1], "replicas": 1}])
        small.report(run, requests=1, busy=1.0)
        small.pass_run(small.runs[run.id])
        (worker,) = [job for job in small.live(run) if job.draining_at is not None]
        (router,) = [job for job in small.live(run) if job.replica_group == "front"]
        return small, run, worker, router

    def test_its_router_lets_it_go_and_nobody_else(self) -> None:
        small, run, worker, router = self.draining()
        small.report(run)
        small.pass_run(small.runs[run.id])
        assert small.jobs[worker.id].status == JobStatus.running, "the door knows nothing of workers"
        door = f"router/{router.id}"
        small.traffic[door] = Traffic(run_id=run.id, door=door, at=small.now, quiet=True, let_go=(worker.id,))
        small.pass_run(small.runs[run.id])
        assert small.jobs[worker.id].reason is JobReason.scaled_down

    def test_a_router_that_says_nothing_has_a_minute(self) -> None:
        small, run, worker, _ = self.draining()
        small.now += DRAIN - SECOND
        small.pass_run(small.runs[run.id])
        assert small.jobs[worker.id].status == JobStatus.running
        small.now += SECOND
        small.pass_run(small.runs[run.id])
        assert small.jobs[worker.id].reason is JobReason.scaled_down

    def test_the_router_itself_is_let_go_by_the_door_alone(self) -> None:
        small, run, worker, router = self.draining()
        door = f"router/{router.id}"
        small.traffic[door] = Traffic(run_id=run.id, door=door, at=small.now, quiet=True, let_go=(worker.id,))
        other = [{**self.GROUPS[0], "commands": ["smg --fast"]}, {**self.GROUPS[1], "replicas": 1}]
        small.apply(run, groups=other)
        for _ in range(6):
            small.report(run)
            small.round(run)
        assert small.jobs[router.id].reason is JobReason.scaled_down, "though its own record doesn't name it"


class TestRollout:
    def roll(self, small: ServiceWorld, run: Run, rounds: int = 30) -> list[int]:
        """How many served after each moment."""
        counts = []
        for _ in range(rounds):
            small.report(run)
            small.round(run)
            counts.append(len(small.serving(run)))
        return counts

    @pytest.mark.slow
    def test_one_at_a_time_and_never_fewer(self) -> None:
        small = world()
        run = begun(small, replicas=3)
        small.apply(run, replicas=3, commands=["better"])
        for _ in range(30):
            small.report(run)
            small.round(run)
            assert len(small.serving(run)) >= 3
            assert len([job for job in small.live(run) if job.reason is None and not job.draining_at]) <= 4
        assert [job.deployment_num for job in small.serving(run)] == [1, 1, 1]
        assert all(
            event.detail == "replaced by a newer version"
            for event in small.events
            if event.reason == "scaled_down" and event.after == "terminating"
        )

    def test_an_unchanged_replica_is_only_renumbered(self) -> None:
        small = world()
        run = begun(small, replicas=2)
        before = {job.id for job in small.live(run)}
        small.apply(run, replicas=3)
        self.roll(small, run, 6)
        assert before < {job.id for job in small.serving(run)}
        assert {job.deployment_num for job in small.serving(run)} == {1}

    @pytest.mark.slow
    def test_a_bad_version_stops_it_and_says_why(self) -> None:
        small = world()
        run = begun(small, replicas=2)
        small.broken[run.id, 1] = 1
        small.apply(run, replicas=2, commands=["worse"])
        assert min(self.roll(small, run)) == 2
        now = small.runs[run.id]
        assert now.status == RunStatus.running
        reason = "the new version doesn't work, so the one before stays: run-0-0-2 exited (1)"
        assert now.message == reason
        assert messages(small, run, EventType.paused) == [reason]
        assert {job.deployment_num for job in small.serving(run)} == {0}
        assert len([job for job in small.jobs.values() if job.deployment_num == 1]) == 1
        small.apply(run, replicas=2, commands=["good"])
        assert min(self.roll(small, run)) >= 2
        assert {job.deployment_num for job in small.serving(run)} == {2}
        assert small.runs[run.id].message == ""

    @pytest.mark.slow
    def test_with_retry_a_bad_version_is_tried_again_beside_the_old_one(self) -> None:
        small = world()
        run = begun(small, replicas=1, retry=RETRY)
        small.broken[run.id, 1] = 1
        small.apply(run, replicas=1, retry=RETRY, commands=["worse"])
        assert min(self.roll(small, run)) == 1
        assert "replica 1 will be retried" in small.runs[run.id].message
        small.now += HOUR * 3
        self.roll(small, run)
        assert len(small.serving(run)) == 1
        assert small.runs[run.id].reason is None

    @pytest.mark.slow
    def test_one_that_never_gets_ready_is_told_of(self) -> None:
        small = world()
        run = begun(small, replicas=1)
        small.stuck.add((run.id, 1))
        small.apply(run, replicas=1, commands=["hangs"])
        self.roll(small, run)
        small.now += TO_LOAD
        self.roll(small, run)
        assert small.runs[run.id].message == (
            "replica 1 of the new version isn't ready after 20 minutes, so the one before stays"
        )
        assert [job.deployment_num for job in small.serving(run)] == [0]
        small.stuck.clear()
        self.roll(small, run)
        assert [job.deployment_num for job in small.serving(run)] == [1]

    def test_one_that_ends_at_once_is_as_bad_as_one_that_fails(self) -> None:
        small = world()
        run = begun(small, replicas=1)
        small.broken[run.id, 1] = 0
        small.apply(run, replicas=1, commands=["exit"])
        assert min(self.roll(small, run)) == 1
        assert small.runs[run.id].message.startswith("the new version doesn't work")

    def test_a_removed_group_goes(self) -> None:
        small = world()
        both = [{"name": name, "replicas": 1, "commands": [name]} for name in ("a", "b")]
        run = begun(small, groups=both)
        small.apply(run, groups=both[:1])
        self.roll(small, run, 6)
        assert [job.replica_group for job in small.serving(run)] == ["a"]
        assert [scale.group for scale in small.runs[run.id].scales] == ["a"]


class TestFailures:
    def test_without_retry_a_failure_ends_the_run(self) -> None:
        small = world()
        run = small.serve(replicas=2)
        small.broken[run.id, 0] = 1
        small.round(run, 8)
        assert small.runs[run.id].reason is RunReason.job_failed

    def test_all_done_is_done(self) -> None:
        small = world()
        run = begun(small, replicas=2)
        for instance_id in small.alive():
            small.sync(instance_id, exits=0)
        small.round(run, 3)
        assert small.runs[run.id].status == RunStatus.done

    def test_one_that_is_done_rests_and_is_started_again(self) -> None:
        small = world()
        run = begun(small, replicas=2)
        job = small.serving(run)[0]
        assert job.assignment is not None
        small.sync(job.assignment.instance_id, exits=0)
        small.round(run, 3)
        assert len(small.live(run)) == 1
        small.now += RESTART_PAUSE
        small.round(run, 6)
        assert len(small.serving(run)) == 2

    def test_a_replica_that_waits_and_is_not_needed_any_more_is_given_up(self) -> None:
        small = world(hosts=3)
        run = begun(small, replicas=2, retry=RETRY)
        job = max(small.serving(run), key=lambda job: job.replica_num)
        assert job.assignment is not None
        small.sync(job.assignment.instance_id, exits=1)
        small.round(run, 2)
        assert small.runs[run.id].retries
        small.apply(run, replicas=1, retry=RETRY)
        small.round(run, 2)
        small.now += HOUR
        small.round(run, 3)
        assert numbers(small, run) == [0]
        small.apply(run, replicas=2, retry=RETRY)
        small.round(run, 6)
        assert numbers(small, run) == [0, 1]
        assert not small.runs[run.id].retries

    def test_retries_of_a_replica_that_came_late_count_from_then(self) -> None:
        """Not from the run's submission, days ago."""
        small = world(hosts=1)
        run = begun(small, replicas=1, retry=RETRY)
        small.now += 48 * HOUR
        small.round(run)
        small.apply(run, replicas=2, retry=RETRY)
        for _ in range(8):
            small.round(run)
            small.now += MINUTE
        assert small.runs[run.id].reason is None


# --- the linter ------------------------------------------------------------------------------------------------------


class TestTheLinter:
    """Each plan is right but for one thing."""

    def rolling(self) -> tuple[ServiceWorld, RunSnapshot]:
        small = world()
        run = begun(small, replicas=1)
        small.apply(run, replicas=1, commands=["better"])
        return small, small.look_at(small.runs[run.id])

    def broken(self, found: RunSnapshot, change: Callable[[Job], list[Job]]) -> str:
        (step,) = decide_run(found).steps
        saves = [each for noun in step.saves for each in (change(noun) if isinstance(noun, Job) else [noun])]
        return "; ".join(replica_counts(found, Plan((replace(step, saves=tuple(saves)),))))

    def test_a_right_plan(self) -> None:
        _, found = self.rolling()
        assert self.broken(found, lambda job: [job]) == ""

    def test_two_above_what_is_asked(self) -> None:
        _, found = self.rolling()
        twice = self.broken(found, lambda job: [job, job.with_(id="other", replica_num=7)])
        assert twice == "group 0 of run-0 would have 3 replicas, and should have 1"

    def test_a_group_that_is_not_there(self) -> None:
        _, found = self.rolling()
        assert "for group x of run-0, which isn't there" in self.broken(
            found, lambda job: [job.with_(replica_group="x")]
        )

    def test_more_than_its_bounds(self) -> None:
        _, found = self.rolling()
        most = found.run.with_(scales=(found.run.scales[0].with_(desired=9),))
        plan = decide_run(found)
        steps = tuple(replace(step, saves=(*step.saves, most)) for step in plan.steps)
        assert list(replica_counts(found, Plan(steps))) == [
            "group 0 of run-0 should have 9 replicas, which isn't within 1"
        ]

    def test_a_draining_replica_that_comes_back(self) -> None:
        small, _ = self.rolling()
        run = next(iter(small.runs.values()))
        small.round(run, 6)
        found = small.look_at(small.runs[run.id])
        (job,) = [job for job in found.jobs if job.draining_at is not None]
        plan = Plan((Step((job.with_(draining_at=None),)),))
        assert list(replica_counts(found, plan)) == [
            "replica run-0-0-0 was being drained, and would get requests again"
        ]


# --- any history -----------------------------------------------------------------------------------------------------

CONFIGS: tuple[dict[str, Any], ...] = (
    {"replicas": 2},
    {"replicas": "0..3", "scaling": SCALING},
    {"replicas": "1..4", "scaling": {**SCALING, "metric": "queue"}, "retry": RETRY},
    {"replicas": 3, "retry": RETRY},
    {"groups": [{"replicas": 1, "commands": ["x"]}, {"replicas": "0..2", "commands": ["y"], "scaling": SCALING}]},
)
OPS = (
    "round",
    "round",
    "round",
    "report",
    "report",
    "quiet",
    "held",
    "apply",
    "better",
    "wait",
    "exit",
    "due",
    "silent",
)


def happens(small: ServiceWorld, run: Run, op: str, n: int) -> None:
    if op == "round":
        small.round(run)
    elif op == "report":
        small.now += 10 * SECOND
        small.report(run, requests=(0, 5, 30, 200)[n % 4], busy=(0.0, 2.0, 9.0)[n % 3])
    elif op == "quiet":
        small.now += 10 * SECOND
        small.report(run)
    elif op == "held":
        small.report(run, held=1)
    elif op == "apply" and not small.runs[run.id].finished:
        small.apply(run, **CONFIGS[n % len(CONFIGS)])
    elif op == "better" and not small.runs[run.id].finished:
        if n % 3 == 0:
            small.broken[run.id, small.runs[run.id].deployment_num + 1] = n % 2
        config = CONFIGS[n % len(CONFIGS)]
        small.apply(run, **config, env={"V": str(small.runs[run.id].deployment_num)})
    elif op == "wait":
        small.now += (1, 15, 60, 300, 1500)[n % 5] * SECOND
    elif op == "exit" and small.alive():
        alive = small.alive()
        small.sync(alive[n % len(alive)], exits=n % 2)
    elif op == "due":
        small.pass_run(small.runs[run.id])
    elif op == "silent":
        small.silent ^= {list(small.instances)[n % len(small.instances)]}


@pytest.mark.slow
@settings(max_examples=many(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 4), st.lists(st.tuples(st.sampled_from(OPS), st.integers(0, 11)), max_size=40))
def test_whatever_happens_it_gets_what_it_should_have(kind: int, history: list[tuple[str, int]]) -> None:
    """Safety is checked by the world and the linter after every step. Once nothing fails any more and a working version
    is applied, there are exactly as many replicas as are wanted, all of that version, and all serve; a second look
    changes nothing; and a stopped run leaves nothing behind."""
    small = world(hosts=8)
    run = small.serve(**CONFIGS[kind])
    for op, n in history:
        happens(small, run, op, n)
    small.silent.clear()
    if small.runs[run.id].reason is None:
        small.apply(run, replicas=2, env={"V": "last"})
        for _ in range(40):
            small.report(run)
            small.round(run)
            small.now += 20 * SECOND
        serving = small.serving(run)
        assert len(serving) == 2 == len(small.live(run))
        assert {job.deployment_num for job in serving} == {small.runs[run.id].deployment_num}
        assert not [step for step in small.sure(run).steps if step.events]
        small.stop(small.runs[run.id])
    for _ in range(6):
        small.round(run)
        small.now += 10 * MINUTE
    assert small.runs[run.id].finished
    assert not small.live(run)
