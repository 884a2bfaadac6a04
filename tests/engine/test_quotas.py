"""Quotas in whole passes: nothing gets past them, however many passes there are at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.events import Event, EventType, Target, Trade
from chalicelib.domain.instants import DAY, HOUR, MINUTE, SECOND, day_of
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.quotas import Limits, Quota
from chalicelib.domain.runs import RunStatus
from chalicelib.engine.kinds import KINDS
from chalicelib.engine.quotas import quota_of, usage_of
from chalicelib.engine.read import Reader
from chalicelib.planning.kernel.lint import Rules
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.placing.queue import decide_queue
from chalicelib.planning.placing.snapshot import QueueSnapshot
from chalicelib.store import nouns
from chalicelib.store.history import LATE, grouped
from chalicelib.store.port import Change, Put
from tests.planning.placing.test_quotas import ran
from tests.world import nouns as b
from tests.world.engine import Engine
from tests.world.gangs import cluster, gang_of, jobs_of, task
from tests.world.nouns import PROJECT

QUEUE = f"queue/{PROJECT}"


@pytest.fixture
def place() -> Engine:
    return Engine.in_memory()


def limit(place: Engine, users: dict[str, Limits] | None = None, **limits: Any) -> Quota:
    quota = Quota(id=PROJECT, project_name="main", limits=Limits(**limits), users=users or {})
    place.save(quota)
    return quota


def reconcile(place: Engine, *units: str) -> None:
    done = place.reconciler().run([QUEUE, *units])
    assert not done.failed, done.failed


def placed(place: Engine, *jobs: Job) -> int:
    return sum(place.again(job).assignment is not None for job in jobs)


def test_no_more_jobs_are_placed_than_the_quota_has_and_the_others_say_so(place: Engine) -> None:
    place.hosts(5)
    jobs = [place.run(name) for name in "abcde"]
    quota = limit(place, jobs=2)
    reconcile(place)
    assert placed(place, *jobs) == 2
    (message,) = {each.message for each in map(place.again, jobs) if each.assignment is None}
    assert message == "waiting for quota: 2 of 2 jobs of project main are running"
    assert place.again(quota).version == 3


def test_a_project_without_a_quota_reads_no_machine_more_and_writes_none(place: Engine) -> None:
    place.hosts(2)
    job = place.run("a")
    reconcile(place)
    assert placed(place, job) == 1
    assert place.store.get(keys.quota(PROJECT)) is None


@pytest.mark.parametrize("signed", [True, False])
def test_two_passes_at_once_never_use_the_same_room(signed: bool) -> None:
    """Each knows one job, which only one fleet takes, so nothing but the quota stands between them: the second pass
    comes to its end before the first one's commit."""
    place = Engine.in_memory(lag=3600 * SECOND)
    jobs = []
    for name in ("left", "right"):
        place.hosts(1, name)
        jobs.append(place.run(name, fleets=[name]))
    limit(place, jobs=1)
    kinds = KINDS if signed else KINDS.deciding("queue", decide=unsigned)
    if not signed:
        kinds.rules = Rules(machines={}, wakers=kinds.rules.wakers)
    commit, begun = place.store.commit, []

    def between(changes: Sequence[Change]) -> None:
        if not begun:
            begun.append(True)
            place.reconciler(kinds=kinds).run([QUEUE, f"run/{jobs[1].run_id}"], kinds=())
        commit(changes)

    place.store.commit = between
    place.reconciler(kinds=kinds).run([QUEUE, f"run/{jobs[0].run_id}"], kinds=())
    assert placed(place, *jobs) == (1 if signed else 2)


def unsigned(snapshot: QueueSnapshot) -> Plan:
    """A decision that forgets to commit the quota; it shows that the two passes do meet."""
    plan = decide_queue(snapshot)
    return replace(
        plan, steps=tuple(replace(s, saves=tuple(n for n in s.saves if not isinstance(n, Quota))) for s in plan.steps)
    )


def test_an_index_that_lags_hides_no_claim() -> None:
    place = Engine.in_memory(lag=3600 * SECOND)
    place.hosts(4)
    jobs = [place.run(name) for name in "abcd"]
    limit(place, jobs=3)
    for job in jobs:
        reconcile(place, f"run/{job.run_id}")
    assert placed(place, *jobs) == 3


def test_nodes_get_their_whole_share_or_wait(place: Engine) -> None:
    cluster(place, 4)
    quota = limit(place, jobs=3)
    run = task(place, "train", 4)
    reconcile(place, f"run/{run.id}")
    assert gang_of(place, run) is None
    lead = jobs_of(place, run)[0]
    assert lead.message == "waiting for quota: it needs 4 jobs, and project main may have 3 at once"
    place.save(place.again(quota).with_(limits=Limits(jobs=4)))
    reconcile(place, f"run/{run.id}")
    assert {job.status for job in jobs_of(place, run)} == {JobStatus.provisioning}


def test_users_have_limits_of_their_own(place: Engine) -> None:
    place.hosts(4)
    jobs = [place.run(name) for name in "abc"]
    bob = place.run("d")
    run = place.again(b.run("d"))
    place.save(run.with_(user_id="v", user_name="bob"))
    limit(place, {"u": Limits(jobs=2)})
    reconcile(place)
    assert placed(place, *jobs) == 2
    assert placed(place, bob) == 1
    (message,) = {each.message for each in map(place.again, jobs) if each.assignment is None}
    assert message == "waiting for quota: 2 of 2 jobs of ann in project main are running"


# --- money -----------------------------------------------------------------------------------------------------------


def ended(place: Engine, name: str, price: float, since: int, until: int) -> None:
    """A run that was there for so long, with the event of its end, which shares its record with the run's own."""
    job = ran(name, price, since, until).with_(status=JobStatus.done, due_at=None)
    event = Event(
        id=name,
        project_id=PROJECT,
        at=until,
        type=EventType.status,
        targets=(Target(type="job", id=job.id, name=job.name),),
        run_id=job.run_id,
        trade=Trade.of("returned", b.offer(price=price)),
    )
    run = b.run(name, status=RunStatus.done, finished_at=until)
    beside = event.with_(id=f"{name}-run", targets=(Target(type="run", id=run.id, name=name),), trade=None)
    place.save(run, job)
    (record,) = grouped(nouns.put(each).record for each in (beside, event))
    place.store.commit([Put(record, expect=0)])


def spent(place: Engine) -> float:
    read = Reader(place.store)
    quota = quota_of(read, PROJECT)
    assert quota is not None
    return usage_of(read, quota, read.fleet_views(PROJECT), place.at).all.money


def test_the_day_s_money_counts_what_has_ended_and_is_settled_with_the_next_placement(place: Engine) -> None:
    place.at = day_of(place.at) + DAY + 12 * HOUR
    place.hosts(2)
    limit(place, money=10)
    ended(place, "yesterday", 100.0, place.at - 20 * HOUR, place.at - 13 * HOUR)
    ended(place, "early", 2.0, place.at - 14 * HOUR, place.at - 11 * HOUR)  # an hour of it today
    ended(place, "now", 1.0, place.at - HOUR, place.at - LATE // 2)
    assert spent(place) == pytest.approx(3.0, abs=0.02)
    job = place.run("a")
    reconcile(place)
    assert placed(place, job) == 1
    quota = place.again(Quota(id=PROJECT, project_name=""))
    assert quota.spent == {"u": 2.0}
    assert spent(place) == pytest.approx(3.0, abs=0.02)
    place.at += HOUR
    assert spent(place) == pytest.approx(3.0, abs=0.02)


def test_once_the_money_is_spent_nothing_starts_until_the_next_day(place: Engine) -> None:
    place.at = day_of(place.at) + DAY + 23 * HOUR
    place.hosts(1)
    limit(place, money=5)
    ended(place, "dear", 5.0, place.at - 2 * HOUR, place.at - HOUR)
    job = place.run("a")
    reconcile(place)
    message = "waiting for quota: the $5 a day of project main are spent; the next day begins at 00:00 UTC"
    assert place.again(job).message == message
    place.at += HOUR + MINUTE
    place.reconciler().run()
    assert placed(place, job) == 1
