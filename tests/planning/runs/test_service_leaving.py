"""Replicas of services that aren't wanted any more, groups that go, and failures that end nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.events import EventType
from chalicelib.domain.instants import HOUR, MINUTE, SECOND
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import JobReason, RunReason
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.domain.services import STALE, Traffic
from chalicelib.planning.jobs.replica_groups import ASLEEP, OFF
from chalicelib.planning.runs.run import decide_run
from tests.planning.runs.test_service_run import RETRY, SCALING, begun, messages, numbers, world
from tests.world.services import ServiceWorld

FROM_ZERO = {"replicas": "0..2", "scaling": SCALING}


def woken(small: ServiceWorld, **config: Any) -> Run:
    """A service that had none gets a first replica, which serves."""
    run = begun(small, **{**FROM_ZERO, **config})
    small.report(run, held=1)
    small.round(run, 5)
    assert len(small.serving(run)) == 1
    return run


def fails(small: ServiceWorld, job: Job, exits: int = 1) -> None:
    assert job.assignment is not None
    small.sync(job.assignment.instance_id, exits=exits)


def quiet(small: ServiceWorld, run: Run, times: int = 4) -> None:
    """No requests for longer than the window and the delay."""
    for _ in range(times):
        small.now += 10 * SECOND
        small.report(run)
    small.pass_run(small.runs[run.id])


class TestARetryThatIsntWantedAnyMore:
    def test_the_service_falls_asleep(self) -> None:
        small = world()
        run = woken(small, retry=RETRY)
        fails(small, small.serving(run)[0])
        small.round(run)
        assert small.runs[run.id].message.startswith("will be retried")
        quiet(small, run)
        asleep = small.runs[run.id]
        assert (asleep.status, asleep.message, asleep.resume_at) == (RunStatus.pending, ASLEEP, None)
        assert (asleep.due_at or 0) >= small.now + HOUR, "nothing is due: it must not look at itself all the time"
        small.report(run, held=1)
        small.round(run, 5)
        assert len(small.serving(run)) == 1

    def test_one_that_still_is_keeps_its_time(self) -> None:
        small = world()
        groups = [{"name": name, **FROM_ZERO, "commands": [name]} for name in ("a", "b")]
        groups[1] = {"name": "b", "replicas": 1, "commands": ["b"]}
        run = begun(small, groups=groups, retry=RETRY)
        small.report(run, held=1)
        small.round(run, 5)
        first, second = sorted(small.serving(run), key=lambda job: job.replica_group)
        fails(small, first)
        small.round(run)
        small.now += 5 * SECOND
        fails(small, second)
        small.round(run)
        assert small.runs[run.id].status == RunStatus.pending
        small.apply(run, groups=[{**groups[0], "replicas": 0, "scaling": None}, groups[1]], retry=RETRY)
        small.pass_run(small.runs[run.id])
        waits = small.runs[run.id]
        (retry,) = [each for each in waits.retries if not each.given_up]
        assert waits.resume_at == retry.resume_at
        assert f"run-0-0-{retry.replica} exited" in waits.message

    def test_what_it_had_failed_for_doesnt_count_when_it_is_asked_for_again(self) -> None:
        """Hours later no machine is found at first: that is the first failure, not one after hours of them."""
        small = world(hosts=1)
        run = woken(small, retry=RETRY)
        fails(small, small.serving(run)[0])
        small.round(run)
        quiet(small, run)
        small.now += 5 * HOUR
        small.report(run, held=1)
        small.pass_run(small.runs[run.id])
        (job,) = small.live(run)
        found_no_machine(small, job)
        small.pass_run(small.runs[run.id])
        assert small.runs[run.id].reason is None
        assert small.runs[run.id].message.startswith("will be retried")


class TestOneThatEndsWhileItIsToBeStopped:
    @pytest.mark.parametrize("exits", [0, 1])
    @pytest.mark.parametrize("retry", [None, RETRY])
    def test_it_counts_for_nothing(self, exits: int, retry: Any) -> None:
        small = world()
        run = begun(small, replicas=2, retry=retry)
        small.apply(run, replicas=1, retry=retry)
        small.report(run, requests=1, busy=1.0)
        small.pass_run(small.runs[run.id])
        (draining,) = [job for job in small.live(run) if job.draining_at is not None]
        fails(small, draining, exits)
        small.round(run, 6)
        small.now += MINUTE
        small.round(run, 6)
        assert small.runs[run.id].status == RunStatus.running
        assert numbers(small, run) == [0]
        assert not small.runs[run.id].retries

    @pytest.mark.parametrize("exits", [0, 1])
    def test_nor_does_the_last_one(self, exits: int) -> None:
        small = world()
        run = woken(small)
        quiet(small, run)
        (draining,) = [job for job in small.live(run) if job.draining_at is not None]
        fails(small, draining, exits)
        small.round(run, 3)
        asleep = small.runs[run.id]
        assert (asleep.status, asleep.reason, asleep.message) == (RunStatus.pending, None, ASLEEP)


OLD = {"name": "a", "replicas": 2, "commands": ["serve"]}
NEW = {**OLD, "name": "b"}


class TestGroupsThatGo:
    def rounds(self, small: ServiceWorld, run: Run, times: int = 30) -> list[int]:
        counts = []
        for _ in range(times):
            small.report(run)
            small.round(run)
            counts.append(len(small.serving(run)))
        return counts

    @pytest.mark.slow
    def test_one_that_is_renamed_serves_until_the_other_does(self) -> None:
        small = world()
        run = begun(small, groups=[OLD])
        small.apply(run, groups=[NEW])
        assert min(self.rounds(small, run)) == 2
        assert [job.replica_group for job in small.serving(run)] == ["b", "b"]
        assert {job.replica_group for job in small.live(run)} == {"b"}

    @pytest.mark.slow
    def test_one_place_more_is_enough(self) -> None:
        small = world(hosts=3)
        run = begun(small, groups=[OLD])
        small.apply(run, groups=[NEW])
        assert min(self.rounds(small, run)) == 2
        assert [job.replica_group for job in small.serving(run)] == ["b", "b"]

    @pytest.mark.slow
    def test_it_stays_if_the_other_doesnt_work(self) -> None:
        small = world()
        run = begun(small, groups=[OLD])
        small.broken[run.id, 1] = 1
        small.apply(run, groups=[NEW])
        assert min(self.rounds(small, run)) == 2
        now = small.runs[run.id]
        assert now.message.startswith("the new version doesn't work, so the one before stays")
        assert len(messages(small, run, EventType.paused)) == 1
        assert len([job for job in small.jobs.values() if job.replica_group == "b"]) == 2, "each was tried once"
        small.apply(run, groups=[OLD])
        assert min(self.rounds(small, run)) == 2
        assert [job.replica_group for job in small.serving(run)] == ["a", "a"]

    @pytest.mark.slow
    def test_one_of_its_replicas_that_fails_isnt_started_again(self) -> None:
        small = world()
        run = begun(small, groups=[OLD], retry=RETRY)
        small.stuck.add((run.id, 1))
        small.apply(run, groups=[NEW], retry=RETRY)
        self.rounds(small, run, 6)
        fails(small, next(job for job in small.serving(run) if job.replica_group == "a"))
        for _ in range(6):
            small.round(run)
            small.now += MINUTE
        assert [job.replica_group for job in small.serving(run)] == ["a"]
        small.stuck.clear()
        self.rounds(small, run)
        assert [job.replica_group for job in small.serving(run)] == ["b", "b"]

    @pytest.mark.slow
    def test_its_numbers_are_used_again(self) -> None:
        """Or each change of names would leave as many jobs for ever."""
        small = world()
        run = begun(small, groups=[OLD])
        for name in "bcdefgh":
            small.apply(run, groups=[{**OLD, "name": name}])
            self.rounds(small, run, 20)
        assert {job.replica_group for job in small.live(run)} == {"h"}
        assert max(job.replica_num for job in small.jobs.values()) <= 3


class TestNoMachine:
    @pytest.mark.parametrize("retry", [None, RETRY])
    def test_while_others_serve_it_is_tried_again(self, retry: Any) -> None:
        small = world(hosts=1)
        run = begun(small, replicas="1..2", scaling=SCALING, retry=retry)
        small.now += 10 * SECOND
        small.report(run, requests=100)
        for _ in range(12):  # for longer than it would be retried
            for instance_id in small.alive():
                small.sync(instance_id)
            small.pass_run(small.runs[run.id])
            for job in small.live(run):
                if job.status is JobStatus.submitted:
                    found_no_machine(small, job)
            small.pass_run(small.runs[run.id])
            small.now += 11 * MINUTE
            small.report(run, requests=100_000)
        now = small.runs[run.id]
        assert (now.status, now.reason) == (RunStatus.running, None)
        assert "replica 1 will be retried" in now.message
        tried = [job for job in small.jobs.values() if job.replica_num == 1]
        assert len(tried) >= 10

    def test_the_only_one_ends_the_run(self) -> None:
        small = world(hosts=1)
        run = small.serve(replicas=1)
        found_no_machine(small, small.live(run)[0])
        small.pass_run(small.runs[run.id])
        assert small.runs[run.id].reason is RunReason.job_failed


def found_no_machine(small: ServiceWorld, job: Job) -> None:
    """As its queue would say."""
    reason = JobReason.failed_to_start_due_to_no_capacity
    small.jobs[job.id] = job.with_(status=JobStatus.failed, reason=reason, finished_at=small.now, due_at=None)


def test_a_service_that_is_switched_off_says_so() -> None:
    small = world()
    run = begun(small, replicas=1)
    small.apply(run, replicas=0)
    for _ in range(6):
        small.report(run)
        small.round(run)
    assert (small.runs[run.id].status, small.runs[run.id].message) == (RunStatus.pending, OFF)


def test_a_fixed_number_needs_no_reason() -> None:
    """What the scaler has said before doesn't stay behind."""
    small = world()
    run = begun(small, replicas="1..3", scaling=SCALING)
    small.now += 10 * SECOND
    small.report(run, requests=50)
    small.pass_run(small.runs[run.id])
    assert small.runs[run.id].scales[0].why
    small.apply(run, replicas=2)
    small.pass_run(small.runs[run.id])
    scale = small.runs[run.id].scales[0]
    assert (scale.desired, scale.why, scale.wanted, scale.panic_until) == (2, "", None, None)


def test_a_number_that_is_used_again_is_a_new_replica_in_the_history() -> None:
    small = world()
    run = woken(small)
    quiet(small, run)
    quiet(small, run)
    small.round(run, 3)
    assert not small.live(run)
    small.report(run, held=1)
    small.round(run, 2)
    assert not messages(small, run, EventType.resubmitted)


def test_who_adds_or_ends_replicas_writes_the_run_too() -> None:
    """So whoever decides by a run that was changed meanwhile is refused by the store."""
    small = world()
    run = begun(small, replicas=1)
    small.apply(run, replicas=2)
    small.pass_run(small.runs[run.id])
    small.apply(run, replicas=1)
    (step,) = small.sure(run).steps
    assert any(isinstance(noun, Run) for noun in step.saves)


class TestDrainingAtAGateway:
    """The first of its doors lets everything go."""

    @staticmethod
    def stopped(doors: tuple[str, ...], busy: Traffic | None) -> bool:
        small = world()
        run = begun(small, replicas=2)
        small.apply(run, replicas=1)
        small.pass_run(small.runs[run.id])
        snapshot = small.look_at(small.runs[run.id])
        small.now += SECOND
        first = Traffic(run_id=run.id, door="a", at=small.now, let_go=tuple(job.id for job in snapshot.jobs))
        traffic = (first,) if busy is None else (first, busy.with_(run_id=run.id, at=small.now - busy.at))
        plan = decide_run(replace(snapshot, now=small.now, doors=doors, traffic=traffic))
        saved = (noun for step in plan.steps for noun in step.saves)
        stops = any(isinstance(noun, Job) and noun.reason is JobReason.scaled_down for noun in saved)
        if busy is not None and not stops:
            assert plan.next_wake == small.now - busy.at + STALE + 1, "then it isn't believed any more"
        return stops

    @pytest.mark.parametrize(
        ("doors", "busy", "stops"),
        [
            (("a",), None, True),
            (("a", "b"), None, False),  # the second has said nothing yet
            (("a",), Traffic(run_id="", door="b", at=SECOND), False),  # its agent has just started again
            (("a",), Traffic(run_id="", door="b", at=STALE + SECOND), True),  # it isn't believed any more
        ],
    )
    def test_each_that_takes_requests_or_has_some_is_asked(
        self, doors: tuple[str, ...], busy: Traffic | None, stops: bool
    ) -> None:
        assert self.stopped(doors, busy) is stops


def test_a_replica_that_waits_for_a_place_is_over_as_soon_as_it_isnt_wanted() -> None:
    small = world(hosts=1)
    run = begun(small, replicas=2)
    (waits,) = [job for job in small.live(run) if job.status is JobStatus.submitted]
    small.apply(run, replicas=1)
    small.pass_run(small.runs[run.id])
    assert small.jobs[waits.id].status is JobStatus.terminated
