"""A run that names instances is placed on one of them or nowhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.placing.plan_offers import plan_offers
from chalicelib.planning.placing.queue import decide_queue
from tests.world import nouns as b
from tests.world.nouns import lint

LAB = b.fleet("lab")
SMALL = {"cpu": "1..", "memory": "1GB..", "disk": "1MB.."}


def queued_on(*named: Any) -> Any:
    return b.queued("a", b.run_spec(resources=SMALL, instances=list(named)))


def after(item: Any, *views: FleetView, offers: tuple[Any, ...] = ()) -> Job:
    snapshot = b.waiting(item, fleets=views, offers=offers)
    plan = decide_queue(snapshot)
    assert lint(snapshot, plan) == []
    return next(noun for step in plan.steps for noun in step.saves if isinstance(noun, Job))


def place(job: Job) -> str:
    return job.assignment.instance_name if job.assignment else ""


@pytest.mark.parametrize("blocks", [1, 4])
@pytest.mark.parametrize("named", ["lab-2", {"hostname": "10.0.0.2"}, {"fleet": "lab", "instance": 2}], ids=str)
def test_the_named_one_is_taken(named: Any, blocks: int) -> None:
    has = b.resources(cpus=8, gb=32)
    hosts = [b.host(num, LAB, has=has, total_blocks=blocks, hostname=f"10.0.0.{num}") for num in range(4)]
    assert place(after(queued_on(named), b.view(LAB, *hosts, blocks=blocks))) == "lab-2"


def test_a_job_waits_for_the_named_one() -> None:
    busy = b.holding(b.host(0, LAB), b.job(b.run("other")))
    job = after(queued_on("lab-0"), b.view(LAB, busy, b.host(1, LAB)))
    assert not job.assignment and "for free capacity in fleet `lab`" in job.message


def test_nothing_is_bought_for_a_run_that_names_instances() -> None:
    cloud = b.fleet("cloud")
    job = after(queued_on("cloud-7"), b.view(cloud, nodes="0..9"), offers=(b.offer(),))
    assert job.status is JobStatus.terminating or job.finished
    assert "has no usable instance that the run names in `instances` (cloud-7)" in job.message


def test_a_plan_shows_the_named_ones_only_or_why_there_is_none() -> None:
    hosts = [b.host(num, LAB, has=b.resources(cpus=num + 2, gb=32)) for num in range(3)]
    view = b.view(LAB, *hosts)
    item = queued_on("lab-1")
    offers, total, notes = plan_offers(item.requirements, [view], OfferBook(()), 50)
    assert [offer.instance.resources.cpus for offer in offers] == [3] and (total, notes) == (1, [])
    item = queued_on("lab-9", {"fleet": "lab", "instance": 8})
    offers, total, notes = plan_offers(item.requirements, [view], OfferBook(()), 50)
    assert total == 0 and "(lab-9, number 8 of fleet lab)" in notes[0].text


def test_an_instance_of_another_project_is_named_with_it_and_one_of_the_own_without() -> None:
    """Both fleets are called `lab` by their owners; an imported one is known with its project."""
    others_fleet = b.fleet("lab").with_(id="theirs", project_id="other")
    own = b.view(LAB, *[b.host(num, LAB) for num in range(2)])
    hosts = [b.host(num, others_fleet).with_(id=f"theirs-{num}", project_id="other") for num in range(2)]
    lent = replace(b.view(others_fleet.with_(name="their/lab"), *hosts), imported=True)
    for fleet, wanted in (("their/lab", hosts[1].id), ("lab", own.instances[1].id)):
        item = queued_on({"fleet": fleet, "instance": 1})
        job = after(item, own, lent)
        assert job.assignment and job.assignment.instance_id == wanted
        assert plan_offers(item.requirements, [own, lent], OfferBook(()), 50)[1] == 1
    item = queued_on({"fleet": "their/lab", "instance": 7})
    _, total, notes = plan_offers(item.requirements, [own, lent], OfferBook(()), 50)
    assert total == 0 and "(number 7 of fleet their/lab)" in notes[0].text
