"""Tasks on several nodes over the API: one plan and one job a node, in the shape that was recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import iso
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.reasons import JobReason
from chalicelib.domain.runs import RunBody
from chalicelib.runtime.local_fleet import ensure_fleet
from chalicelib.store import nouns
from tests.api.rig import OFFERS, Rig, fleet, offer, submit, task
from tests.api.test_fleets import create
from tests.world import nouns as b
from tests.world.ports import Books, accounts

GROUPS = [
    {"name": "head", "nodes": 1, "commands": ["echo head"], "resources": {"cpu": "4.."}, "ports": [6379]},
    {"name": "worker", "nodes": 2, "commands": ["ping ${{ groups[0].nodes[0].IP_ADDRESS }}"]},
]
OF_NODE = ("job_num", "job_name", "node_group_index", "node_group_name", "node_group_job_index")


def cluster(rig: Rig, hosts: int, cpus: int = 8) -> list[Instance]:
    """This machine as so many hosts, whose agents have reported."""
    made = []
    for place in ensure_fleet(rig.world.plane, rig.project, "1", hosts):
        host = nouns.find(rig.world.plane.store, Instance, keys.instance(place.instance_id))
        assert host is not None
        unit = host.offer.instance.with_(resources=b.resources(cpus, 64))
        rig.save(host.with_(status=InstanceStatus.idle, offer=host.offer.with_(instance=unit)))
        made.append(host)
    return made


def plan(rig: Rig, **configuration: Any) -> Any:
    return rig.ok("P/runs/get_plan", {"run_spec": several(**configuration)})


def several(name: str = "mn", **configuration: Any) -> dict[str, Any]:
    if "groups" in configuration:
        configuration["commands"] = []
    return task(name, **configuration)


def of_node(jobs: list[Any]) -> list[list[Any]]:
    return [[job["job_spec"][name] for name in OF_NODE] for job in jobs]


def test_a_plan_has_an_entry_for_each_node_with_the_same_offers(rig: Rig) -> None:
    cluster(rig, 3)
    jobs = plan(rig, nodes=2)["job_plans"]
    assert of_node(jobs) == [[0, "mn-0-0", 0, "0", 0], [1, "mn-1-0", 0, "0", 1]]
    for job in jobs:
        spec = job["job_spec"]
        assert (spec["replica_num"], spec["replica_group"], spec["jobs_per_replica"]) == (0, "0", 2)
        assert spec["requirements"]["multinode"] is True and spec["ssh_key"] is None
        assert [offer["availability"] for offer in job["offers"]] == ["idle"] * 3 and job["total_offers"] == 3
    assert jobs[0]["offers"] == jobs[1]["offers"]


def test_a_plan_of_groups_has_the_needs_and_offers_of_each(rig: Rig) -> None:
    cluster(rig, 3)
    jobs = plan(rig, groups=GROUPS)["job_plans"]
    names = [[0, "mn-0-0", 0, "head", 0], [1, "mn-1-0", 1, "worker", 0], [2, "mn-2-0", 1, "worker", 1]]
    assert of_node(jobs) == names
    cpus = [job["job_spec"]["requirements"]["resources"]["cpu"]["count"]["min"] for job in jobs]
    assert cpus == [4, 2, 2]
    assert [len(job["job_spec"]["app_specs"]) for job in jobs] == [1, 0, 0]
    assert "${{ groups[0].nodes[0].IP_ADDRESS }}" in jobs[2]["job_spec"]["commands"][-1]


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_highest_price_is_of_what_the_run_may_get(rig: Rig, nodes: int) -> None:
    cluster(rig, 4)
    body = {"run_spec": several(nodes=nodes), "max_offers": 3}
    for job in rig.ok("P/runs/get_plan", body)["job_plans"]:
        assert (len(job["offers"]), job["total_offers"], job["max_price"]) == (3, 4, 0.0)


def test_a_single_node_is_planned_as_ever(rig: Rig) -> None:
    cluster(rig, 2)
    (job,) = plan(rig)["job_plans"]
    assert (job["job_spec"]["jobs_per_replica"], job["job_spec"]["requirements"]["multinode"]) == (1, False)


def test_without_a_cluster_the_plan_has_no_offers_and_says_why(rig: Rig) -> None:
    cluster(rig, 1)
    found = plan(rig, nodes=2)
    assert [job["offers"] for job in found["job_plans"]] == [[], []]
    (note,) = found["notes"]
    assert "no fleet is a cluster (there are `local`)" in note["text"] and "placement: cluster" in note["hint"]


def test_a_cluster_that_is_too_small_is_told_in_the_plan(rig: Rig) -> None:
    cluster(rig, 2)
    found = plan(rig, nodes=3)
    assert not any(job["offers"] for job in found["job_plans"])
    assert [note["text"] for note in found["notes"]] == ["is too small for 3 nodes: 2 hosts fit"]
    assert plan(rig, groups=[{"commands": ["a"]}, {"commands": ["b"], "resources": {"cpu": "64.."}}])["notes"]


def test_hosts_that_others_use_are_busy_however_little_they_use(rig: Rig) -> None:
    hosts = cluster(rig, 2)
    first = nouns.find(rig.world.plane.store, Instance, keys.instance(hosts[0].id))
    assert first is not None
    cut = first.with_(total_blocks=2, offer=first.offer.with_(blocks=2, total_blocks=2))
    rig.save(b.holding(cut, b.job(b.run("other")), 0))
    for job in plan(rig, nodes=2)["job_plans"]:
        assert [offer["availability"] for offer in job["offers"]] == ["idle", "busy"]
        assert [(offer["blocks"], offer["total_blocks"]) for offer in job["offers"]] == [(1, 1), (2, 2)]


def test_all_nodes_are_listed_under_their_run(rig: Rig) -> None:
    cluster(rig, 3)
    made = submit(rig, several(groups=GROUPS))
    for run in (rig.ok("P/runs/get", {"run_name": "mn"}), *rig.ok("/api/runs/list", {"job_submissions_limit": 1})):
        assert (
            run["id"] == made["id"] and run["latest_job_submission"]["id"] == run["jobs"][0]["job_submissions"][0]["id"]
        )
        assert of_node(run["jobs"])[1:] == [[1, "mn-1-0", 1, "worker", 0], [2, "mn-2-0", 1, "worker", 1]]
        assert [job["job_submissions"][0]["status"] for job in run["jobs"]] == ["submitted"] * 3


@pytest.mark.slow
def test_two_hundred_nodes_are_stored_as_one_spec_and_planned_as_many(rig: Rig) -> None:
    cluster(rig, 1)
    long = {"nodes": 200, "commands": ["x" * 4_000]}
    assert len(plan(rig, **long)["job_plans"]) == 200
    made = submit(rig, several(**long))
    body = nouns.find(rig.world.plane.store, RunBody, keys.run_body(made["id"], 0))
    assert body is not None and len(body.job_specs) == 1 and len(body.model_dump_json()) < 20_000
    found = rig.world.plane.read.job_specs(made["id"], 0)
    assert [(spec.job_num, spec.job_name, spec.node_group_job_index) for spec in found] == [
        (rank, f"mn-{rank}-0", rank) for rank in range(200)
    ]


@pytest.mark.slow
def test_the_offers_of_many_nodes_are_fewer_for_each(tmp_path: Path) -> None:
    rig = Rig.at(tmp_path, backends=accounts(BackendFacts(name="vultr", multinode=True)))
    many = Books(tuple(offer(f"m{number}", 0.1 + number) for number in range(40)))
    rig.world.plane = replace(rig.world.plane, catalog=many)
    create(rig, fleet(placement="cluster", nodes={"min": 0, "target": 0, "max": 300}))
    for nodes, shown in ((2, 40), (100, 20), (300, 6)):
        jobs = plan(rig, nodes=nodes)["job_plans"]
        assert [len(job["offers"]) for job in jobs] == [shown] * nodes
        assert {job["total_offers"] for job in jobs} == {40}


def test_what_all_nodes_get_together_is_bounded(rig: Rig) -> None:
    large = {"run_spec": several(nodes=100, commands=["x" * 40_000])}
    for path, body in {"P/runs/get_plan": large, "P/runs/apply": {"plan": large, "force": False}}.items():
        assert "as its nodes get it" in rig.refused(path, body)


def test_a_change_in_place_keeps_all_nodes(rig: Rig) -> None:
    cluster(rig, 3)
    submit(rig, several(groups=GROUPS))
    changed = submit(rig, several(groups=GROUPS, priority=7))
    assert (changed["deployment_num"], len(changed["jobs"])) == (1, 3)
    body = nouns.find(rig.world.plane.store, RunBody, keys.run_body(changed["id"], 1))
    assert body is not None and (len(body.job_specs), body.nodes) == (2, (1, 2))


@pytest.mark.parametrize("nodes", [(), (1, 1)])
def test_a_body_without_numbers_of_nodes_has_a_spec_a_job(nodes: tuple[int, ...]) -> None:
    """Runs of earlier versions."""
    body = RunBody(run_id="r", run_spec="{}", job_specs=("a", "b"), nodes=nodes)
    assert body.job_texts() == ("a", "b")


def test_a_cluster_that_may_buy_machines_has_its_offers_if_it_may_buy_enough(tmp_path: Path) -> None:
    rig = Rig.at(tmp_path, backends=accounts(BackendFacts(name="vultr", multinode=True)))
    create(rig, fleet(placement="cluster", nodes={"min": 0, "target": 0, "max": 2}))
    found = plan(rig, nodes=2)
    assert [len(job["offers"]) for job in found["job_plans"]] == [len(OFFERS)] * 2 and not found["notes"]
    assert {offer["availability"] for offer in found["job_plans"][0]["offers"]} == {"available"}
    found = plan(rig, nodes=3)
    assert not any(job["offers"] for job in found["job_plans"])
    assert [note["text"] for note in found["notes"]] == ["may have 2 machines, and the task has 3 nodes"]


def test_a_backend_whose_machines_dont_reach_each_other_offers_none_for_a_cluster(rig: Rig) -> None:
    create(rig, fleet(placement="cluster"))
    for nodes in (1, 2):
        found = plan(rig, nodes=nodes)
        assert not any(job["offers"] for job in found["job_plans"])
        (note,) = found["notes"]
        assert "machines that don't reach each other" in note["text"] and "placement: any" in note["hint"]


def test_a_node_whose_host_is_silent_says_so_while_it_counts_as_running(rig: Rig) -> None:
    cluster(rig, 3)
    run = submit(rig, several(nodes=2))
    records = [rig.record(keys.job(run["id"], 0, number, 0)) for number in range(2)]
    silent, other = (nouns.read(Job, record) for record in records)
    since = rig.world.plane.clock.now()
    rig.save(silent.with_(status=JobStatus.running, disconnected_at=since), other.with_(status=JobStatus.running))

    def shown() -> list[tuple[str, str | None]]:
        listed = [job["job_submissions"][-1] for job in rig.ok("P/runs/get", {"run_name": "mn"})["jobs"]]
        return [(each["status"], each["termination_reason_message"]) for each in listed]

    silence = f"its host hasn't reported since {iso(since)}"
    assert shown() == [("running", silence), ("running", None)]
    first_job = nouns.read(Job, rig.record(keys.job(run["id"], 0, 0, 0)))
    rig.save(first_job.with_(message="other nodes can't reach it"))
    assert shown()[0] == ("running", f"{silence}; other nodes can't reach it")
    first_job = nouns.read(Job, rig.record(keys.job(run["id"], 0, 0, 0)))
    rig.save(first_job.with_(status=JobStatus.failed, reason=JobReason.instance_unreachable, message="it was lost"))
    assert shown()[0] == ("failed", "it was lost")
