"""A unit that is put off: only its due time moves, and a failure is told, less and less often."""

from __future__ import annotations

import pytest

from chalicelib.domain import keys
from chalicelib.domain.events import Event, EventType, Target
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.engine.kinds import KINDS
from chalicelib.engine.postpone import DEFAULT_DELAY as DELAY
from chalicelib.engine.postpone import put_off, put_off_failed
from chalicelib.store import nouns
from chalicelib.store.port import MAX_CHANGES, Put
from tests.world import nouns as b
from tests.world.engine import Engine


@pytest.fixture
def place() -> Engine:
    return Engine.in_memory()


def dues(place: Engine, job: Job) -> tuple[int | None, int | None]:
    """When the run's status and its job are due, counted from now."""
    run, own = place.store.get(keys.run(job.run_id)), place.store.get(nouns.key_of(job))
    return tuple(None if r is None or r.due is None else r.due.at - place.at for r in (run, own))  # type: ignore[return-value]


def due_run(place: Engine, name: str = "one") -> Job:
    """A run and its placed job, both due: a job that waits is its queue's."""
    job = place.run(name)
    run = b.run(name, submitted_at=place.at, last_processed_at=place.at, version=1)
    place.save(run.with_(due_at=place.at), job.with_(status=JobStatus.terminating, due_at=place.at))
    return job


@pytest.mark.parametrize(("until", "moved"), [(None, DELAY), (5 * SECOND, 5 * SECOND), (0, DELAY), (-1, DELAY)])
def test_what_is_due_of_a_unit_is_put_off(place: Engine, until: int | None, moved: int) -> None:
    job = due_run(place)
    other = due_run(place, "other")
    unit = f"run/{job.run_id}"
    before = place.store.get(keys.run(job.run_id))
    put_off(
        place.store, KINDS.unit(unit.partition("/")[0]), unit, place.at, None if until is None else place.at + until
    )
    assert dues(place, job) == (moved, moved)
    assert dues(place, other) == (0, 0)
    after = place.store.get(keys.run(job.run_id))
    assert before is not None and after is not None
    assert (after.version, after.body) == (before.version + 1, before.body)


def test_of_a_large_unit_as_much_is_put_off_as_one_commit_holds_with_the_event(place: Engine) -> None:
    runs = [place.run(f"run-{number}") for number in range(MAX_CHANGES + 10)]
    fail(place, f"queue/{b.PROJECT}")
    moved = [job for job in runs if dues(place, job)[1] == 10 * SECOND]
    assert (len(moved), len(events(place))) == (MAX_CHANGES - 1, 1)


def test_what_is_due_is_put_off_behind_many_that_arent(place: Engine) -> None:
    jobs = [place.run(f"run-{number}", due=False) for number in range(MAX_CHANGES + 10)]
    in_order = [record.key for record in place.store.query("gsi1", f"queue/{b.PROJECT}", limit=1000).records]
    last = max(jobs, key=lambda job: in_order.index(nouns.key_of(job)))
    place.save(place.again(last).with_(due_at=place.at))
    fail(place, f"queue/{b.PROJECT}")
    assert dues(place, last)[1] == 10 * SECOND


def test_what_isnt_due_yet_stays_as_it_is(place: Engine) -> None:
    job = due_run(place)
    place.save(place.again(job).with_(due_at=place.at + 1))
    unit = f"run/{job.run_id}"
    put_off(place.store, KINDS.unit(unit.partition("/")[0]), unit, place.at, None)
    assert dues(place, job) == (DELAY, 1)


def test_who_changed_the_unit_meanwhile_is_right(place: Engine) -> None:
    job = due_run(place)
    key, unit = keys.run(job.run_id), f"run/{job.run_id}"
    found = place.store.get(key)
    assert found is not None

    class Raced:
        """A store in which somebody is always faster."""

        def __getattr__(self, name: str) -> object:
            return getattr(place.store, name)

        def commit(self, changes: object) -> None:
            place.store.commit([Put(nouns.put(place.again(b.run("one"))).record, found.version)])
            place.store.commit(changes)

    put_off(Raced(), KINDS.unit(unit.partition("/")[0]), unit, place.at, place.at + MINUTE)  # type: ignore[arg-type]
    assert dues(place, job)[0] == 0


def events(place: Engine) -> list[Event]:
    return [nouns.read(Event, r) for r in place.store.records() if r.key.pk.startswith("events/")]


def fail(place: Engine, unit: str, times: int = 1) -> None:
    until = place.at + 10 * SECOND
    put_off_failed(
        place.store, KINDS.unit(unit.partition("/")[0]), unit, place.at, until, error=KeyError("x" * 600), times=times
    )


@pytest.mark.parametrize(("times", "events_expected"), [(1, 1), (2, 1), (3, 0), (4, 1), (6, 0), (8, 1), (9, 0)])
def test_a_failure_is_told_at_each_doubling(place: Engine, times: int, events_expected: int) -> None:
    job = due_run(place)
    fail(place, f"run/{job.run_id}", times)
    assert dues(place, job) == (10 * SECOND, 10 * SECOND)
    assert [event.number for event in events(place)] == [times] * events_expected


def test_a_runs_failure_is_told_in_full(place: Engine) -> None:
    job = due_run(place)
    fail(place, f"run/{job.run_id}")
    (event,) = events(place)
    assert (event.type, event.reason, event.number, event.at) == (EventType.stuck, "KeyError", 1, place.at)
    assert len(event.detail) == 500 and event.project_id == b.PROJECT
    assert (event.run_id, event.fleet_id) == (job.run_id, None)
    assert event.targets == (Target(type="run", id=job.run_id, name="one"),)


def test_a_run_that_has_no_jobs_has_its_name_all_the_same(place: Engine) -> None:
    run = b.run("early")
    place.save(run)
    fail(place, f"run/{run.id}")
    assert [event.targets for event in events(place)] == [(Target(type="run", id=run.id, name="early"),)]


def test_an_instances_failure_is_its_fleets_too(place: Engine) -> None:
    (host,) = place.hosts(1)
    place.save(place.again(host).with_(due_at=place.at))
    fail(place, f"instance/{host.id}")
    (event,) = events(place)
    assert (event.run_id, event.fleet_id) == (None, host.fleet_id)
    assert event.targets == (Target(type="instance", id=host.id, name=host.name),)


def test_a_fleets_failure_is_its_own(place: Engine) -> None:
    fleet = place.fleet("mine")
    fail(place, f"fleet/{fleet.id}")
    (event,) = events(place)
    assert event.fleet_id == fleet.id
    assert event.targets == (Target(type="fleet", id=fleet.id, name="mine"),)


def test_a_queues_failure_is_its_projects(place: Engine) -> None:
    job = place.run("one")
    fail(place, f"queue/{b.PROJECT}")
    (event,) = events(place)
    assert (event.project_id, event.run_id, event.fleet_id) == (b.PROJECT, None, None)
    assert event.targets == (Target(type="project", id=b.PROJECT, name="queue"),)
    assert dues(place, job)[1] == 10 * SECOND


def test_a_unit_that_is_gone_is_told_to_nobody(place: Engine) -> None:
    fail(place, "run/nobody")
    assert events(place) == []
