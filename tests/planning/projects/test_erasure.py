"""What may be erased and when: never what still runs, never before its time."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.closings import Closing
from chalicelib.domain.fleets import FleetStatus
from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.instants import DAY
from chalicelib.domain.jobs import Assignment, Job, JobStatus
from chalicelib.domain.programs import Program
from chalicelib.domain.retention import Retention
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.domain.services import Scale
from chalicelib.domain.tenants import Archive, Project
from chalicelib.planning.projects.erasure import (
    MOST_SUBMISSIONS,
    RECORD_DELAY,
    archive_erasable,
    erasable_submissions,
    fleet_erasable,
    instance_erasable,
    is_settled,
    logs_erasable,
    program_erasable,
    project_erasable,
    project_record_erasable,
    run_erasable,
)
from tests.world import nouns as b
from tests.world.time import NOW

RETENTION = Retention(events=50, logs=30, deleted=1, fleets=20, archives=10)


def ended(at: int = NOW, **fields: Any) -> Run:
    return b.run(status=RunStatus.done, finished_at=at, **fields)


def job(of: Run, status: JobStatus = JobStatus.done) -> Job:
    return b.job(of, status=status)


def test_a_deleted_run_goes_a_day_later() -> None:
    run = ended(deleted=True, deleted_at=NOW)
    assert not run_erasable(run, [job(run)], RETENTION, NOW + DAY - 1)
    assert run_erasable(run, [job(run)], RETENTION, NOW + DAY)
    assert not run_erasable(ended(), [], RETENTION, NOW + 100 * DAY), "nobody deleted it"


def test_logs_go_a_month_after_the_end() -> None:
    run = ended()
    assert not logs_erasable(run, [job(run)], RETENTION, NOW + 30 * DAY - 1)
    assert logs_erasable(run, [job(run)], RETENTION, NOW + 30 * DAY)
    assert not logs_erasable(ended(logs_erased=True), [], RETENTION, NOW + 30 * DAY)


@pytest.mark.parametrize("status", [status for status in JobStatus if not b.job(b.run(), status=status).finished])
def test_nothing_goes_while_a_job_lives(status: JobStatus) -> None:
    run = ended(deleted=True, deleted_at=NOW)
    jobs = [job(run), job(run, status)]
    assert not run_erasable(run, jobs, RETENTION, NOW + 100 * DAY) and not logs_erasable(
        run, jobs, RETENTION, NOW + 100 * DAY
    )


@pytest.mark.parametrize("status", [status for status in RunStatus if not b.run(status=status).finished])
def test_nothing_of_a_live_run_goes(status: RunStatus) -> None:
    run = b.run(status=status, deleted=True, deleted_at=NOW)
    assert not run_erasable(run, [], RETENTION, NOW + 100 * DAY) and not logs_erasable(
        run, [], RETENTION, NOW + 100 * DAY
    )


def test_earlier_jobs_of_a_live_run_go_but_for_the_last_and_the_last_that_ran() -> None:
    run = b.run(status=RunStatus.running)
    place = b.holding(b.machine(), b.job(run))

    def submission(number: int, replica: int = 0, **fields: Any) -> Job:
        return b.job(run, number, replica=replica, **{"status": JobStatus.done, "finished_at": NOW, **fields})

    ran = Assignment(
        instance_id=place.id,
        instance_name=place.name,
        fleet_id=place.fleet_id,
        fleet_name=place.fleet_name,
        offer=place.offer,
        assigned_at=NOW,
    )
    jobs = [
        submission(2),
        submission(0, assignment=ran),
        submission(1, assignment=ran),
        submission(3, finished_at=NOW + 1),
        submission(4, status=JobStatus.terminating),
        submission(5),
        submission(0, replica=1),
    ]
    assert erasable_submissions(run, jobs, RETENTION, NOW + 30 * DAY) == [jobs[1], jobs[0]]
    assert erasable_submissions(run, jobs, RETENTION, NOW + 30 * DAY - 1) == []
    assert erasable_submissions(ended(), jobs, RETENTION, NOW + 30 * DAY) == [], "a finished run shows all it did"


def test_of_very_many_starts_the_earliest_go_at_once() -> None:
    run = b.run(status=RunStatus.pending, triggered_at=NOW)
    starts = [b.job(run, number, status=JobStatus.done, finished_at=NOW) for number in range(MOST_SUBMISSIONS + 3)]
    assert erasable_submissions(run, starts, RETENTION, NOW) == starts[:3]
    assert erasable_submissions(run, starts[3:], RETENTION, NOW) == []


@pytest.mark.slow
def test_the_replicas_of_a_service_are_followed_by_each_other() -> None:
    """Or one that scales between one and many would have a hundred jobs for each of these."""
    run = b.run(status=RunStatus.running, scales=(Scale(group="0", desired=1),))
    jobs = [
        b.job(run, n, replica=replica, status=JobStatus.terminated, submitted_at=NOW + n, finished_at=NOW + n)
        for replica in range(4)
        for n in range(50)
    ]
    gone = erasable_submissions(run, jobs, RETENTION, NOW)
    assert len(gone) == 4 * 49 - MOST_SUBMISSIONS
    assert max(job.submitted_at for job in gone) <= min(job.submitted_at for job in jobs if job not in gone)
    assert {job.replica_num for job in jobs if job not in gone} == {0, 1, 2, 3}


def test_runs_of_older_versions_say_less() -> None:
    run = ended(deleted=True, last_processed_at=NOW).with_(finished_at=None)
    assert run_erasable(run, [], RETENTION, NOW + DAY) and not run_erasable(run, [], RETENTION, NOW + DAY - 1)
    assert logs_erasable(run, [], RETENTION, NOW + 30 * DAY) and not logs_erasable(
        run, [], RETENTION, NOW + 30 * DAY - 1
    )


@pytest.mark.parametrize("status", InstanceStatus)
def test_an_instance_goes_some_time_after_it_was_terminated(status: InstanceStatus) -> None:
    instance = b.machine(status=status, finished_at=NOW)
    assert instance_erasable(instance, RETENTION, NOW + 20 * DAY) is (status is InstanceStatus.terminated)
    assert not instance_erasable(instance, RETENTION, NOW + 20 * DAY - 1)
    assert not instance_erasable(b.holding(instance, b.job(b.run())), RETENTION, NOW + 20 * DAY), "a job holds it"


@pytest.mark.parametrize("status", FleetStatus)
def test_a_fleet_goes_some_time_after_its_end(status: FleetStatus) -> None:
    fleet = b.fleet(status=status, last_processed_at=NOW)
    assert fleet_erasable(fleet, RETENTION, NOW + 20 * DAY) is (status in (FleetStatus.terminated, FleetStatus.failed))
    assert not fleet_erasable(fleet, RETENTION, NOW + 20 * DAY - 1)


def test_an_archive_goes_after_its_last_use_or_if_its_end_has_begun() -> None:
    archive = Archive(id="a", owner_id="u", hash="h", blob="b", size=1, used_at=NOW)
    assert not archive_erasable(archive, RETENTION, NOW + 10 * DAY - 1) and archive_erasable(
        archive, RETENTION, NOW + 10 * DAY
    )
    assert archive_erasable(archive.with_(erased=True), RETENTION, NOW)
    unused = archive.with_(submitted=False)
    assert not archive_erasable(unused, RETENTION, NOW + DAY - 1) and archive_erasable(unused, RETENTION, NOW + DAY)


@pytest.mark.parametrize(
    ("project", "closing", "goes"),
    [
        ({}, {}, True),
        ({"deleted": False}, {}, False),  # taken back
        ({}, {"due_at": NOW + 5 * DAY}, False),  # something of it still runs
        ({}, {"erased": True}, False),
        ({}, {"began_at": NOW + 1}, False),
    ],
)
def test_a_project_goes_once_nothing_of_it_runs(project: dict[str, Any], closing: dict[str, Any], goes: bool) -> None:
    gone = Project(**{"id": "p", "name": "lab", "owner_id": "u", "created_at": NOW, "deleted": True, **project})
    end = Closing(**{"id": "p", "began_at": NOW, **closing})
    assert project_erasable(end, gone, RETENTION, NOW + DAY) is goes


@pytest.mark.parametrize(
    ("deleted", "erased", "after", "goes"),
    [(True, True, 50, True), (True, True, 49, False), (True, False, 50, False), (False, True, 50, False)],
)
def test_a_projects_own_record_goes_when_its_events_have(deleted: bool, erased: bool, after: int, goes: bool) -> None:
    project = Project(id="p", name="lab", owner_id="u", created_at=NOW, deleted=deleted)
    closing = Closing(id="p", began_at=NOW, erased=erased)
    assert project_record_erasable(closing, project, RETENTION, NOW + after * DAY) is goes


@pytest.mark.parametrize(("since", "goes"), [(RECORD_DELAY - 1, False), (RECORD_DELAY, True)])
def test_a_blob_is_settled_once_its_record_would_be_there(since: int, goes: bool) -> None:
    assert is_settled(NOW - since, NOW) is goes


@pytest.mark.parametrize(
    ("bought", "started", "age", "goes"),
    [
        (None, None, 2, True),
        (None, None, 1, False),  # the day of its last machine may not be over everywhere
        (-20, -15, 10, True),  # before its time
        (-20, -12, 10, False),
        (-20, None, 10, False),  # it is still to fetch its program, maybe this one
        (-8, None, 10, False),
        (-7, None, 10, True),  # after its time
    ],
)
def test_a_program_goes_unless_a_machine_that_lives_may_ask_for_it(
    bought: int | None, started: int | None, age: int, goes: bool
) -> None:
    """It was the newest for a day, until `age` days ago."""
    known = Program(digest="d", first_at=NOW - age * DAY, last_at=NOW - age * DAY)
    machine = b.machine(0, created_at=NOW + (bought or 0) * DAY, started_at=started and NOW + started * DAY)
    assert program_erasable(known, [] if bought is None else [machine], NOW) is goes


def test_a_run_without_jobs_has_none_to_give() -> None:
    assert erasable_submissions(b.run(), [], Retention(logs=1), NOW) == []
