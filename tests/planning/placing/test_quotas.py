"""Quotas: who gets what is left, who waits, and what they are told."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import DAY, HOUR, MINUTE, Micros, day_of
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Assignment, Job
from chalicelib.domain.quotas import EACH_USER, Limits, Quota
from chalicelib.planning.jobs.jobs import job_specs
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.placing.queue import decide_queue
from chalicelib.planning.placing.quotas import (
    Amounts,
    EndedJob,
    QuotaUsage,
    counted,
    held,
    needed,
    refusal,
    settled,
    usage_lines,
)
from chalicelib.planning.placing.snapshot import QueueSnapshot
from tests.world import nouns as b
from tests.world.nouns import lint

CLUSTER, LOCAL = b.fleet("cluster"), b.fleet("local")
NOON = day_of(b.NOW) + DAY + 12 * HOUR


def quota(users: dict[str, Limits] | None = None, **limits: Any) -> Quota:
    return Quota(id=b.PROJECT, project_name="main", limits=Limits(**limits), users=users or {}, version=3)


def usage(of: Quota, **users: Amounts) -> QuotaUsage:
    return QuotaUsage(of, users)


def queued(name: str, gpus: int = 1) -> QueuedJob:
    return b.queued(name, b.run_spec(run_name=name, resources={"gpu": gpus}))


def machines(count: int, gpus: int = 4) -> FleetView:
    """Each GPU is a block of its own."""
    has = b.resources(8 * gpus, 64 * gpus, gpus)
    offer = b.host(0, LOCAL, has=has).offer.with_(blocks=gpus, total_blocks=gpus)
    return b.view(LOCAL, *(b.host(n, LOCAL, offer=offer, total_blocks=gpus) for n in range(count)))


def decide(*items: QueuedJob, fleets: tuple[FleetView, ...], used: QuotaUsage | None) -> Plan:
    waiting = b.waiting(*items, fleets=fleets)
    snapshot = QueueSnapshot(b.NOW, b.PROJECT, items, fleets, waiting.offers, b.FACTS, usage=used)
    plan = decide_queue(snapshot)
    assert lint(snapshot, plan) == []
    return plan


def outcome(plan: Plan) -> dict[str, str]:
    """The message of each run's job; `placed` if it has a place."""
    jobs = [noun for step in plan.steps for noun in step.saves if isinstance(noun, Job)]
    return {job.run_name: "placed" if job.assignment or job.reserved else job.message for job in jobs}


# --- one after the other ---------------------------------------------------------------------------------------------


def test_who_comes_first_gets_what_is_left_and_the_others_wait() -> None:
    used = usage(quota(gpus=4), ann=Amounts(gpus=1, jobs=1))
    plain = b.view(b.fleet("plain"), b.host(0, b.fleet("plain")))
    plan = decide(
        queued("a", 2), queued("b", 2), queued("c", 1), queued("d", 0), fleets=(machines(3), plain), used=used
    )
    assert outcome(plan) == {
        "a": "placed",
        "b": "waiting for quota: 3 of 4 GPUs of project main are in use, and it needs 2",
        "c": "placed",
        "d": "placed",  # no GPU is asked for, and none is taken
    }


def test_what_waits_for_its_quota_takes_no_place_from_others() -> None:
    one = machines(1, gpus=2)
    used = usage(quota({"u": Limits(gpus=1)}), u=Amounts(gpus=1, jobs=1))
    others = queued("b", 2)
    item = QueuedJob(others.job, others.run.with_(user_id="v", user_name="bob"), others.spec, others.run_spec)
    plan = decide(queued("a", 2), item, fleets=(one,), used=used)
    assert outcome(plan) == {
        "a": "waiting for quota: it needs 2 GPUs, and ann in project main may have 1 at once",
        "b": "placed",
    }


def test_who_has_more_than_a_smaller_quota_allows_breaks_no_rule() -> None:
    used = usage(quota(jobs=1), ann=Amounts(jobs=2))
    (message,) = outcome(decide(queued("a"), fleets=(machines(1),), used=used)).values()
    assert message.startswith("waiting for quota: ")


def test_every_step_that_gives_a_place_away_commits_the_quota() -> None:
    of = quota(gpus=9)
    plan = decide(queued("a"), queued("b"), queued("c"), fleets=(machines(1),), used=usage(of))
    assert [of in step.saves for step in plan.steps] == [True] * 3


def test_a_whole_machine_counts_with_all_its_gpus() -> None:
    view = b.view(LOCAL, b.host(0, LOCAL, has=b.resources(32, 256, 8)))
    plan = decide(_any_gpus("a"), fleets=(view,), used=usage(quota(gpus=7)))
    assert outcome(plan) == {"a": "waiting for quota: it needs 8 GPUs, and project main may have 7 at once"}


def _any_gpus(name: str) -> QueuedJob:
    return b.queued(name, b.run_spec(run_name=name, resources={"gpu": "1..8"}))


def test_a_bought_machine_counts_too() -> None:
    cloud = b.view(b.fleet("cloud"), nodes="0..4")
    offers = (b.offer(has=b.resources(16, 128, 2)),)
    items = (queued("a", 2), queued("b", 2))
    waiting = b.waiting(*items, fleets=(cloud,), offers=offers)
    snapshot = QueueSnapshot(
        b.NOW, b.PROJECT, items, (cloud,), waiting.offers, b.FACTS, usage=usage(quota(gpus=3, jobs=9))
    )
    plan = decide_queue(snapshot)
    assert lint(snapshot, plan) == []
    assert outcome(plan) == {
        "a": "placed",
        "b": "waiting for quota: 2 of 3 GPUs of project main are in use, and it needs 2",
    }
    assert sum(len(step.effects) for step in plan.steps) == 1


def test_what_can_never_fit_ends_as_without_a_quota() -> None:
    plan = decide(queued("a", 64), fleets=(machines(1),), used=usage(quota(gpus=0)))
    assert outcome(plan)["a"].startswith("nowhere to run")


# --- nodes -----------------------------------------------------------------------------------------------------------


def nodes(count: int) -> list[QueuedJob]:
    spec = b.run_spec(run_name="train", nodes=count, resources={"gpu": 8})
    run = b.run("train")
    specs: tuple[JobSpec, ...] = job_specs(spec, images=b.Images())
    return [QueuedJob(b.job(run, node=each.job_num), run, each, spec) for each in specs]


def cluster(count: int) -> FleetView:
    hosts = [b.host(n, CLUSTER, internal_ip=f"10.0.0.{n + 1}", has=b.resources(64, 512, 8)) for n in range(count)]
    addresses = {"hosts": [f"h{n}" for n in range(count)], "network": "10.0.0.0/8"}
    return b.view(CLUSTER, *hosts, placement="cluster", ssh_config=addresses)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"gpus": 31}, "waiting for quota: it needs 32 GPUs, and project main may have 31 at once"),
        ({"jobs": 3}, "waiting for quota: it needs 4 jobs, and project main may have 3 at once"),
        ({"gpus": 32, "jobs": 4}, "placed"),
    ],
)
def test_all_nodes_together_get_their_share_or_none_does(limits: dict[str, Any], message: str) -> None:
    plan = decide(*nodes(4), fleets=(cluster(4),), used=usage(quota(**limits)))
    assert outcome(plan)["train"] == message
    taken = [noun for step in plan.steps for noun in step.saves if isinstance(noun, Instance) and noun.claims]
    assert len(taken) == (4 if message == "placed" else 0)


def test_a_task_on_many_nodes_commits_the_quota_with_every_chunk() -> None:
    of = quota(jobs=70)
    plan = decide(*nodes(65), fleets=(cluster(65),), used=usage(of))
    assert len(plan.steps) == 3
    assert all(of in step.saves for step in plan.steps)


# --- the words -------------------------------------------------------------------------------------------------------

NEED = Amounts(gpus=2, jobs=1)


@pytest.mark.parametrize(
    ("of", "used", "message"),
    [
        (quota(gpus=12), Amounts(gpus=12), "for quota: 12 of 12 GPUs of project main are in use"),
        (quota(gpus=12), Amounts(gpus=10), ""),
        (quota(jobs=1), Amounts(jobs=1), "for quota: 1 of 1 job of project main is running"),
        (quota(jobs=0), Amounts(), "for quota: it needs 1 job, and project main may have 0 at once"),
        (quota(money=50), Amounts(money=49.99), ""),
        (
            quota(money=12.5),
            Amounts(money=12.5),
            "for quota: the $12.5 a day of project main are spent; the next day begins at 00:00 UTC",
        ),
        (
            quota({EACH_USER: Limits(gpus=4)}, gpus=99),
            Amounts(gpus=3),
            "for quota: 3 of 4 GPUs of ann in project main are in use, and it needs 2",
        ),
        (quota({EACH_USER: Limits(gpus=4), "u": Limits(gpus=8)}), Amounts(gpus=3), ""),
        (
            quota({EACH_USER: Limits(gpus=4, jobs=2), "u": Limits(gpus=8)}),
            Amounts(gpus=3, jobs=2),
            "for quota: 2 of 2 jobs of ann in project main are running",
        ),
        (quota({"v": Limits(gpus=0)}), Amounts(gpus=3), ""),
    ],
)
def test_a_refusal_names_the_limit_and_how_much_is_used(of: Quota, used: Amounts, message: str) -> None:
    assert refusal(QuotaUsage(of, {"u": used}), "u", "ann", NEED) == message


def test_a_plan_shows_the_project_and_the_user() -> None:
    of = quota({"u": Limits(jobs=3)}, gpus=12, money=50)
    used = {"u": Amounts(gpus=2, jobs=1, money=1.25), "v": Amounts(gpus=4, jobs=4, money=2)}
    assert usage_lines(QuotaUsage(of, used), "u", "ann") == [
        "project main uses 6 of 12 GPUs, $3.25 of $50 a day",
        "ann in this project uses 1 of 3 jobs",
    ]


# --- money -----------------------------------------------------------------------------------------------------------


def ran(name: str, price: float, since: Micros, until: Micros | None = None) -> Job:
    at = b.host(0, LOCAL)
    where = Assignment(
        instance_id=at.id,
        instance_name=at.name,
        fleet_id=at.fleet_id,
        fleet_name=at.fleet_name,
        offer=b.offer(price=price),
        assigned_at=since,
    )
    return b.job(b.run(name), assignment=where, finished_at=until)


def test_a_day_is_charged_with_what_falls_on_it() -> None:
    midnight = day_of(NOON)
    of = quota(money=100)
    live, late = ran("live", 2.0, midnight - 5 * HOUR), ran("late", 1.0, NOON - HOUR)
    host = b.host(0, LOCAL, total_blocks=2, offer=b.offer().with_(blocks=2, total_blocks=2))
    at = b.holding(b.holding(host, live, 0), late, 1)
    places = held([at], {live.id: live, late.id: late}, {live.run_id: "u", late.run_id: "v"})
    ended = [EndedJob("u", ran("gone", 3.0, midnight - HOUR, midnight + HOUR))]
    used = counted(of, places, ended, NOON)
    assert used.users["u"].money == pytest.approx(12 * 2.0 + 3.0)
    assert used.users["v"].money == pytest.approx(1.0)
    assert (used.all.jobs, used.users["u"].jobs) == (2, 1)


def test_what_has_been_settled_is_kept_for_its_day_only() -> None:
    of = settled(quota(money=100), [EndedJob("u", ran("a", 2.0, NOON - 2 * HOUR, NOON - HOUR))], NOON, NOON - MINUTE)
    of = settled(of, [EndedJob("u", ran("b", 1.0, NOON - HOUR, NOON))], NOON + HOUR, NOON + MINUTE)
    assert of.spent == {"u": 3.0}
    assert counted(of, (), (), NOON + HOUR).all.money == 3.0
    tomorrow = day_of(NOON) + DAY
    assert counted(of, (), (), tomorrow).all.money == 0.0
    assert of.on(tomorrow) == ({}, tomorrow)


def test_no_more_is_looked_for_than_the_project_may_have() -> None:
    assert usage(quota(gpus=1)).room() is None
    assert usage(quota(jobs=5), u=Amounts(jobs=3)).room() == 2
    assert usage(quota(jobs=5), u=Amounts(jobs=9)).room() == 0
    assert usage(quota(jobs=5, money=1), u=Amounts(money=1.0)).room() == 0


# --- the rule --------------------------------------------------------------------------------------------------------


def test_a_plan_that_forgets_or_exceeds_the_quota_is_refused() -> None:
    items, fleets = (queued("a", 2), queued("b", 2)), (machines(1),)
    waiting = b.waiting(*items, fleets=fleets)
    free = decide_queue(QueueSnapshot(b.NOW, b.PROJECT, items, fleets, waiting.offers, b.FACTS))
    under = QueueSnapshot(b.NOW, b.PROJECT, items, fleets, waiting.offers, b.FACTS, usage=usage(quota(gpus=3, jobs=1)))
    broken = lint(under, free)
    assert sum("without committing its project's quota" in each for each in broken) == 2
    assert any("4 GPUs of at most 3" in each for each in broken)
    assert any("2 jobs of at most 1" in each for each in broken)


def test_what_a_gang_needs_before_any_place_is_found_is_its_jobs_alone() -> None:
    assert needed((), 3) == Amounts(0, 3)
