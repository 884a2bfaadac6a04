"""Dollars a day of access tokens in whole passes, over both stores and through several projects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, HOUR, MINUTE, SECOND, day_of
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.spending import DailyLimit, Spending
from chalicelib.engine.quotas import token_usage
from chalicelib.engine.read import Reader
from chalicelib.store.port import Change
from tests.planning.placing.test_quotas import ran
from tests.world import nouns as b
from tests.world.engine import Engine
from tests.world.gangs import cluster, jobs_of, task
from tests.world.nouns import PROJECT

QUEUE = f"queue/{PROJECT}"
CI = DailyLimit(id="t1", token="ci", dollars=5.0)


@pytest.fixture
def place() -> Iterator[Engine]:
    found = Engine.in_memory()
    found.at = day_of(found.at) + DAY + 12 * HOUR
    yield found


def limited(place: Engine, name: str, limit: DailyLimit = CI, **configuration: object) -> Job:
    job = place.run(name, **configuration)
    place.save(place.again(b.run(name)).with_(limit=limit))
    return job


def reconcile(place: Engine, *units: str) -> None:
    done = place.reconciler().run([QUEUE, *units])
    assert not done.failed, done.failed


def placed(place: Engine, *jobs: Job) -> int:
    return sum(place.again(job).assignment is not None for job in jobs)


def price(place: Engine, job: Job, dollars: float) -> None:
    """What an hour of the job's place costs."""
    now = place.again(job)
    assert now.assignment is not None
    offer = now.assignment.offer.with_(price=dollars)
    place.save(now.with_(assignment=now.assignment.with_(offer=offer)))


def spent(place: Engine, limit: DailyLimit = CI) -> float:
    return token_usage(Reader(place.store), [limit], place.at)[limit.id].money


def test_once_it_is_spent_the_next_run_waits_until_midnight_and_the_first_goes_on(place: Engine) -> None:
    place.hosts(3)
    first = limited(place, "first")
    reconcile(place)
    assert placed(place, first) == 1
    price(place, first, 10.0)
    place.save(place.again(first).with_(status=JobStatus.running, due_at=None))
    place.at += HOUR // 2
    second, free = limited(place, "second"), place.run("free")
    reconcile(place)
    assert placed(place, second) == 0 and placed(place, free) == 1
    why = "waiting for quota: the access token ci has spent its $5.00 of today; more from 00:00 UTC"
    assert place.again(second).message == why
    assert place.again(first).status is JobStatus.running, "what has its place keeps it"
    place.save(place.again(first).with_(status=JobStatus.done, finished_at=place.at, due_at=None))
    place.at = day_of(place.at) + DAY + MINUTE
    place.reconciler().run()
    assert placed(place, second) == 1


def test_a_run_without_a_limit_writes_no_record(place: Engine) -> None:
    place.hosts(1)
    place.run("a")
    reconcile(place)
    assert place.store.get(keys.spending("t1")) is None


def test_what_has_ended_is_replaced_by_its_cost_with_the_next_placement(place: Engine) -> None:
    place.hosts(2)
    early = ran("early", 2.0, place.at - 14 * HOUR, place.at - 11 * HOUR)  # an hour of it today
    place.save(early.with_(status=JobStatus.done, due_at=None))
    place.save(Spending(id="t1", jobs=(f"{early.run_id}/0/0/0", "erased-since/0/0/0"), counted_to=place.at - 13 * HOUR))
    assert spent(place) == pytest.approx(2.0)
    job = limited(place, "a")
    reconcile(place)
    record = place.again(Spending(id="t1"))
    assert (record.spent, record.jobs) == (2.0, (f"{job.run_id}/0/0/0",))
    assert spent(place) == pytest.approx(2.0)


def test_jobs_of_other_projects_count_too(place: Engine) -> None:
    """The record lists them, so no fleet and no index of their project is read."""
    place.hosts(1)
    far = ran("far", 6.0, place.at - HOUR).with_(project_id="elsewhere", status=JobStatus.running, due_at=None)
    place.save(far, Spending(id="t1", jobs=(f"{far.run_id}/0/0/0",), counted_to=place.at - HOUR))
    job = limited(place, "a")
    reconcile(place)
    assert placed(place, job) == 0
    assert "has spent its $5.00 of today" in place.again(job).message


def test_tokens_of_one_rule_share_its_dollars(place: Engine) -> None:
    place.hosts(2)
    first = limited(place, "first", DailyLimit(id="workload/gh", token="gh", dollars=5.0))
    reconcile(place)
    price(place, first, 5.0)
    place.at += HOUR
    second = limited(place, "second", DailyLimit(id="workload/gh", token="gh", dollars=5.0))
    reconcile(place)
    assert placed(place, second) == 0


def test_all_nodes_of_a_task_count(place: Engine) -> None:
    cluster(place, 2)
    run = task(place, "train", 2)
    place.save(place.again(run).with_(limit=CI))
    reconcile(place, f"run/{run.id}")
    assert {job.status for job in jobs_of(place, run)} == {JobStatus.provisioning}
    assert len(place.again(Spending(id="t1")).jobs) == 2
    for job in jobs_of(place, run):
        price(place, job, 1.0)
    place.at += HOUR
    assert spent(place) == pytest.approx(2.0, abs=0.05)


def test_two_passes_at_once_never_lose_a_job_from_the_record() -> None:
    """Each knows one job, which only one fleet takes: the second pass comes to its end before the first one's
    commit, and neither may overwrite what the other has listed."""
    place = Engine.in_memory(lag=3600 * SECOND)
    jobs = []
    for name in ("left", "right"):
        place.hosts(1, name)
        jobs.append(limited(place, name, fleets=[name]))
    commit, begun = place.store.commit, []

    def between(changes: Sequence[Change]) -> None:
        if not begun:
            begun.append(True)
            place.reconciler().run([QUEUE, f"run/{jobs[1].run_id}"], kinds=())
        commit(changes)

    place.store.commit = between
    place.reconciler().run([QUEUE, f"run/{jobs[0].run_id}"], kinds=())
    assert placed(place, *jobs) == 2
    assert sorted(place.again(Spending(id="t1")).jobs) == sorted(f"{job.run_id}/0/0/0" for job in jobs)


def test_each_replica_counts(place: Engine) -> None:
    place.hosts(3)
    first = limited(place, "chat", type="service", port=80, commands=["serve"], replicas=2)
    first = first.with_(replica_group="0")
    place.save(first)
    reconcile(place)
    price(place, first, 120.0)
    run = place.again(b.run("chat"))
    replica, third = (b.job(run, replica=number, replica_group="0", due_at=place.at) for number in (1, 2))
    place.save(replica)
    reconcile(place)
    price(place, replica, 180.0)
    place.at += MINUTE
    assert spent(place) == pytest.approx(5.0)
    place.save(third)
    place.reconciler().run([QUEUE, f"run/{run.id}"], kinds=())
    assert placed(place, third) == 0 and "has spent its $5.00 of today" in place.again(third).message
