"""Where volumes are, which of them a job gets, and for whom it waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.instances import Handle, Instance, InstanceStatus
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.offers import OfferTerms
from chalicelib.domain.reasons import JobReason
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.domain.volumes import AttachmentState, Volume, VolumeStatus
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.placing.plan_offers import plan_offers
from chalicelib.planning.placing.queue import decide_queue
from chalicelib.planning.placing.snapshot import QueueSnapshot
from chalicelib.planning.volumes.sites import Site, busy, chosen_for, sites, together
from tests.world import nouns as b
from tests.world.disks import attachment, known, saved, volume

HERE = Site("aws", "eu")
ZONED = b.offer("zoned", availability_zones=("eu-a", "eu-b"))


def waiting(*names: Any, volumes: dict[str, Volume], offers: Any = (ZONED,), machines: Any = (), **fields: Any) -> Any:
    """What is decided about a run with these volumes; the plan keeps every invariant."""
    mounts = [{"name": name, "path": f"/{at}"} for at, name in enumerate(names)]
    item = b.queued("train", b.run_spec(volumes=mounts, **fields))
    fleets = (b.view(b.fleet("cloud"), *machines, nodes="0..2"),)
    snapshot = replace(b.waiting(item, fleets=fleets, offers=offers), volumes=volumes)
    return decided(snapshot)


def decided(snapshot: QueueSnapshot) -> Any:
    plan = decide_queue(snapshot)
    assert b.lint(snapshot, plan) == []
    return plan


def test_a_site_is_where_each_mount_has_a_volume_of_its_own() -> None:
    eu, us, again = volume("eu"), volume("us", region="us"), volume("again", region="us")
    found = known(eu, us, again)
    assert sites([["eu"]], found) == (HERE,)
    assert sites([["eu", "us"]], found) == (HERE, Site("aws", "us"))
    assert sites([["eu", "us"], ["again"]], found) == (Site("aws", "us"),)
    assert sites([["eu"], ["us"]], found) == ()
    assert sites([["eu"], ["eu"]], found) == ()
    assert sites([["us", "again"], ["us"]], found) == (Site("aws", "us"),), "the other is left for the first mount"
    assert sites([["nope"]], found) == ()


def test_zones_of_a_region_are_different_places() -> None:
    a, c, anywhere = volume("a", zone="eu-a"), volume("c", zone="eu-c"), volume("x")
    found = known(a, c, anywhere)
    assert sites([["a"], ["c"]], found) == ()
    assert sites([["a", "c"], ["x"]], found) == (Site("aws", "eu", "eu-a"), Site("aws", "eu", "eu-c"))
    assert chosen_for([["a", "c"], ["x"]], found, lambda site: site.zone == "eu-c") == [c, anywhere]


def test_what_is_bought_names_a_volumes_zone_as_its_provider_does() -> None:
    spelt = b.offer("zoned", availability_zones=("EU-A", "EU-B"))
    (bought,) = saved(waiting("a", volumes=known(volume("a", zone="eu-a")), offers=(spelt,)), Instance)
    assert bought.offer.availability_zones == ("EU-A",)


def test_nodes_have_sites_beside_each_other() -> None:
    a, c, us = Site("aws", "eu", "eu-a"), Site("aws", "eu", "eu-c"), Site("aws", "us")
    assert together([(a, us), (c, us)]) == [(us,), (us,)]
    assert together([(a, c), (c,)]) == [(c,), (c,)]
    assert together([(a,), (c,)]) == [(), ()]


@pytest.mark.parametrize(
    ("rest", "fits"),
    [
        ({}, True),
        ({"offer": b.offer(region="us")}, False),
        ({"offer": b.offer(backend="gcp")}, False),
        ({"handles": (Handle(kind="vm", id="i", data={"zone": "eu-a"}),)}, True),
        ({"handles": (Handle(kind="vm", id="i", data={"zone": "eu-b"}),)}, False),
        ({"offer": ZONED}, False),
        ({"offer": ZONED.with_(availability_zones=("eu-a",))}, True),
    ],
)
@pytest.mark.parametrize("blocks", [1, 4])
def test_a_machine_is_taken_only_where_the_volume_is(rest: dict[str, Any], fits: bool, blocks: int) -> None:
    """One that may be in another zone isn't."""
    offer = rest.get("offer", b.offer()).with_(blocks=blocks, total_blocks=blocks)
    machine = b.machine(0, b.fleet("cloud"), **{**rest, "offer": offer}, total_blocks=blocks)
    spec = {"cpu": "1..", "memory": "1GB.."}
    plan = waiting("data", volumes=known(volume(zone="eu-a")), offers=(), machines=(machine,), resources=spec)
    (job,) = saved(plan, Job)
    assert (job.status is JobStatus.provisioning) == fits
    assert [each.disks for each in saved(plan, Instance)] == ([(volume().id,)] if fits else [])


def test_a_machine_is_bought_in_the_zone_of_the_volume() -> None:
    plan = waiting("data", volumes=known(volume(zone="eu-b")))
    (machine,) = saved(plan, Instance)
    assert machine.offer.availability_zones == ("eu-b",) and machine.disks == (volume().id,)
    (job,) = saved(plan, Job)
    assert [(each.name, each.path) for each in job.assignment.volumes] == [("data", "/0")]
    (taken,) = saved(plan, Volume)
    (one,) = taken.attachments
    assert (one.instance_id, one.job_id, one.state) == (machine.id, job.id, AttachmentState.attaching)
    assert f"volume/{taken.id}" in plan.steps[0].wake and taken.due_at == b.NOW


@pytest.mark.parametrize("zones", [["eu-a"], ["eu-a", "eu-b"]])
def test_a_run_goes_to_no_zone_that_it_didnt_ask_for_not_even_for_its_volume(zones: list[str]) -> None:
    plan = waiting("data", volumes=known(volume(zone="eu-b")), availability_zones=zones)
    bought = [machine.offer.availability_zones for machine in saved(plan, Instance)]
    assert bought == ([("eu-b",)] if "eu-b" in zones else [])


def test_the_cheapest_place_decides_which_of_several_volumes_is_mounted() -> None:
    found = known(volume("near"), volume("far", region="us"))
    offers = (b.offer("dear", 2.0), b.offer("cheap", 1.0, region="us"))
    (job,) = saved(waiting(["near", "far"], volumes=found, offers=offers), Job)
    assert [each.name for each in job.assignment.volumes] == ["far"]


@pytest.mark.parametrize("held", [True, False])
def test_a_job_waits_for_a_volume_that_another_has(held: bool) -> None:
    other, machine = b.job(b.run("other")), b.machine(0, b.fleet("cloud"))
    state = AttachmentState.attached if held else AttachmentState.detaching
    plan = waiting("data", volumes=known(volume(attachments=(attachment(other, machine, state),))))
    (job,) = saved(plan, Job)
    who = "which run `other` uses" if held else "which is being detached from cloud-0"
    assert (job.status, job.message) == (JobStatus.submitted, f"waiting for volume `data`, {who}")
    assert saved(plan, Volume) == []


def test_one_that_may_be_at_several_machines_is_shared_if_nobody_writes_it() -> None:
    """Two machines that write one ext4 destroy it, whatever their cloud allows."""
    other, machine = b.job(b.run("other")), b.machine(7, b.fleet("cloud"))
    shared = volume(multi_attach=True, read_only=True, attachments=(attachment(other, machine),))
    (taken,) = saved(waiting("data", volumes=known(shared)), Volume)
    assert len(taken.attachments) == 2
    for alone in ({"blank": True}, {"read_only": False}, {"multi_attach": False}):
        (job,) = saved(waiting("data", volumes=known(shared.with_(**alone))), Job)
        assert "which run `other` uses" in job.message


def test_of_two_jobs_in_one_look_the_first_gets_the_volume() -> None:
    spec = b.run_spec(volumes=["data:/data"])
    items = b.queued("one", spec), b.queued("two", spec)
    snapshot = b.waiting(*items, fleets=(b.view(b.fleet("cloud"), nodes="0..2"),), offers=(b.offer(),))
    plan = decided(replace(snapshot, volumes=known(volume())))
    first, second = saved(plan, Job)
    assert first.status is JobStatus.provisioning
    assert second.message == "waiting for volume `data`, which run `one` uses"


@pytest.mark.parametrize(
    ("found", "reason", "message"),
    [
        ((), JobReason.volume_error, "there is no volume `data`"),
        ((volume(status=VolumeStatus.deleting),), JobReason.volume_error, "volume `data` is deleting"),
        (
            (volume(status=VolumeStatus.failed, message="no quota"),),
            JobReason.volume_error,
            "volume `data` is failed: no quota",
        ),
    ],
)
def test_a_volume_that_is_gone_ends_the_job(found: tuple[Volume, ...], reason: JobReason, message: str) -> None:
    (job,) = saved(waiting("data", volumes=known(*found)), Job)
    assert (job.reason, job.message) == (reason, message)


def test_volumes_in_two_zones_can_never_be_mounted_together() -> None:
    found = known(volume("a", zone="eu-a"), volume("c", zone="eu-c"))
    (job,) = saved(waiting("a", "c", volumes=found), Job)
    assert job.reason is JobReason.failed_to_start_due_to_no_capacity
    assert job.message == "nowhere to run: the volumes are in different places, so no machine can have all of them"


def test_a_plan_offers_only_what_is_where_the_volume_is() -> None:
    spec = b.run_spec(volumes=["data:/data"])
    book = OfferBook([b.offer("here", 2.0), b.offer("there", 1.0, region="us")])
    machines = b.machine(0, b.fleet("cloud")), b.machine(1, b.fleet("cloud"), offer=b.offer(region="us"))
    fleets = (b.view(b.fleet("cloud"), *machines, nodes="0..5"),)
    offers, total, _ = plan_offers(b.requirements(spec, volumes=known(volume())), fleets, book, 10)
    assert {offer.region for offer in offers} == {"eu"} and total == 2
    nowhere = known(volume(region="mars"))
    _, total, notes = plan_offers(b.requirements(spec, volumes=nowhere), fleets[:0] or fleets, book, 10)
    assert total == 0
    assert notes[0].text == (
        "can grow, but nothing that fits is sold where the volumes are, aws in mars (elsewhere 2 would match)"
    )


def test_of_many_places_a_plan_names_three() -> None:
    regions = ["ceres", "mars", "pluto", "venus"]
    spec = b.run_spec(volumes=[{"name": regions, "path": "/data"}])
    found = known(*(volume(region, region=region) for region in regions))
    fleets = (b.view(b.fleet("cloud"), nodes="0..5"),)
    _, _, (note,) = plan_offers(b.requirements(spec, volumes=found), fleets, OfferBook([b.offer()]), 10)
    assert "are, aws in ceres or aws in mars or aws in pluto (elsewhere 1 would match)" in note.text


@pytest.mark.parametrize("blocks", [1, 4])
def test_a_job_waits_for_the_zone_of_a_machine_that_is_still_being_created(blocks: int) -> None:
    """The only one of a full fleet: it may come up where the volume is."""
    offer = ZONED.with_(blocks=blocks, total_blocks=blocks)
    coming = b.machine(0, b.fleet("cloud"), status=InstanceStatus.pending, handles=(), offer=offer, total_blocks=blocks)
    spec = b.run_spec(volumes=["data:/data"], resources={"cpu": "1..", "memory": "1GB.."})

    either = b.run_spec(
        volumes=[{"name": ["data", "far"], "path": "/data"}], resources={"cpu": "1..", "memory": "1GB.."}
    )

    def job_on(machine: Instance, spec: RunSpec = spec, **fields: Any) -> Job:
        full = (b.view(b.fleet("cloud"), machine, nodes="1..1"),)
        snapshot = b.waiting(b.queued("train", spec), fleets=full, offers=(ZONED,))
        disks = known(volume(zone="eu-a", **fields), volume("far", region="us"))
        (job,) = saved(decided(replace(snapshot, volumes=disks)), Job)
        return job

    job = job_on(coming)
    text = "waiting for the zone of cloud-0 in fleet `cloud`, which is still being created"
    assert (job.status, job.message) == (JobStatus.submitted, text)
    here = Handle(kind="vm", id="i", data={"zone": "eu-a"})
    assert job_on(coming.with_(handles=(here,))).status is JobStatus.provisioning
    away = coming.with_(handles=(here.model_copy(update={"data": {"zone": "eu-b"}}),))
    assert job_on(away).reason is JobReason.failed_to_start_due_to_no_capacity
    assert job_on(coming.with_(offer=b.offer(availability_zones=("eu-b", "eu-c")))).reason is not None
    assert job_on(coming, spec=either).message == text, "one of its volumes may be there"
    other = attachment(b.job(b.run("other")), b.machine(7, b.fleet("else")))
    assert job_on(coming, attachments=(other,)).message == "waiting for volume `data`, which run `other` uses"


def test_machines_that_cant_have_volumes_are_passed_over_and_say_why() -> None:
    old = b.offer("old", 0.5, terms=OfferTerms(no_volumes="its disks show no serial number"))
    spec, found = b.run_spec(volumes=["data:/data"]), known(volume())
    (bought,) = saved(waiting("data", volumes=found, offers=(old, b.offer("new", 2.0))), Instance)
    assert bought.offer.instance.name == "new"
    text = "what fits where the volumes are can't have any (old: its disks show no serial number)"
    assert text in saved(waiting("data", volumes=found, offers=(old, b.offer(region="us"))), Job)[0].message
    machine = b.machine(0, b.fleet("cloud"), offer=old)
    for view in (b.view(b.fleet("cloud"), machine, nodes="1..1"), b.view(b.fleet("cloud"), machine)):
        _, total, notes = plan_offers(b.requirements(spec, volumes=found), (view,), OfferBook([]), 10)
        assert total == 0 and "can't have volumes: its disks show no serial number" in notes[0].text


def test_machines_that_have_no_zone_in_clusters_get_no_volumes_there() -> None:
    terms = OfferTerms(no_volumes_in_clusters="they are in no zone")
    offer, spec = b.offer("fast", availability_zones=("eu-a",), terms=terms), b.run_spec(volumes=["data:/data"])
    zoned, zoneless = known(volume(zone="eu-a")), known(volume())
    cluster, single = b.fleet("cluster"), b.fleet("any")
    for fleet, volumes, total in ((cluster, zoned, 0), (cluster, zoneless, 1), (single, zoned, 1)):
        needs, grows = b.requirements(spec, volumes=volumes), b.view(fleet, nodes="0..2", placement=fleet.name)
        assert plan_offers(needs, (grows,), OfferBook([offer]), 10)[1] == total
        full = b.view(fleet, b.machine(0, fleet, offer=offer), nodes="1..1", placement=fleet.name)
        assert plan_offers(needs, (full,), OfferBook([]), 10)[1] == total
        if not total:
            for view in (grows, full):
                (note,) = plan_offers(needs, (view,), OfferBook([offer]), 10)[2]
                assert "they are in no zone" in note.text


def test_a_full_fleet_whose_machines_are_elsewhere_says_where_the_volume_is() -> None:
    away = b.machine(0, b.fleet("cloud"), offer=b.offer(availability_zones=("eu-b",)))
    full = (b.view(b.fleet("cloud"), away, nodes="1..1"),)
    spec, found = b.run_spec(volumes=["data:/data"]), known(volume(zone="eu-a"))
    snapshot = replace(b.waiting(b.queued("train", spec), fleets=full), volumes=found)
    (job,) = saved(decided(snapshot), Job)
    text = "is full (1 of 1 nodes), and none of its machines is where the run's volumes are: aws in eu-a"
    assert text in job.message
    assert text in plan_offers(b.requirements(spec, volumes=found), full, OfferBook([]), 10)[2][0].text


def test_a_volume_that_others_have_is_waited_for_by_name() -> None:
    def used(name: str, by: str, **fields: Any) -> Volume:
        return volume(name, attachments=(attachment(b.job(b.run(by)), b.machine(7, b.fleet("else"))),), **fields)

    lost = used("lost", "three", status=VolumeStatus.failed)
    found = known(used("a", "one"), used("c", "two"), volume("f"), lost)
    assert busy([["a", "f"], ["c"]], found) == "for volume `c`, which run `two` uses", "of the first mount one is free"
    assert busy([["f", "a"]], found) == "for volume `a`, which run `one` uses"
    assert busy([["nope", "lost", "c"]], found) == "for volume `c`, which run `two` uses"
    assert busy([["f"]], found) == busy([["nope"]], found) == busy([["lost"]], found) == "for a volume"
