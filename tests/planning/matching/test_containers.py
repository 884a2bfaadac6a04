"""Containers in place of machines: which jobs they take, and why not the others."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.gangs import Gang
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.offers import CONTAINER, Offer, OfferTerms
from chalicelib.planning.gateways.gateway_machines import choose
from chalicelib.planning.jobs.jobs import agent_task
from chalicelib.planning.machines.fleet import decide_fleet
from chalicelib.planning.machines.snapshots import FleetSnapshot
from chalicelib.planning.matching import containers
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.placing.plan_offers import fleet_offers, plan_offers, unready
from chalicelib.planning.placing.queue import decide_queue
from tests.planning.situations.gangs import gang_of, nodes, queue
from tests.world import nouns as b
from tests.world.gateways import gateway


def pod(*grants: str) -> Offer:
    return b.offer("pod", 0.5, backend="runpod", instance_runtime=CONTAINER, terms=OfferTerms(grants=grants))


VM = b.offer("vm", 2.0)
GRANTS = ("multinode",)
SERVICE = {"type": "service", "port": 80, "auth": False}


def placed(offers: tuple[Offer, ...], fleet: dict[str, Any], **config: Any) -> str:
    """The type that is bought for the run; else why there is none."""
    fleets = (b.view(b.fleet("cloud"), **{"nodes": "0..2", **fleet}),)
    plan = decide_queue(b.waiting(b.queued("train", b.run_spec(**config)), fleets=fleets, offers=offers))
    saved = [noun for step in plan.steps for noun in step.saves]
    return next((n.offer.instance.name for n in saved if isinstance(n, Instance)), plan.steps[0].saves[0].message)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("fleet", "config", "why"),
    [
        ({}, {"privileged": True}, "it can't be privileged (remove `privileged`)"),
        ({}, {"docker": True}, "no engine of its own can run in it, as `docker` needs (remove `docker`)"),
        ({}, {"user": "1000"}, "it can't run as another user than the image's own (remove `user`)"),
        ({}, {"resources": {"shm_size": "8GB"}}, "the size of its shared memory is fixed"),
        ({"blocks": 2}, {"resources": {"cpu": "1..", "memory": "1GB.."}}, "it can't be split into blocks"),
    ],
)
def test_what_a_container_cant_have_is_refused_with_a_reason(
    fleet: dict[str, Any], config: dict[str, Any], why: str
) -> None:
    alone = placed((pod(),), fleet, **config)
    assert why in alone and "what fits is sold as a container (pod)" in alone
    assert placed((pod(), VM), fleet, **config) == "vm", "which costs more"


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"commands": [], "image": "nginx", "entrypoint": "nginx -v"},
        {"commands": [], "image": "nginx"},
        {"image": "nginx"},
        {"env": {"A": "b"}},
    ],
)
def test_any_other_job_runs_in_one(config: dict[str, Any]) -> None:
    assert placed((pod(), VM), {}, **config) == "pod"


@pytest.mark.parametrize(
    ("grant", "config"),
    [
        ("privileged", {"privileged": True}),
        ("user", {"user": "1000"}),
        ("shm_size", {"resources": {"shm_size": "8GB"}}),
    ],
)
def test_what_an_offer_grants_can_be_had(grant: str, config: dict[str, Any]) -> None:
    assert placed((pod(grant),), {}, **config) == "pod"
    others = containers.GRANTABLE - {grant}
    assert "what fits is sold as a container" in placed((pod(*others),), {}, **config)


@pytest.mark.parametrize(
    ("grants", "login", "found"), [(GRANTS, True, 0), (GRANTS, False, 2), ((*GRANTS, "nodes_login"), True, 2)]
)
def test_not_all_nodes_may_have_an_image_that_needs_a_login(grants: tuple[str, ...], login: bool, found: int) -> None:
    auth: dict[str, Any] = {"registry_auth": {"username": "team", "password": "pa55"}} if login else {}
    offer, fleet = pod(*grants).with_(backend="aws"), b.view(b.fleet("cluster"), placement="cluster", nodes="0..9")
    unit = nodes(count=2, image="private/it", **auth)
    _, plan = queue(*unit, fleets=(fleet,), offers=(offer,))
    saved = {noun.id: noun for step in plan.steps for noun in step.saves}
    assert len([noun for noun in saved.values() if isinstance(noun, Instance)]) == found
    assert ("can't pull an image with a login" in repr(plan)) == (not found)
    offers, *_ = plan_offers(b.requirements(unit[0].run_spec), [fleet], OfferBook([offer]), 10)
    assert bool(offers) == bool(found), "nor does the plan show it"
    assert placed((pod(),), {}, image="private/it", **auth) == "pod", "one alone may"


OWN = [{"name": "data-${{ dstack.node_rank }}", "path": "/data"}]
EITHER = [{"name": ["one", "other"], "path": "/data"}]
SAME = [{"name": "data", "path": "/data"}]


@pytest.mark.parametrize(
    ("grants", "volumes", "count", "fits"),
    [
        ((), OWN, 2, False),
        ((), EITHER, 2, False),
        ((), SAME, 2, True),
        (("nodes_volumes",), OWN, 2, True),
        ((), OWN, 1, True),
    ],
)
def test_not_all_nodes_may_mount_different_volumes(
    grants: tuple[str, ...], volumes: list[dict[str, Any]], count: int, fits: bool
) -> None:
    """Which the plan says, and not only a purchase."""
    offer = pod("multinode", "volumes", *grants).with_(backend="aws")
    fleet = b.view(b.fleet("cluster"), placement="cluster", nodes="0..9")
    run = b.run_spec(volumes=volumes, nodes=count)
    offers, _, notes = plan_offers(b.requirements(run), [fleet], OfferBook([offer]), 10)
    assert bool(offers) == fits
    assert ("it mounts the same volume as the others" in repr(notes)) == (not fits)


def test_no_container_has_an_engine_of_its_own_whatever_its_offer_grants() -> None:
    """The agent in it runs its one job as a process, and would refuse another engine."""
    assert "as `docker` needs" in placed((pod(*containers.GRANTABLE),), {}, docker=True)


def test_every_need_is_named_when_there_are_several() -> None:
    text = placed((pod("user"),), {}, privileged=True, user="1000", resources={"shm_size": "8GB"})
    assert "privileged" in text and "shared memory" in text and "another user" not in text


def test_an_instance_that_exists_is_no_place_for_a_second_job() -> None:
    """Not even in the moment between its job's end and its own."""
    idle = b.machine(0, offer=pod(), idle_seconds=0)
    view = b.view(b.fleet("cloud"), idle, nodes="0..2")
    plan = decide_queue(b.waiting(b.queued("train"), fleets=(view,), offers=(pod(),)))
    (bought,) = [n for step in plan.steps for n in step.saves if isinstance(n, Instance)]
    assert (bought.num, bought.status, bought.idle_seconds) != (0, InstanceStatus.busy, 0)
    assert bought.status is InstanceStatus.pending and bought.idle_seconds == 0
    offers, _, _ = plan_offers(b.requirements(b.run_spec()), [view], OfferBook([pod()]), 10)
    assert [offer.availability for offer in offers] == ["available"], "nor is it shown as one"


def test_a_full_fleet_of_containers_has_room_again() -> None:
    busy = b.machine(0, offer=pod(), idle_seconds=0)
    view = b.view(b.fleet("cloud"), busy, nodes="0..1")
    plan = decide_queue(b.waiting(b.queued("train"), fleets=(view,), offers=(pod(),)))
    assert "for room in fleet `cloud` (1 of 1 nodes)" in plan.notes[0].text


def test_a_fleet_buys_none_before_a_job_needs_it() -> None:
    view = b.view(b.fleet("cloud"), nodes="1..2")
    plan = decide_fleet(FleetSnapshot(b.NOW, view, OfferBook([pod(), VM]), b.FACTS))
    (bought,) = [n for step in plan.steps for n in step.saves if isinstance(n, Instance)]
    assert bought.offer.instance.name == "vm"
    (note,) = decide_fleet(FleetSnapshot(b.NOW, view, OfferBook([pod()]), b.FACTS)).notes
    assert "it is created for a job, and can't wait for one" in note.text and "begin with 0" in note.hint
    book = OfferBook([pod(), VM])
    assert [offer.instance.name for offer in fleet_offers(b.fleet_spec(nodes="0..2"), book, 9)[0]] == ["pod", "vm"]
    assert [offer.instance.name for offer in fleet_offers(b.fleet_spec(nodes="1..2"), book, 9)[0]] == ["vm"]


@pytest.mark.parametrize(
    ("nodes", "backends", "offers", "named"),
    [
        ("1..2", None, (pod(), VM), ["aws-only-pods", "runpod"]),
        ({"min": 0, "target": 1, "max": 1}, None, (), ["runpod"]),
        ("0..2", None, (pod(), VM), []),
        ("1..2", ["aws"], (VM,), []),
    ],
)
def test_the_plan_of_a_fleet_says_of_each_backend_with_nothing_but_containers_that_none_is_kept_ready(
    nodes: Any, backends: list[str] | None, offers: tuple[Offer, ...], named: list[str]
) -> None:
    """A backend without a list of offers, too, and one that sells machines, but only containers that fit."""
    facts = {
        "aws": BackendFacts(name="aws"),
        "runpod": BackendFacts(name="runpod", machines=False, containers=True),
        "aws-only-pods": BackendFacts(name="aws-only-pods", containers=True),
    }
    book = OfferBook([*offers, *(each.with_(backend="aws-only-pods") for each in offers if each.is_container)])
    spec = b.fleet_spec(nodes=nodes, **({"backends": backends} if backends else {}))
    found = list(unready(spec, book, facts))
    assert [text.partition(" ")[0] for text in found] == named
    assert all("it is created for a job, and can't wait for one. With `nodes: 0..`" in text for text in found)


def test_a_cluster_buys_no_containers_that_dont_reach_each_other() -> None:
    text = placed((pod(),), {"placement": "cluster"})
    assert "can buy only machines that don't reach each other" in text and "set `placement: any`" in text


def test_no_gateway_gets_one() -> None:
    wanted = gateway(backend="runpod", region="eu")
    _, found = choose(wanted, BackendFacts(name="runpod"), OfferBook([pod()]), b.NOW)
    assert not isinstance(found, Offer)


def test_its_agent_runs_the_job_in_it_and_has_no_use_for_the_registrys_login() -> None:
    spec = b.job_spec(b.run_spec(image="private/it", registry_auth={"username": "me", "password": "secret"}))
    inside = agent_task(b.job(b.run()), spec, b.machine(offer=pod()), "main")
    assert (inside["runtime"], inside["registry_auth"], inside["image"]) == ("inside", None, "private/it")
    outside = agent_task(b.job(b.run()), spec, b.machine(), "main")
    assert (outside["runtime"], outside["registry_auth"]["username"]) == ("docker", "me")


def test_an_attempt_that_was_cut_off_goes_on_where_its_containers_are() -> None:
    """More than one commit takes: the next pass buys the others beside the first."""
    unit, cluster = nodes(count=4), b.fleet("cluster", next_instance_num=2)
    here, elsewhere = (
        b.offer("pod", price, backend="aws", region=region, instance_runtime=CONTAINER, terms=OfferTerms(grants=GRANTS))
        for price, region in ((2.0, "eu"), (1.0, "us"))
    )
    held = [b.holding(b.machine(n, cluster, offer=here, idle_seconds=0), unit[n].job) for n in range(2)]
    fleet = b.view(cluster, *held, placement="cluster", nodes="0..9")
    _, plan = queue(*unit, fleets=(fleet,), offers=(here, elsewhere), gangs=[(unit, gang_of(unit, *held))])
    saved = {noun.id: noun for step in plan.steps for noun in step.saves if isinstance(noun, Instance)}
    assert [each.offer.region for each in saved.values()] == ["eu", "eu"]
    (gang,) = [noun for step in plan.steps for noun in step.saves if isinstance(noun, Gang)]
    assert (gang.status, gang.places[:2], set(gang.places[2:])) == ("sealed", tuple(e.id for e in held), set(saved))
    _, anew = queue(*nodes("new", 4), fleets=(fleet,), offers=(here, elsewhere))
    bought = [noun for step in anew.steps for noun in step.saves if isinstance(noun, Instance)]
    assert [each.offer.region for each in bought] == ["us"] * 4, "others' containers determine nothing"
