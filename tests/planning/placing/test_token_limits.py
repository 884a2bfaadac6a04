"""Dollars a day of access tokens: what counts toward them, who waits, and what is committed with a place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chalicelib.domain import keys
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import DAY, HOUR
from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.spending import MOST_JOBS, DailyLimit, Spending, address_of, key_at
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.placing.queue import decide_queue
from chalicelib.planning.placing.quotas import Amounts, QuotaUsage, TokenUsage, spent, token_lines, token_refusal
from chalicelib.planning.placing.snapshot import QueueSnapshot
from tests.planning.placing.test_quotas import NOON, cluster, machines, nodes, outcome, queued, quota, ran
from tests.world import nouns as b
from tests.world.nouns import lint

CI = DailyLimit(id="t1", token="ci", dollars=5.0)
OTHER = DailyLimit(id="t2", token="night", dollars=1.0)
ONE_JOB = Amounts(jobs=1)


def limited(item: QueuedJob, limit: DailyLimit = CI) -> QueuedJob:
    return replace(item, run=item.run.with_(limit=limit))


def used(limit: DailyLimit, money: float, *jobs: str) -> dict[str, TokenUsage]:
    return {limit.id: TokenUsage(Spending(id=limit.id, jobs=jobs, version=2), money)}


def snapshot(
    *items: QueuedJob, fleets: tuple[FleetView, ...], tokens: dict[str, TokenUsage], usage: QuotaUsage | None = None
) -> QueueSnapshot:
    waiting = b.waiting(*items, fleets=fleets)
    return QueueSnapshot(b.NOW, b.PROJECT, items, fleets, waiting.offers, b.FACTS, usage=usage, tokens=tokens)


# --- counting --------------------------------------------------------------------------------------------------------


def test_the_day_is_charged_with_what_the_listed_jobs_cost_on_it() -> None:
    live = ran("live", 2.0, NOON - 20 * HOUR)
    gone = ran("gone", 1.0, NOON - HOUR, NOON).with_(status=JobStatus.done)
    unplaced = b.job(b.run("unplaced"))
    jobs = [live, gone, unplaced]
    record = Spending(id="t1", spent=0.5, counted_to=NOON - HOUR, jobs=tuple(map(address_of, jobs)))
    usage = spent(record, jobs, NOON)
    assert usage.money == pytest.approx(0.5 + 12 * 2.0 + 1.0)
    assert usage.spending.spent == pytest.approx(1.5) and usage.spending.counted_to == NOON
    assert usage.spending.jobs == (address_of(live), address_of(unplaced)), "what has ended is in the sum"
    again = spent(usage.spending, [live, unplaced], NOON)
    assert again.money == pytest.approx(usage.money)


def test_the_next_day_begins_with_what_still_runs() -> None:
    record = Spending(id="t1", spent=4.0, counted_to=NOON)
    assert record.on(NOON + HOUR) == 4.0
    assert spent(record, [ran("live", 2.0, NOON - HOUR)], NOON + 13 * HOUR).money == pytest.approx(2.0)
    assert record.on(NOON + DAY) == 0.0


def test_a_listed_job_is_found_again_by_its_key() -> None:
    job = b.job(b.run("train"), 3, replica=1, node=2)
    assert key_at(address_of(job)) == keys.job(job.run_id, 1, 2, 3) == job.place().key


# --- placing ---------------------------------------------------------------------------------------------------------


def test_what_is_spent_holds_back_the_runs_of_this_token_only() -> None:
    items = (limited(queued("a")), queued("b"), limited(queued("c"), OTHER))
    seen = snapshot(*items, fleets=(machines(2),), tokens={**used(CI, 5.0), **used(OTHER, 0.99)})
    plan = decide_queue(seen)
    assert lint(seen, plan) == []
    assert outcome(plan) == {
        "a": "waiting for quota: the access token ci has spent its $5.00 of today; more from 00:00 UTC",
        "b": "placed",
        "c": "placed",
    }


def test_a_job_with_a_place_is_listed_beside_those_before_it() -> None:
    items = (limited(queued("a")), limited(queued("b")), queued("c"))
    seen = snapshot(*items, fleets=(machines(1),), tokens=used(CI, 1.0, "earlier/0/0/0"))
    plan = decide_queue(seen)
    assert lint(seen, plan) == []
    records = [[noun for noun in step.saves if isinstance(noun, Spending)] for step in plan.steps]
    listed = [record.jobs for found in records for record in found]
    assert listed == [
        ("earlier/0/0/0", address_of(items[0].job)),
        ("earlier/0/0/0", address_of(items[0].job), address_of(items[1].job)),
    ]
    assert records[2] == [], "a run without a limit writes no such record"


def test_all_nodes_are_listed_in_each_commit_that_places_some() -> None:
    items = tuple(limited(item) for item in nodes(65))
    seen = snapshot(*items, fleets=(cluster(65),), tokens=used(CI, 0.0))
    plan = decide_queue(seen)
    assert lint(seen, plan) == []
    found = [noun for step in plan.steps for noun in step.saves if isinstance(noun, Spending)]
    assert [len(each.jobs) for each in found] == [65] * 3
    held = decide_queue(snapshot(*items, fleets=(cluster(65),), tokens=used(CI, 6.0)))
    assert outcome(held)["train"].startswith("waiting for quota: the access token ci has spent its $5.00")


def test_the_projects_quota_holds_beside_the_limit() -> None:
    full = QuotaUsage(quota(jobs=1), {"u": ONE_JOB})
    plan = decide_queue(snapshot(limited(queued("a")), fleets=(machines(1),), tokens=used(CI, 0.0), usage=full))
    assert outcome(plan) == {"a": "waiting for quota: 1 of 1 job of project main is running"}


@pytest.mark.parametrize(
    ("of_run", "of_fleet", "under_limit", "without"),
    [
        ("off", None, 300, None),
        ("10h", None, 300, 36_000),
        ("1m", None, 60, 60),
        (None, None, 300, 300),
        ("10h", "2h", 7_200, 7_200),
        ("off", "2h", 7_200, 7_200),
        ("10h", "off", 36_000, 36_000),
    ],
)
def test_a_run_under_a_limit_cant_make_its_machine_idle_for_longer(
    of_run: str | None, of_fleet: str | None, under_limit: int, without: int | None
) -> None:
    item = b.queued("train", b.run_spec(run_name="train", **({"idle_duration": of_run} if of_run else {})))
    pool = b.view(b.fleet("pool"), nodes="0..2", **({"idle_duration": of_fleet} if of_fleet else {}))
    found = []
    for each in (limited(item), item):
        seen = replace(b.waiting(each, fleets=(pool,), offers=(b.offer(),)), tokens=used(CI, 0.0))
        plan = decide_queue(seen)
        assert lint(seen, plan) == []
        found += [noun.idle_seconds for step in plan.steps for noun in step.saves if isinstance(noun, Instance)]
    assert found == [under_limit, without]


def test_no_more_jobs_are_listed_than_a_record_holds() -> None:
    full = TokenUsage(Spending(id="t1", jobs=tuple(f"run/{n}/0/0" for n in range(MOST_JOBS))), 0.0)
    assert token_refusal(CI, full, ONE_JOB) == "for quota: the access token ci may have at most 5000 jobs at once"


def test_a_plan_shows_what_is_left_or_that_the_run_will_wait() -> None:
    (usage,) = used(CI, 1.257).values()
    assert token_lines(CI, usage) == ["the access token ci has spent $1.26 of its $5.00 today"]
    (usage,) = used(CI, 5.5).values()
    spent_, wait = token_lines(CI, usage)
    assert spent_ == "the access token ci has spent $5.50 of its $5.00 today"
    assert wait.startswith("the run will wait for quota: the access token ci has spent its $5.00 of today")


# --- the rule --------------------------------------------------------------------------------------------------------


def test_a_plan_that_forgets_or_exceeds_the_limit_is_refused() -> None:
    items, fleets = (queued("a"), queued("b")), (machines(1),)
    free = decide_queue(snapshot(*items, fleets=fleets, tokens={}))
    bound = tuple(map(limited, items))
    broken = lint(snapshot(*bound, fleets=fleets, tokens=used(CI, 0.0)), free)
    assert sum("without being listed under its token's limit" in each for each in broken) == 2
    within = decide_queue(snapshot(*bound, fleets=fleets, tokens=used(CI, 4.0)))
    broken = lint(snapshot(*bound, fleets=fleets, tokens=used(CI, 5.0)), within)
    assert sum("but the dollars of the token ci are spent" in each for each in broken) == 2
