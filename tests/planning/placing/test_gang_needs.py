"""Tasks on several nodes: which hosts they get, who goes first, what is held back, and what each node learns."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.gangs import Gang, GangStatus, gang_id
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import SECOND
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.machines.gang import TO_SEAL
from chalicelib.planning.jobs.jobs import agent_task, job_specs
from chalicelib.planning.jobs.nodes import Nodes
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.placing.clusters import share_out
from chalicelib.planning.placing.gang_placement import CHUNK, HOLD_AFTER
from chalicelib.planning.placing.queue import decide_queue
from chalicelib.planning.placing.snapshot import QueueSnapshot
from tests.world import nouns as b
from tests.world.nouns import lint

CLUSTER, LOOSE = b.fleet("cluster"), b.fleet("loose")


def nodes(name: str = "train", count: int = 2, *, age: int = 0, **config: Any) -> list[QueuedJob]:
    given = config if "groups" in config else {"nodes": count, **config}
    spec = b.run_spec(run_name=name, **{"commands": [] if "groups" in config else ["true"], **given})
    run = b.run(name, submitted_at=b.NOW - age)
    return [QueuedJob(b.job(run, node=each.job_num), run, each, spec) for each in job_specs(spec, images=b.Images())]


def hosts(count: int, of: Fleet = CLUSTER, **fields: Any) -> list[Instance]:
    return [b.host(n, of, internal_ip=f"10.0.0.{n + 1}", **fields) for n in range(count)]


def cluster(*machines: Instance) -> FleetView:
    addresses = {"hosts": [f"h{n}" for n in range(max(1, len(machines)))], "network": "10.0.0.0/8"}
    return b.view(CLUSTER, *machines, placement="cluster", ssh_config=addresses)


def decide(*items: QueuedJob, fleets: tuple[FleetView, ...], now: int = b.NOW, **fields: Any) -> Plan:
    waiting = b.waiting(*items, fleets=fleets, now=now)
    snapshot = QueueSnapshot(now, b.PROJECT, items, fleets, waiting.offers, b.FACTS, **fields)
    plan = decide_queue(snapshot)
    assert lint(snapshot, plan) == []
    return plan


def taken(plan: Plan) -> dict[str, list[str]]:
    """Machines by run, in the state that the plan leaves them."""
    last = {noun.name: noun for step in plan.steps for noun in step.saves if isinstance(noun, Instance)}
    found: dict[str, list[str]] = {}
    for name, instance in last.items():
        for claim in instance.claims:
            found.setdefault(claim.run_id, []).append(name)
    return found


def messages(plan: Plan) -> dict[str, str]:
    return {noun.run_name: noun.message for step in plan.steps for noun in step.saves if isinstance(noun, Job)}


def begun(unit: list[QueuedJob], *machines: Instance) -> tuple[Gang, list[Instance]]:
    """A gang that isn't sealed, and its machines with its claims."""
    lead = unit[0].job
    gang = Gang(
        id=gang_id(lead),
        run_id=lead.run_id,
        run_name=lead.run_name,
        project_id=lead.project_id,
        nodes=len(unit),
        places=tuple(each.id for each in machines),
        began_at=b.NOW,
        last_processed_at=b.NOW,
        until=b.NOW + TO_SEAL,
        due_at=b.NOW + TO_SEAL,
    )
    claimed = [b.holding(each, item.job) for each, item in zip(machines, unit, strict=False)]
    return gang, claimed


# --- which machines --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("needed", "fitting", "given"),
    [
        ([2], [0b111], [0b011]),
        ([3], [0b011], None),
        ([1, 1], [0b11, 0b01], [0b10, 0b01]),  # the first gives way to one that has no choice
        ([1, 1, 1], [0b011, 0b110, 0b001], [0b010, 0b100, 0b001]),
        ([1, 2], [0b11, 0b11], None),
        ([0], [0], [0]),
        ([1] * 40, [(1 << 39) - 1] * 40, None),  # no way is tried twice, or this would take for ever
    ],
)
def test_machines_are_shared_out_if_there_is_any_way(needed: Any, fitting: Any, given: Any) -> None:
    assert share_out(needed, fitting) == given


def test_several_nodes_run_in_a_cluster_only_and_it_says_so() -> None:
    loose = b.view(LOOSE, *hosts(3, LOOSE))
    plan = decide(*nodes(), fleets=(loose,))
    (job,) = [noun for step in plan.steps for noun in step.saves if isinstance(noun, Job)]
    assert (job.status, job.job_num) == (JobStatus.failed, 0)
    assert "no fleet is a cluster (there are `loose`)" in job.message and "placement: cluster" in job.message


@pytest.mark.parametrize("cheap", [0, 1])
def test_of_clusters_with_enough_free_machines_the_cheapest_is_taken(cheap: int) -> None:
    fleets = [CLUSTER, b.fleet("other")]
    offers = [b.offer(price=1.0 if at == cheap else 2.0) for at in range(2)]
    there = [[b.machine(n, fleets[at], offer=offers[at]) for n in range(2)] for at in range(2)]
    views = tuple(
        b.view(fleet, *each, placement="cluster", nodes="0..2") for fleet, each in zip(fleets, there, strict=True)
    )
    plan = decide(*nodes(), fleets=views)
    assert [sorted(names) for names in taken(plan).values()] == [[each.name for each in there[cheap]]]


@pytest.mark.parametrize("dear", ["eu", "us"])
def test_a_cluster_is_begun_where_machines_cost_least(dear: str) -> None:
    offers = tuple(b.offer(price=9.0 if region == dear else 1.0, region=region) for region in ("eu", "us"))
    views = tuple(
        b.view(b.fleet(region), placement="cluster", nodes="0..2", regions=[region]) for region in ("eu", "us")
    )
    facts = {"aws": BackendFacts(name="aws", multinode=True)}
    unit = nodes()
    found = b.waiting(*unit, fleets=views, offers=offers)
    plan = decide_queue(QueueSnapshot(b.NOW, b.PROJECT, tuple(unit), views, found.offers, facts))
    bought = [noun for step in plan.steps for noun in step.saves if isinstance(noun, Instance)]
    assert [each.offer.price for each in bought] == [1.0]


def test_a_cluster_is_begun_though_another_waits_for_its_first_machine() -> None:
    first, second = b.fleet("first"), b.fleet("second")
    coming = b.machine(0, first, status=InstanceStatus.pending, started_at=None, idle_since=None)
    views = tuple(
        b.view(of, *there, placement="cluster", nodes="0..2") for of, there in ((first, (coming,)), (second, ()))
    )
    unit = nodes()
    found = b.waiting(*unit, fleets=views, offers=(b.offer(),))
    facts = {"aws": BackendFacts(name="aws", multinode=True)}
    plan = decide_queue(QueueSnapshot(b.NOW, b.PROJECT, tuple(unit), views, found.offers, facts))
    bought = [noun for step in plan.steps for noun in step.saves if isinstance(noun, Instance)]
    assert [each.fleet_id for each in bought] == [second.id]


def test_a_cluster_is_begun_where_there_are_machines_for_every_group() -> None:
    """The cheaper region has none for the second group: its first machine would be bought in vain."""
    small, large = b.resources(cpus=4, gb=16), b.resources(cpus=32, gb=64)
    offers = (
        b.offer("small", 1.0, region="eu", has=small),
        b.offer("small", 2.0, region="us", has=small),
        b.offer("large", 9.0, region="us", has=large),
    )
    sizes = [{"cpu": "1..", "memory": "1GB.."}, {"cpu": "16..", "memory": "1GB.."}]
    unit = nodes(groups=[{"commands": ["a"], "resources": size} for size in sizes])
    views = (b.view(b.fleet("cloud"), placement="cluster", nodes="0..2"),)
    found = b.waiting(*unit, fleets=views, offers=offers)
    facts = {"aws": BackendFacts(name="aws", multinode=True)}
    plan = decide_queue(QueueSnapshot(b.NOW, b.PROJECT, tuple(unit), views, found.offers, facts))
    bought = [noun for step in plan.steps for noun in step.saves if isinstance(noun, Instance)]
    assert [each.offer.region for each in bought] == ["us"]


def test_the_one_fleet_that_a_run_names_isnt_a_cluster() -> None:
    loose = b.view(LOOSE, *hosts(3, LOOSE))
    plan = decide(*nodes(fleets=["loose"]), fleets=(cluster(*hosts(2)), loose))
    assert "fleet `loose` isn't a cluster, and the run has several nodes" in messages(plan)["train"]


def test_a_cluster_that_a_run_excludes_isnt_its_reason() -> None:
    small = b.view(LOOSE, placement="cluster", nodes="0..1")
    plan = decide(*nodes(fleets=["cluster"]), fleets=(b.view(CLUSTER, placement="cluster", nodes="0..2"), small))
    assert "`cluster`" in messages(plan)["train"] and "`loose`" not in messages(plan)["train"]


def test_a_cluster_full_of_machines_that_dont_fit_says_so() -> None:
    fleet = b.view(CLUSTER, b.machine(0, CLUSTER), b.machine(1, CLUSTER), placement="cluster", nodes="0..3")
    plan = decide(*nodes(resources={"gpu": "H100:8"}), fleets=(fleet,))
    text = "cluster `cluster` has room for 1 more, and 0 of its machines fit: too few for 2 nodes"
    assert text in messages(plan)["train"]


def test_a_cluster_that_is_too_small_says_how_many_fit() -> None:
    plan = decide(*nodes(count=3), fleets=(cluster(*hosts(2)),))
    assert "is too small for 3 nodes: 2 hosts fit (add hosts to it" in messages(plan)["train"]


def test_hosts_that_the_run_does_not_name_are_the_reason() -> None:
    plan = decide(*nodes(count=3, instances=["cluster-0", "cluster-1"]), fleets=(cluster(*hosts(3)),))
    reason = (
        "cluster `cluster` has 3 machines that fit, but `instances` allows 2 of them: too few for 3 nodes (name more"
    )
    assert reason in messages(plan)["train"]


@pytest.mark.parametrize("most", ["0..3", "0.."])
def test_machines_that_the_run_does_not_name_are_the_reason(most: str) -> None:
    there = [b.machine(number, CLUSTER) for number in range(3)]
    fleet = b.view(CLUSTER, *there, placement="cluster", nodes=most)
    plan = decide(*nodes(count=3, instances=["cluster-0"]), fleets=(fleet,))
    reason = (
        "has 3 machines that fit, but `instances` allows 1 of them: too few for 3 nodes (name more of them, or leave"
    )
    assert reason in messages(plan)["train"]
    fleet = b.view(CLUSTER, *there[:2], placement="cluster", nodes=most)
    plan = decide(*nodes(count=3, instances=["cluster-0", "cluster-1"]), fleets=(fleet,))
    reason = (
        "gets no new machine for a run that names `instances`, and 2 of its machines fit: too few for 3 nodes (leave"
    )
    assert reason in messages(plan)["train"]


@pytest.mark.parametrize("most", ["0..3", "0.."])
def test_a_run_that_wants_no_new_machine_is_told_so(most: str) -> None:
    fleet = b.view(CLUSTER, b.machine(0, CLUSTER), placement="cluster", nodes=most)
    plan = decide(*nodes(count=3, creation_policy="reuse"), fleets=(fleet,))
    reason = (
        "gets no new machine for a run with `creation_policy: reuse`, and 1 of its machines fits: too few for 3 nodes"
    )
    assert reason in messages(plan)["train"] and "(set `creation_policy: reuse-or-create`)" in messages(plan)["train"]


def test_machines_that_cost_too_much_are_told_by_their_price() -> None:
    there = [b.machine(number, CLUSTER, offer=b.offer(price=1.0 + number)) for number in range(3)]
    fleet = b.view(CLUSTER, *there, placement="cluster", nodes="0..3")
    plan = decide(*nodes(count=3, max_price=2.0), fleets=(fleet,))
    reason = "has 3 machines that fit, but `max_price` allows 2 of them: too few for 3 nodes (raise `max_price`)"
    assert reason in messages(plan)["train"]


def test_a_node_takes_a_whole_host_though_less_would_do() -> None:
    cut = hosts(3, total_blocks=2)
    used = b.holding(cut[0], b.job(b.run("other")), 0)
    plan = decide(*nodes(resources={"cpu": "1..", "memory": "1GB.."}), fleets=(cluster(used, *cut[1:]),))
    claims = {
        noun.name: noun.claims[0].blocks for step in plan.steps for noun in step.saves if isinstance(noun, Instance)
    }
    assert claims == {"cluster-1": (0, 1), "cluster-2": (0, 1)}


def test_groups_get_hosts_that_fit_each_whatever_their_order() -> None:
    big = b.host(0, CLUSTER, has=b.resources(cpus=32, gb=64), internal_ip="10.0.0.1")
    small = b.host(1, CLUSTER, has=b.resources(cpus=4, gb=16), internal_ip="10.0.0.2")
    any_host, large = {"cpu": "1..", "memory": "1GB.."}, {"cpu": "16..", "memory": "1GB.."}
    groups = [{"commands": ["a"], "resources": any_host}, {"commands": ["b"], "resources": large}]
    plan = decide(*nodes(groups=groups), fleets=(cluster(big, small),))
    (gang,) = [noun for step in plan.steps for noun in step.saves if isinstance(noun, Gang)]
    assert gang.places == (small.id, big.id) and gang.status is GangStatus.sealed


def test_nothing_is_placed_until_all_jobs_of_the_attempt_are_written() -> None:
    plan = decide(*nodes(count=3)[:2], fleets=(cluster(*hosts(3)),))
    assert taken(plan) == {}
    assert messages(plan) == {"train": "waiting for its other jobs to be submitted"}


# --- under pressure --------------------------------------------------------------------------------------------------


def test_of_two_that_need_five_of_eight_hosts_one_gets_all_and_the_other_none() -> None:
    first, second = nodes("first", 5), nodes("second", 5)
    plan = decide(*first, *second, fleets=(cluster(*hosts(8)),))
    assert {run: len(where) for run, where in taken(plan).items()} == {first[0].run.id: 5}
    assert messages(plan)["second"] == "waiting for 5 whole hosts in cluster `cluster` at once (3 free now)"


def test_a_gang_that_is_not_sealed_gives_way_to_one_further_ahead() -> None:
    first, second, there = nodes("first", 5), nodes("second", 5), hosts(8)
    gang, claimed = begun(second, *there[:4])
    plan = decide(
        *first, *second, fleets=(cluster(*claimed, *there[4:]),), gangs={second[0].job.id: gang}, now=b.NOW + SECOND
    )
    gangs = {noun.run_name: noun for step in plan.steps for noun in step.saves if isinstance(noun, Gang)}
    assert (gangs["first"].status, gangs["second"].status) == (GangStatus.sealed, GangStatus.undone)
    assert len(taken(plan)[first[0].run.id]) == 5
    assert gangs["second"].message == "gave way to first"
    assert any(f"run/{second[0].run.id}" in step.wake for step in plan.steps)


def test_a_gang_that_is_not_sealed_keeps_its_places_from_one_behind_it() -> None:
    first, second, there = nodes("first", 5), nodes("second", 5), hosts(8)
    gang, claimed = begun(first, *there[:4])
    plan = decide(
        *first, *second, fleets=(cluster(*claimed, *there[4:]),), gangs={first[0].job.id: gang}, now=b.NOW + SECOND
    )
    gangs = {noun.run_name: noun for step in plan.steps for noun in step.saves if isinstance(noun, Gang)}
    assert gangs["first"].status is GangStatus.sealed and gangs["first"].places[:4] == gang.places
    assert "second" not in gangs


def test_many_places_are_reserved_in_several_commits_and_the_last_seals_them() -> None:
    count = 2 * CHUNK + 5
    unit, there = nodes("first", count), hosts(count)
    gang, claimed = begun(unit, *there[:2])
    plan = decide(*unit, fleets=(cluster(*claimed, *there[2:]),), gangs={unit[0].job.id: gang}, now=b.NOW + SECOND)
    gangs = [noun for step in plan.steps for noun in step.saves if isinstance(noun, Gang)]
    assert [(len(each.places), each.status, each.id) for each in gangs] == [
        (2 + CHUNK, GangStatus.gathering, gang.id),
        (2 + 2 * CHUNK, GangStatus.gathering, gang.id),
        (count, GangStatus.sealed, gang.id),
    ]
    assert gangs[-1].places == tuple(each.id for each in there) and len(gangs) == len(plan.steps)


def test_one_that_ran_out_of_time_isnt_sealed_any_more() -> None:
    unit, there = nodes("first", 3), hosts(3)
    gang, claimed = begun(unit, *there[:2])
    plan = decide(*unit, fleets=(cluster(*claimed, *there[2:]),), gangs={unit[0].job.id: gang}, now=b.NOW + TO_SEAL)
    assert taken(plan) == {}
    assert messages(plan) == {"first": "waiting for its earlier places to be given back"}


@pytest.mark.parametrize(("age", "placed"), [(0, {"small"}), (HOLD_AFTER, set())])
def test_small_jobs_pass_a_gang_only_until_it_has_waited_long_enough(age: int, placed: set[str]) -> None:
    there = hosts(4)
    busy = b.holding(there[0], b.job(b.run("other")))
    unit, small = nodes("gang", 4, age=age), b.queued("small")
    plan = decide(*unit, small, fleets=(cluster(busy, *there[1:]),))
    jobs = [noun for step in plan.steps for noun in step.saves if isinstance(noun, Job)]
    assert {job.run_name for job in jobs if job.assignment} == placed
    if not placed:
        assert messages(plan)["gang"].endswith("at once (3 free now), held back for it")
        held = "machines are held back for run `gang`, which waits for 4 whole hosts"
        assert messages(plan)["small"] == f"waiting for free capacity in fleet `cluster`; {held}"


@pytest.mark.parametrize(
    ("most", "count", "held"),
    [(4, 4, True), (3, 4, False), (4, 3, False)],
    ids=["may grow", "never enough", "enough now"],
)
def test_machines_are_held_back_for_a_gang_whose_cluster_has_yet_to_grow(most: int, count: int, held: bool) -> None:
    busy, free = b.holding(b.machine(0, CLUSTER), b.job(b.run("other"))), b.machine(1, CLUSTER)
    fleet = b.view(CLUSTER, busy, free, placement="cluster", nodes=f"0..{most}")
    unit = tuple(nodes("gang", count, age=HOLD_AFTER))
    plan = decide(b.queued("small"), fleets=(fleet,), ahead=unit)
    assert taken(plan) == ({} if held else {b.run("small").id: ["cluster-1"]})


def test_what_is_held_back_stays_so_on_the_next_page() -> None:
    there = hosts(4)
    busy = b.holding(there[0], b.job(b.run("other")))
    unit = tuple(nodes("gang", 4, age=HOLD_AFTER))
    plan = decide(b.queued("small"), fleets=(cluster(busy, *there[1:]),), ahead=unit)
    assert not [noun for step in plan.steps for noun in step.saves if isinstance(noun, Job) and noun.assignment]


# --- what each node learns -------------------------------------------------------------------------------------------


def test_every_node_learns_of_all() -> None:
    groups = [{"commands": ["a"]}, {"commands": ["ping ${{ groups[0].nodes[0].IP_ADDRESS }}"], "nodes": 2}]
    unit = nodes(groups=groups)
    gang = Gang(
        id="g",
        run_id="r",
        run_name="train",
        project_id="p",
        nodes=3,
        addresses=("10.0.0.1", "10.0.0.2", "10.0.0.3"),
        gpus=(0, 8, 8),
        began_at=0,
        last_processed_at=0,
    )
    every = Nodes.of(gang, [item.spec for item in unit])
    task = agent_task(unit[2].job, unit[2].spec, hosts(3)[2], "main", every)
    variables = {
        name: task["env"][f"DSTACK_{name}"] for name in ("NODES_NUM", "NODE_RANK", "GPUS_PER_NODE", "GPUS_NUM")
    }
    assert variables == {"NODES_NUM": "3", "NODE_RANK": "2", "GPUS_PER_NODE": "8", "GPUS_NUM": "16"}
    assert task["env"]["DSTACK_NODES_IPS"].split("\n") == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert task["env"]["DSTACK_MASTER_NODE_IP"] == "10.0.0.1"
    assert task["hostfile"] == "10.0.0.1\n10.0.0.2 slots=8\n10.0.0.3 slots=8\n"
    assert task["commands"][-1] == "ping 10.0.0.1"
    assert every.filled("${{ groups[1].nodes[1].IP_ADDRESS }}") == "10.0.0.3"
    assert every.filled("${{groups[1].nodes[2].IP_ADDRESS}}") == "${{groups[1].nodes[2].IP_ADDRESS}}"


def test_a_run_has_a_job_for_each_node_and_ranks_run_through_its_groups() -> None:
    groups = [{"name": "head", "commands": ["a"]}, {"commands": ["b"], "nodes": 2, "resources": {"gpu": 1}}]
    found = [item.spec for item in nodes(groups=groups)]
    assert [spec.job_name for spec in found] == ["train-0-0", "train-1-0", "train-2-0"]
    assert [(s.node_group_index, s.node_group_name, s.node_group_job_index) for s in found] == [
        (0, "head", 0),
        (1, "1", 0),
        (1, "1", 1),
    ]
    assert {spec.jobs_per_replica for spec in found} == {3}
    assert all(spec.requirements.multinode for spec in found)
    assert [spec.commands[-1] for spec in found] == ["a", "b", "b"]
