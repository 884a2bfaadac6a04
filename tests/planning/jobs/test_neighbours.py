"""What replicas are told of each other before they start, and that they can reach each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import HOUR, SECOND
from chalicelib.domain.job_specs import JobSpec
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.offers import CONTAINER, OfferTerms
from chalicelib.domain.runs import Run
from chalicelib.machines.job import TO_GET_ADDRESSES, TO_START
from chalicelib.planning.jobs.jobs import agent_task, job_specs
from chalicelib.planning.jobs.neighbours import ROUTER_IP, filled, members, needed, unknown
from chalicelib.planning.kernel.plan import Note
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.matching.requirements import combined, requirements_of
from chalicelib.planning.placing.claims import assignment_to
from chalicelib.planning.placing.queue import decide_queue
from chalicelib.planning.placing.snapshot import QueueSnapshot
from tests.planning.runs.test_service_run import world
from tests.world import nouns as b
from tests.world.services import ServiceWorld, service

FIRST = "serve --first ${{ groups[0].replicas[0].IP_ADDRESS }}:8000"
BOTH = [
    {"name": "a", "replicas": 2, "commands": ["lead"]},
    {"name": "b", "replicas": 1, "commands": [FIRST, "see ${{groups[0].replicas[1].IP_ADDRESS}}"]},
]
DYNAMO = [
    {"name": "gpu", "replicas": 2, "commands": ["worker"]},
    {"name": "front", "replicas": 1, "commands": ["frontend"], "router": {"type": "dynamo"}},
]


def specs_of(**config: Any) -> tuple[JobSpec, ...]:
    return job_specs(service(**config), images=b.Images())


def task(spec: JobSpec, **more: Any) -> dict[str, Any]:
    return agent_task(b.job(b.run()), spec, b.host(), "main", **more)


def test_a_command_gets_the_addresses_that_it_names() -> None:
    lead, other = specs_of(groups=BOTH)
    assert needed(lead) == frozenset() and needed(other) == {(0, 0), (0, 1)}
    sent = task(other, addresses={(0, 0): "10.0.0.7", (0, 1): "10.0.0.8"})
    assert sent["commands"][-2:] == ["serve --first 10.0.0.7:8000", "see 10.0.0.8"]
    assert sent["steps"][1] == "command 2 (`see 10.0.0.8`)"
    assert sent["network"] == task(lead)["network"] == "host", "whoever is named is reached in its host's network"
    assert "network" not in task(*specs_of(replicas=2))


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("x ${{ groups[1].replicas[0].IP_ADDRESS }}", []),
        ("x ${{ groups[1].replicas[1].IP_ADDRESS }}", ["${{ groups[1].replicas[1].IP_ADDRESS }}"]),
        ("x ${{groups[2].replicas[0].IP_ADDRESS}}", ["${{groups[2].replicas[0].IP_ADDRESS}}"]),
        ("x $${{ groups[2].replicas[0].IP_ADDRESS }}", []),
        ("x ${{ groups[0].nodes[0].IP_ADDRESS }} ${{ run.args }}", []),
    ],
)
def test_what_is_no_replica_that_is_always_there_is_found(command: str, found: list[str]) -> None:
    assert unknown(command, [0, 1]) == found


def test_a_name_without_an_address_stays() -> None:
    assert filled(FIRST, {}) == FIRST


def test_workers_of_dynamo_are_told_their_routers_address_and_nobody_tells_it_of_them() -> None:
    worker, router = specs_of(groups=DYNAMO)
    assert needed(worker) == {(1, 0)} and needed(router) == frozenset()
    sent = task(worker, addresses={(1, 0): "10.0.0.7"})
    assert (sent["env"][ROUTER_IP], sent["network"], sent["router"]) == ("10.0.0.7", "host", False)
    sent = task(router)
    assert ROUTER_IP not in sent["env"] and (sent["network"], sent["router"]) == ("host", False)
    specs = specs_of(groups=[DYNAMO[0], {**DYNAMO[1], "router": {"type": "smg"}}])
    assert [task(each)["router"] for each in specs] == [False, True] and not any(map(needed, specs))


def test_replicas_are_counted_by_number_among_those_of_the_same_version() -> None:
    run = b.run("app")

    def job(number: int, **changes: Any) -> Job:
        return b.job(run, replica=number).with_(replica_group="a", **changes)

    jobs = [job(4), job(1), job(2, deployment_num=1), job(3, draining_at=1), job(5, status=JobStatus.terminating)]
    assert [each.replica_num for each in members(jobs, "a", 0)] == [1, 4]
    assert [each.replica_num for each in members(jobs, "a", 1)] == [2]


# --- in a cluster ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [BOTH, DYNAMO, [DYNAMO[0], {**DYNAMO[1], "router": {"type": "smg"}}]])
def test_only_a_cluster_or_the_servers_own_machine_takes_replicas_that_reach_each_other(groups: list[Any]) -> None:
    spec = service(groups=groups)
    requirements = requirements_of(spec, job_specs(spec, images=b.Images())[0])
    refused = combined(requirements, b.view(b.fleet("cloud"), nodes="0..2"))
    assert isinstance(refused, Note) and "placement: cluster" in refused.hint
    assert isinstance(combined(requirements, b.view(b.fleet("cloud"), nodes="0..2", placement="cluster")), Query)
    assert isinstance(combined(requirements, b.view(b.fleet("local"), b.host(0))), Query)
    plain = service(replicas=2)
    assert isinstance(
        combined(requirements_of(plain, *specs_of(replicas=2)), b.view(b.fleet("cloud"), nodes="0..2")), Query
    )


def queued(number: int) -> QueuedJob:
    spec = service(groups=DYNAMO)
    run = b.run("app", due_at=None)
    job = b.job(run, replica=number, replica_group="gpu", submitted_at=b.NOW + number, due_at=b.NOW)
    return QueuedJob(job, run, job_specs(spec, images=b.Images())[0], spec)


def labs() -> tuple[FleetView, FleetView]:
    one, two = b.fleet("one"), b.fleet("two")
    return b.view(one, b.host(0, one), placement="cluster"), b.view(two, b.host(0, two), placement="cluster")


def fleets_of(*items: QueuedJob) -> list[str]:
    snapshot = QueueSnapshot(b.NOW + SECOND, b.PROJECT, items, labs(), OfferBook(()), b.FACTS)
    jobs = [noun for step in decide_queue(snapshot).steps for noun in step.saves if isinstance(noun, Job)]
    return [job.assignment.fleet_name for job in jobs if job.assignment is not None]


def test_they_all_go_where_the_first_of_them_goes() -> None:
    assert len(fleets_of(queued(0), queued(1))) == 1, "the second waits for room beside it"
    placed = queued(1)
    two = labs()[1].instances[0]
    assert fleets_of(replace(placed, beside=assignment_to(two, two.offer, b.NOW))) == ["two"]


@pytest.mark.parametrize("grants", [(), ("network",)])
@pytest.mark.parametrize("first", ["none", "pod", "machine"])
def test_containers_that_reach_each_other_are_bought_in_the_region_of_the_first_and_none_beside_machines(
    first: str, grants: tuple[str, ...]
) -> None:
    kind: dict[str, Any] = {"backend": "aws", "instance_runtime": CONTAINER, "terms": OfferTerms(grants=grants)}
    cheap, dear = (b.offer("pod", price, region=region, **kind) for price, region in ((0.1, "eu"), (0.2, "us")))
    cluster = b.fleet("cloud")
    full = b.holding(b.machine(0, cluster), b.job(b.run("other")), 0)
    there = {"none": (), "pod": (b.machine(0, cluster, offer=dear),), "machine": (full,)}[first]
    item = queued(1)
    if there:
        item = replace(item, beside=assignment_to(there[0], there[0].offer, b.NOW))
    view = b.view(cluster, *there, nodes="0..4", placement="cluster")
    facts = {"aws": BackendFacts(name="aws", multinode=True)}
    found = decide_queue(QueueSnapshot(b.NOW + SECOND, b.PROJECT, (item,), (view,), OfferBook((cheap, dear)), facts))
    saved = [noun for step in found.steps for noun in step.saves]
    regions = [noun.offer.region for noun in saved if isinstance(noun, Instance)]
    assert regions == ({"none": ["eu"], "pod": ["us"], "machine": []}[first] if grants else [])
    if not regions and first != "machine":  # which may have room again
        assert "doesn't reach others" in found.notes[0].text, found.notes


# --- in time ---------------------------------------------------------------------------------------------------------


def placed(command: str) -> tuple[ServiceWorld, Run]:
    """A service whose replica has a machine that has been up for long, and hasn't begun there."""
    small = world(hosts=3)
    up = {"status": InstanceStatus.idle, "started_at": small.now - HOUR, "idle_since": small.now}
    small.instances = {each.id: each.with_(**up) for each in small.instances.values()}
    run = small.serve(groups=[{"name": "b", "replicas": 1, "commands": [command]}])
    small.pass_queue()
    assert {job.status for job in small.jobs.values()} == {JobStatus.provisioning}
    return small, run


def late(small: ServiceWorld, run: Run) -> dict[str, str]:
    small.pass_run(small.runs[run.id])
    return {job.replica_group: job.message for job in small.jobs.values() if job.reason is not None}


def test_one_that_waits_for_addresses_has_half_an_hour_more_to_start() -> None:
    small, run = placed(FIRST)
    small.now += TO_START + TO_GET_ADDRESSES - SECOND
    assert late(small, run) == {}
    small.now += SECOND
    assert late(small, run) == {"b": "the task didn't start in time, or replicas whose addresses it needs had none"}


def test_one_that_needs_none_has_its_ten_minutes() -> None:
    small, run = placed("lead")
    small.now += TO_START
    assert late(small, run) == {"b": "the task didn't start in time"}
