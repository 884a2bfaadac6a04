"""Who goes where, who waits and for what, and who may stop hoping."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.jobs import Attempt, Job, JobStatus
from chalicelib.domain.offers import Availability
from chalicelib.domain.reasons import JobReason
from chalicelib.planning.kernel import purchases
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.placing.options import CHECK_OFFERS_EVERY, OFFERS_DUE_WITHIN
from chalicelib.planning.placing.plan_offers import plan_offers
from chalicelib.planning.placing.queue import decide_queue
from chalicelib.planning.placing.snapshot import QueueSnapshot
from tests.world import nouns as b
from tests.world.nouns import lint

CLOUD = b.fleet("cloud")
LOCAL = b.fleet("local")


def decide(snapshot: QueueSnapshot) -> Plan:
    plan = decide_queue(snapshot)
    assert lint(snapshot, plan) == []
    return plan


def jobs_of(plan: Plan) -> dict[str, Job]:
    return {noun.run_name: noun for step in plan.steps for noun in step.saves if isinstance(noun, Job)}


def instances_of(plan: Plan) -> dict[str, Instance]:
    return {noun.name: noun for step in plan.steps for noun in step.saves if isinstance(noun, Instance)}


def placed(plan: Plan) -> dict[str, str]:
    return {name: job.assignment.instance_name for name, job in jobs_of(plan).items() if job.assignment}


# --- a place that is there ------------------------------------------------------------------------------------------


def test_a_free_host_is_taken() -> None:
    plan = decide(b.waiting(b.queued("a"), fleets=(b.view(LOCAL, b.host(0, LOCAL)),)))
    (step,) = plan.steps
    job, instance = step.saves
    assert isinstance(job, Job)
    assert isinstance(instance, Instance)
    assert (job.status, instance.status) == (JobStatus.provisioning, InstanceStatus.busy)
    assert instance.claims[0].job_id == job.id
    assert f"run/{job.run_id}" in step.wake


def test_a_share_is_taken_of_a_machine_that_is_large_enough() -> None:
    def cut(num: int, cpus: int) -> Instance:
        has = b.resources(cpus, 4 * cpus)
        return b.host(num, LOCAL, total_blocks=2, offer=b.host(0, has=has).offer.with_(blocks=2, total_blocks=2))

    item = b.queued("a", b.run_spec(resources={"cpu": 8, "memory": "8GB.."}))
    plan = decide(b.waiting(item, fleets=(b.view(LOCAL, cut(0, 4), cut(1, 16)),)))
    assert placed(plan) == {"a": "local-1"}


def test_the_cheapest_place_is_taken_first() -> None:
    dear = b.machine(0, CLOUD, offer=b.offer(price=2.0))
    cheap = b.machine(1, CLOUD, offer=b.offer(price=1.0))
    plan = decide(b.waiting(b.queued("a"), fleets=(b.view(CLOUD, dear, cheap, nodes="0..2"),)))
    assert placed(plan) == {"a": "cloud-1"}


@pytest.mark.parametrize("first", ["cloud", "other"])
def test_the_cheapest_place_is_taken_in_whichever_fleet_it_is(first: str) -> None:
    other = b.fleet("other")
    dear = b.view(CLOUD, b.machine(0, CLOUD, offer=b.offer(price=2.0)), nodes="0..1")
    cheap = b.view(other, b.machine(0, other, offer=b.offer(price=1.0)), nodes="0..1")
    plan = decide(b.waiting(b.queued("a"), fleets=(dear, cheap) if first == "cloud" else (cheap, dear)))
    assert placed(plan) == {"a": "other-0"}


@pytest.mark.parametrize("cpus", [(8, 8), (8, 16)], ids=["alike", "different"])
@pytest.mark.parametrize("tight", [0, 1])
def test_of_places_that_cost_the_same_the_tightest_is_taken(cpus: tuple[int, int], tight: int) -> None:
    hosts = [b.host(n, LOCAL, has=b.resources(cpus=cpus[n], gb=64), total_blocks=4) for n in range(2)]
    hosts[tight] = b.holding(hosts[tight], b.job(b.run("other")), 0, 1)
    item = b.queued("a", b.run_spec(resources={"cpu": "1..", "memory": "1GB.."}))
    assert placed(decide(b.waiting(item, fleets=(b.view(LOCAL, *hosts, blocks=4),)))) == {"a": f"local-{tight}"}


def test_a_free_place_is_preferred_to_a_new_machine() -> None:
    snapshot = b.waiting(
        b.queued("a"), fleets=(b.view(CLOUD, b.machine(0, CLOUD), nodes="0..2"),), offers=(b.offer(price=0.1),)
    )
    assert placed(decide(snapshot)) == {"a": "cloud-0"}


def test_the_order_of_the_queue_is_kept() -> None:
    plan = decide(b.waiting(b.queued("first"), b.queued("second"), fleets=(b.view(LOCAL, b.host(0, LOCAL)),)))
    assert placed(plan) == {"first": "local-0"}


def test_a_job_that_waits_does_not_block_those_behind_it() -> None:
    small, big = b.host(0, LOCAL), b.holding(b.host(1, LOCAL, has=b.resources(cpus=32)), b.job(b.run("other")))
    waits = b.queued("big", b.run_spec(resources={"cpu": "16.."}))
    plan = decide(b.waiting(waits, b.queued("small"), fleets=(b.view(LOCAL, small, big),)))
    assert placed(plan) == {"small": "local-0"}


@pytest.mark.parametrize(
    "state",
    [{"unreachable_since": b.NOW}, {"health": "failure"}, {"status": InstanceStatus.terminating}],
    ids=["unreachable", "unhealthy", "terminating"],
)
def test_a_host_that_is_no_good_is_left_alone(state: dict[str, Any]) -> None:
    plan = decide(b.waiting(b.queued("a"), fleets=(b.view(LOCAL, b.host(0, LOCAL, **state)),)))
    assert placed(plan) == {}


def test_a_host_that_has_not_reported_is_waited_for_not_judged() -> None:
    nothing = b.resources(cpus=0, gb=0)
    silent = b.host(0, LOCAL, has=nothing, status=InstanceStatus.pending, started_at=None, idle_since=None)
    plan = decide(b.waiting(b.queued("a"), fleets=(b.view(LOCAL, silent),)))
    assert jobs_of(plan)["a"].status == "submitted"
    assert "to report its resources" in jobs_of(plan)["a"].message


# --- blocks -----------------------------------------------------------------------------------------------------------


def test_jobs_share_a_host_by_blocks_and_no_block_twice() -> None:
    has = b.resources(cpus=8, gb=32, gpus=4)
    shared = b.host(0, LOCAL, has=has, total_blocks=4)
    gpu = b.run_spec(resources={"gpu": 1, "cpu": "2..", "memory": "1GB.."})
    plan = decide(b.waiting(*(b.queued(f"r{n}", gpu) for n in range(5)), fleets=(b.view(LOCAL, shared, blocks=4),)))
    held = [claim.blocks for claim in instances_of(plan)["local-0"].claims]
    assert held == [(0,), (1,), (2,), (3,)]
    assert "waiting for free capacity" in jobs_of(plan)["r4"].message


def test_a_fleet_that_cuts_machines_asks_of_the_whole_and_the_run_of_a_share() -> None:
    machine = b.offer("eight", 8.0, has=b.resources(cpus=32, gb=128, gpus=8))
    share = b.offer("two", 1.0, has=b.resources(cpus=32, gb=128, gpus=2))  # cheaper, but not what the fleet is made of
    items = [b.queued(f"r{n}", b.run_spec(resources={"gpu": 2})) for n in range(4)]
    cut = b.view(CLOUD, nodes="0..9", blocks=4, resources={"gpu": 8})
    plan = decide(b.waiting(*items, fleets=(cut,), offers=(machine, share)))
    (bought,) = instances_of(plan).values()
    assert bought.offer.instance.name == "eight"
    assert sorted(claim.blocks for claim in bought.claims) == [(0,), (1,), (2,), (3,)]


def test_a_job_gets_the_fewest_blocks_that_fit() -> None:
    shared = b.host(0, LOCAL, has=b.resources(cpus=8, gb=32, gpus=4), total_blocks=4)
    two = b.run_spec(resources={"gpu": 2, "memory": "1GB.."})
    plan = decide(b.waiting(b.queued("a", two), fleets=(b.view(LOCAL, shared, blocks=4),)))
    job = jobs_of(plan)["a"]
    assert job.assignment is not None
    offer = job.assignment.offer
    assert (offer.blocks, offer.total_blocks, len(offer.instance.resources.gpus)) == (2, 4, 2)


def test_jobs_share_a_machine_that_is_on_its_way() -> None:
    offer = b.offer(has=b.resources(cpus=8, gb=32))
    spec = b.run_spec(resources={"cpu": "2..", "memory": "8GB.."})
    items = (b.queued("a", spec), b.queued("b", spec), b.queued("c", spec))
    plan = decide(b.waiting(*items, fleets=(b.view(CLOUD, nodes="0..9", blocks=2),), offers=(offer,)))
    assert placed(plan) == {"a": "cloud-0", "b": "cloud-0", "c": "cloud-1"}
    assert sum(isinstance(effect, purchases.Create) for step in plan.steps for effect in step.effects) == 2


# --- a new machine ---------------------------------------------------------------------------------------------------


def test_a_machine_is_bought_with_everything_in_one_step() -> None:
    plan = decide(b.waiting(b.queued("a"), fleets=(b.view(CLOUD, nodes="0..1"),), offers=(b.offer(),)))
    (step,) = plan.steps
    assert {type(noun).__name__ for noun in step.saves} == {"Job", "Instance", "Fleet"}
    instance = instances_of(plan)["cloud-0"]
    assert step.effects == (purchases.create(instance),)
    assert instance.act_until == b.NOW + b.FACTS["aws"].create_timeout + b.FACTS["aws"].visibility_lag
    assert instance.deadline == b.NOW + b.FACTS["aws"].provisioning_timeout
    assert instance.idle_seconds == 300


def test_a_fleet_never_gets_more_than_its_nodes() -> None:
    items = tuple(b.queued(f"r{n}") for n in range(4))
    plan = decide(b.waiting(*items, fleets=(b.view(CLOUD, nodes="0..2"),), offers=(b.offer(),)))
    assert set(instances_of(plan)) == {"cloud-0", "cloud-1"}
    assert "room in fleet `cloud`" in jobs_of(plan)["r3"].message


def test_an_instance_on_its_way_out_still_counts() -> None:
    leaving = b.machine(0, CLOUD, status=InstanceStatus.terminating)
    plan = decide(b.waiting(b.queued("a"), fleets=(b.view(CLOUD, leaving, nodes="0..1"),), offers=(b.offer(),)))
    assert placed(plan) == {}
    assert jobs_of(plan)["a"].status == JobStatus.submitted


def test_the_machine_whose_share_costs_least_is_taken() -> None:
    full, cut = b.offer("m1", 1.5), b.offer("m4", 4.0, has=b.resources(16, 64), blocks=4, total_blocks=4)
    machines = (b.machine(0, CLOUD, offer=full), b.machine(1, CLOUD, offer=cut, total_blocks=4))
    item = b.queued("a", b.run_spec(resources={"cpu": "2..", "memory": "8GB.."}))
    plan = decide(b.waiting(item, fleets=(b.view(CLOUD, *machines, nodes="0..2", blocks="auto"),)))
    assert placed(plan) == {"a": "cloud-1"}


def test_an_offer_that_failed_is_not_tried_again() -> None:
    first, second = b.offer("m1", 1.0), b.offer("m2", 2.0)
    attempt = Attempt(offer_key=first.key, error="no capacity in eu")
    item = b.queued("a", b.run_spec(), attempts=(attempt,))
    snapshot = b.waiting(item, fleets=(b.view(CLOUD, nodes="0..1"),), offers=(first, second))
    assert instances_of(decide(snapshot))["cloud-0"].offer.instance.name == "m2"


def test_a_machine_on_its_way_is_passed_over_by_the_job_that_its_offer_failed() -> None:
    failed, fine = b.offer("m1", 1.0, total_blocks=2), b.offer("m2", 2.0, total_blocks=2)
    coming = {"status": InstanceStatus.provisioning, "total_blocks": 2}
    machines = [b.machine(n, CLOUD, offer=offer, **coming) for n, offer in enumerate((failed, fine))]
    attempt = Attempt(offer_key=failed.key, error="none left")
    items = b.queued("burnt", b.run_spec(), attempts=(attempt,)), b.queued("fresh", b.run_spec())
    plan = decide(b.waiting(*items, fleets=(b.view(CLOUD, *machines, nodes="0..2", blocks=2),)))
    assert placed(plan) == {"burnt": "cloud-1", "fresh": "cloud-0"}


def test_when_every_offer_failed_there_is_no_capacity_and_it_says_what_failed() -> None:
    attempt = Attempt(offer_key=b.offer().key, error="quota of m1 is 0 in eu")
    item = b.queued("a", b.run_spec(), attempts=(attempt,))
    plan = decide(b.waiting(item, fleets=(b.view(CLOUD, nodes="0..1"),), offers=(b.offer(),)))
    job = jobs_of(plan)["a"]
    assert (job.status, job.reason) == (JobStatus.failed, JobReason.failed_to_start_due_to_no_capacity)
    assert "quota of m1 is 0 in eu" in job.message


@pytest.mark.parametrize(("count", "expected"), [(1, "e0)"), (3, "e0; e1; e2)"), (4, "e0; e1; e2; …)")])
def test_up_to_three_different_failures_are_told(count: int, expected: str) -> None:
    offers = tuple(b.offer(f"m{num}") for num in range(count))
    tried = tuple(Attempt(offer_key=each.key, error=f"e{num}") for num, each in enumerate(offers))
    item = b.queued("a", b.run_spec(), attempts=(*tried, tried[0]))
    plan = decide(b.waiting(item, fleets=(b.view(CLOUD, nodes="0..1"),), offers=offers))
    assert jobs_of(plan)["a"].message.endswith(f"has tried every matching offer ({expected}")


def test_an_offer_that_is_not_available_is_not_bought() -> None:
    gone = b.offer(availability=Availability.no_quota)
    plan = decide(b.waiting(b.queued("a"), fleets=(b.view(CLOUD, nodes="0..1"),), offers=(gone,)))
    assert jobs_of(plan)["a"].reason == JobReason.failed_to_start_due_to_no_capacity


def test_reuse_only_never_buys() -> None:
    item = b.queued("a", b.run_spec(creation_policy="reuse"))
    plan = decide(b.waiting(item, fleets=(b.view(CLOUD, nodes="0..1"),), offers=(b.offer(),)))
    assert instances_of(plan) == {}
    assert "creation_policy: reuse" in jobs_of(plan)["a"].message


# --- what it says ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "messages"),
    [
        ({"resources": {"gpu": 2}}, ["needs 2 GPUs, has none", "remove `gpu`"]),
        ({"resources": {"memory": "64GB.."}}, ["needs 64.. GB of memory, has 16", "memory: 16GB.."]),
        ({"resources": {"cpu": "8.."}}, ["needs 8.. CPUs, has 4", "cpu: 4"]),
        ({"backends": ["aws"]}, ["is remote", "widen `backends`"]),
        ({"fleets": ["gpus"]}, ["has no fleet named `gpus`", "one of `local`"]),
        ({"spot_policy": "spot"}, ["is on-demand", "spot_policy"]),
    ],
)
def test_a_job_that_can_never_fit_fails_and_says_what_would_help(config: dict[str, Any], messages: list[str]) -> None:
    plan = decide(b.waiting(b.queued("a", b.run_spec(**config)), fleets=(b.view(LOCAL, b.host(0, LOCAL)),)))
    job = jobs_of(plan)["a"]
    assert (job.status, job.reason) == (JobStatus.failed, JobReason.failed_to_start_due_to_no_capacity)
    for text in messages:
        assert text in job.message


def test_without_fleets_it_says_to_make_one() -> None:
    assert "`type: fleet`" in jobs_of(decide(b.waiting(b.queued("a"))))["a"].message


@pytest.mark.parametrize(
    ("fleet", "config", "message"),
    [
        ({"backends": ["gcp"]}, {"backends": ["aws"]}, "allows only the backends gcp"),
        ({}, {"backends": []}, "can't serve a run that allows no backends"),
        ({"regions": ["eu"]}, {"regions": []}, "can't serve a run that allows no regions"),
        ({"regions": []}, {"regions": ["eu"]}, "allows no regions"),
        ({"regions": []}, {}, "allows no regions"),
        ({"spot_policy": "spot"}, {}, "takes spot instances only"),
        ({"resources": {"cpu": "..2"}}, {"resources": {"cpu": "4.."}}, "ask for different CPU counts"),
        ({"max_price": 0.5}, {}, "costs more than `max_price`, 0.5"),
    ],
)
def test_fleet_and_run_must_agree(fleet: dict[str, Any], config: dict[str, Any], message: str) -> None:
    item = b.queued("a", b.run_spec(**config))
    plan = decide(b.waiting(item, fleets=(b.view(CLOUD, nodes="0..1", **fleet),), offers=(b.offer(),)))
    assert message in jobs_of(plan)["a"].message


def test_a_wait_is_written_once_and_counts_who_is_ahead() -> None:
    full = b.view(LOCAL, b.holding(b.host(0, LOCAL), b.job(b.run("other"))))
    items = (b.queued("a"), b.queued("b"))
    plan = decide(b.waiting(*items, fleets=(full,)))
    assert [note.text for note in plan.notes] == [
        "waiting for free capacity in fleet `local`; 0 ahead of it",
        "waiting for free capacity in fleet `local`; 1 ahead of it",
    ]
    saved = jobs_of(plan)
    again = tuple(item.__class__(saved[item.run.name], item.run, item.spec, item.run_spec) for item in items)
    assert decide(b.waiting(*again, fleets=(full,), now=b.NOW + b.SECOND)).steps == ()


def test_an_unreachable_host_that_would_fit_is_waited_for() -> None:
    plan = decide(b.waiting(b.queued("a"), fleets=(b.view(LOCAL, b.host(0, LOCAL, unreachable_since=b.NOW)),)))
    assert jobs_of(plan)["a"].message == "waiting for local-0 in fleet `local` to report again"


def test_a_run_that_is_ending_is_not_placed() -> None:
    item = b.queued("a")
    ending = item.__class__(item.job, item.run.with_(status="terminating"), item.spec, item.run_spec)
    assert decide(b.waiting(ending, fleets=(b.view(LOCAL, b.host(0, LOCAL)),))).steps == ()


def test_what_only_a_container_gives_is_not_put_on_a_host_without() -> None:
    plain = b.host(0, LOCAL, runtimes=("process",))
    plan = decide(b.waiting(b.queued("a", b.run_spec(image="x")), b.queued("b"), fleets=(b.view(LOCAL, plain),)))
    assert placed(plan) == {"b": "local-0"}
    assert "runs plain processes" in jobs_of(plan)["a"].message


@pytest.mark.parametrize(("isolation", "where"), [("user", {"a": "local-0"}), ("none", {}), ("", {})])
def test_a_job_that_needs_isolation_is_not_put_where_there_is_none(isolation: str, where: dict[str, str]) -> None:
    item = b.queued("a")
    confined = item.__class__(item.job, item.run, item.spec.with_(isolated=True), item.run_spec)
    for blocks in (1, 2):
        plain = b.host(0, LOCAL, runtimes=("process",), isolation=isolation, total_blocks=blocks)
        plan = decide(b.waiting(confined, fleets=(b.view(LOCAL, plain),)))
        assert placed(plan) == where
        assert (
            where or "which only the project's admins may use (install a container engine" in jobs_of(plan)["a"].message
        )
    engine = b.host(0, LOCAL, runtimes=("docker", "process"), isolation="container")
    assert placed(decide(b.waiting(confined, fleets=(b.view(LOCAL, engine),)))) == {"a": "local-0"}


def test_a_job_that_names_a_user_is_put_on_plain_processes_only_with_permission() -> None:
    item, named = b.queued("a"), b.job_spec(b.run_spec(user="ann"))
    for permitted, runtimes in ((False, ("process",)), (True, ("process",)), (False, ("docker", "process"))):
        one = item.__class__(item.job, item.run, named.with_(user_permitted=permitted), item.run_spec)
        for blocks in (1, 2):
            host = b.host(0, LOCAL, runtimes=runtimes, isolation="user", total_blocks=blocks)
            plan = decide(b.waiting(one, fleets=(b.view(LOCAL, host),)))
            there = permitted or "docker" in runtimes
            assert placed(plan) == ({"a": "local-0"} if there else {})
            assert there or "only the project's admins may name the host's users" in jobs_of(plan)["a"].message


def test_the_default_disk_is_not_asked_of_a_host_that_exists() -> None:
    small = b.host(0, LOCAL)
    assert small.offer.instance.resources.disk.size_mib < 100 * 1024
    spec = b.run_spec(resources={"disk": "50GB.."})
    plan = decide(b.waiting(b.queued("a"), b.queued("b", spec), fleets=(b.view(LOCAL, small),)))
    assert placed(plan) == {"a": "local-0"}
    assert "GB of disk" in jobs_of(plan)["b"].message


def test_a_fixed_fleet_whose_machines_never_fit_is_no_reason_to_wait() -> None:
    """They are never given back, so there would never be room for one that does."""
    cloud = b.fleet("cloud")
    small = b.host(0, cloud, status=InstanceStatus.idle)
    offers = (b.offer(has=b.resources(cpus=64, gb=256)),)
    item = b.queued("a", b.run_spec(resources={"cpu": "32.."}))
    plan = decide(b.waiting(item, fleets=(b.view(cloud, small, nodes="1..1"),), offers=offers))
    job = jobs_of(plan)["a"]
    assert job.status == JobStatus.failed and "is full (1 of 1 nodes)" in job.message
    plan = decide(b.waiting(item, fleets=(b.view(cloud, small, nodes="0..1"),), offers=offers))
    job = jobs_of(plan)["a"]
    assert job.status == JobStatus.submitted and "for room in fleet `cloud`" in job.message


# --- before every backend has said what it sells ---------------------------------------------------------------------


def test_a_job_waits_for_the_first_offers_and_looks_soon() -> None:
    plan = decide(b.waiting(b.queued("a"), fleets=(b.view(CLOUD, nodes="0..1"),), awaited=("aws",)))
    job = jobs_of(plan)["a"]
    assert (job.status, job.message) == (JobStatus.submitted, "waiting for the first offers of `aws`")
    assert job.due_at == plan.next_wake == b.NOW + CHECK_OFFERS_EVERY


def test_a_job_does_not_wait_for_them_for_ever() -> None:
    late = b.NOW + OFFERS_DUE_WITHIN
    plan = decide(b.waiting(b.queued("a"), fleets=(b.view(CLOUD, nodes="0..1"),), now=late, awaited=("aws",)))
    assert jobs_of(plan)["a"].reason is JobReason.failed_to_start_due_to_no_capacity
    assert "the first offers of `aws` are awaited (see `dstack backend list`)" in jobs_of(plan)["a"].message


def test_a_plan_says_whether_a_run_would_wait_for_them() -> None:
    item = b.queued("a")
    for config, waits in (({"nodes": "0..1"}, True), ({"nodes": 0}, False)):
        views = (b.view(CLOUD, **config),)
        book = OfferBook(awaited=("aws",))
        *_, notes = plan_offers(item.requirements, views, book, 3)
        assert [note.waits for note in notes] == [waits]


def test_offers_that_fit_are_bought_whoever_else_is_yet_to_be_heard() -> None:
    plan = decide(
        b.waiting(b.queued("a"), fleets=(b.view(CLOUD, nodes="0..1"),), offers=(b.offer(),), awaited=("gcp",))
    )
    assert placed(plan) == {"a": "cloud-0"}


@pytest.mark.parametrize(
    ("config", "fleet"), [({"backends": ["gcp"]}, {"nodes": "0..1"}), ({"creation_policy": "reuse"}, {"nodes": "0..1"})]
)
def test_a_job_that_none_of_them_would_help_is_told_so_at_once(config: dict[str, Any], fleet: dict[str, Any]) -> None:
    item = b.queued("a", b.run_spec(**config))
    plan = decide(b.waiting(item, fleets=(b.view(CLOUD, **fleet),), awaited=("aws",)))
    assert jobs_of(plan)["a"].status is JobStatus.failed
