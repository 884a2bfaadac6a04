"""Reserved capacity: bought by whoever names it, shared by nobody else, and explained where it doesn't fit."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Instance
from chalicelib.domain.offers import Availability, Offer, OfferTerms
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.machines.fleet import decide_fleet
from chalicelib.planning.machines.snapshots import FleetSnapshot
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.placing.plan_offers import fleet_offers, plan_offers
from chalicelib.planning.placing.queue import decide_queue
from chalicelib.planning.runs.field_support import reservation_refusals
from tests.world import nouns as b

RESERVED = b.offer("big", 3.0, terms=OfferTerms(reservation="cr-1"), availability_zones=("eu-b",))
OFFERS = (b.offer("big", 3.0, availability_zones=("eu-a", "eu-b")), b.offer("small", 1.0), RESERVED)
CAN = BackendFacts(name="aws", reservations=True)


def bought(spec: Any, offers: tuple[Offer, ...] = OFFERS, **fleet: Any) -> Offer | None:
    """The offer that is bought for a run."""
    snapshot = b.waiting(
        b.queued("train", spec), fleets=(b.view(b.fleet("cloud"), nodes="0..2", **fleet),), offers=offers
    )
    plan = decide_queue(snapshot)
    assert b.lint(snapshot, plan) == []
    made = [noun for step in plan.steps for noun in step.saves if isinstance(noun, Instance)]
    return made[0].offer if made else None


def why_not(**config: Any) -> str:
    spec = b.run_spec(**config)
    offers, total, notes = plan_offers(b.requirements(spec), [b.view(nodes="0..2")], OfferBook(OFFERS), 9)
    assert offers == [] and total == 0
    (note,) = notes
    return f"{note.text} ({note.hint})"


def grown(**config: Any) -> tuple[Offer | None, str]:
    """What a fleet buys for itself, and what it says instead."""
    view = FleetView(b.fleet("cloud", to_create=1), b.fleet_spec(nodes="1", **config), ())
    plan = decide_fleet(FleetSnapshot(b.NOW, view, OfferBook(OFFERS), b.FACTS))
    made = [noun for step in plan.steps for noun in step.saves if isinstance(noun, Instance)]
    return made[0].offer if made else None, "".join(note.text for note in plan.notes)


def test_a_reservation_is_bought_from_by_whoever_names_it_and_by_nobody_else() -> None:
    assert bought(b.run_spec(reservation="cr-1")) == RESERVED
    assert bought(b.run_spec(), reservation="cr-1") == RESERVED, "the fleet's"
    assert bought(b.run_spec(reservation="cr-1"), (OFFERS[0], OFFERS[1])) is None
    assert bought(b.run_spec(instance_types=["big"]), (RESERVED,)) is None
    cheap = RESERVED.with_(price=0.0)
    assert bought(b.run_spec(), (*OFFERS[:2], cheap)) == OFFERS[1], "however cheap it is"


def test_a_fleet_buys_its_machines_in_its_reservation() -> None:
    assert grown(reservation="cr-1") == (RESERVED, "")
    assert grown() == (OFFERS[1], "")
    assert fleet_offers(b.fleet_spec(nodes="1", reservation="cr-1"), OfferBook(OFFERS), 9) == ([RESERVED], 1)


def test_the_reserved_offer_is_tried_by_itself() -> None:
    assert RESERVED.key == "aws/eu/big/cr-1" != OFFERS[0].key


def test_a_machine_in_the_reservation_is_reused() -> None:
    fleet = b.fleet("cloud")
    plain, reserved = b.machine(0, fleet, offer=OFFERS[0]), b.machine(1, fleet, offer=RESERVED)
    for reservation, taken in (("cr-1", reserved), (None, plain)):
        item = b.queued("train", b.run_spec(reservation=reservation))
        snapshot = b.waiting(item, fleets=(b.view(fleet, plain, reserved, nodes="0..2"),), offers=OFFERS)
        plan = decide_queue(snapshot)
        (placed,) = [noun for step in plan.steps for noun in step.saves if isinstance(noun, Instance)]
        assert placed.id == taken.id
    spec = b.run_spec(reservation="cr-1")
    _, _, (note,) = plan_offers(b.requirements(spec), [b.view(fleet, plain, nodes=1)], OfferBook(()), 9)
    assert "full" in note.text


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"reservation": "cr-9"}, "no backend had a reservation cr-9 for it when its offers were last fetched"),
        ({"reservation": "cr-1", "regions": ["us"]}, "cr-1 is of big on demand in eu-b (aws) (make `backends`"),
        ({"reservation": "cr-1", "availability_zones": ["eu-a"]}, "cr-1 is of big on demand in eu-b"),
        ({"reservation": "cr-1", "instance_types": ["small"]}, "cr-1 is of big on demand in eu-b"),
        ({"reservation": "cr-1", "max_price": 2.0}, "raise `max_price` to 3"),
        ({"reservation": "cr-1", "resources": {"gpu": "H100"}}, "change `gpu`: without it 1 would match"),
    ],
)
def test_why_nothing_is_bought_in_it(config: dict[str, Any], reason: str) -> None:
    assert reason in why_not(**config)


def test_a_fleet_says_why_it_buys_nothing() -> None:
    assert grown(reservation="cr-9")[1] == "no backend had a reservation cr-9 for it when its offers were last fetched"
    assert "of big on demand in eu-b" in grown(reservation="cr-1", regions=["us"])[1]


def test_a_fleet_and_a_run_in_different_reservations_do_not_meet() -> None:
    spec = b.run_spec(reservation="cr-2")
    fleets = [b.view(b.fleet("cloud"), nodes="0..2", reservation="cr-1")]
    (note,) = plan_offers(b.requirements(spec), fleets, OfferBook(OFFERS), 9)[2]
    assert note.text == "is in the reservation cr-1"


def test_one_that_has_not_begun_is_shown_and_not_bought() -> None:
    not_begun = RESERVED.with_(availability=Availability.not_available)
    assert bought(b.run_spec(reservation="cr-1"), (not_begun,)) is None
    spec = b.run_spec(reservation="cr-1")
    assert plan_offers(b.requirements(spec), [b.view(nodes="0..2")], OfferBook((not_begun,)), 9)[:2] == ([not_begun], 1)


@pytest.mark.parametrize(
    ("config", "facts", "message"),
    [
        ({}, (), "none of this project's backends can launch machines into reservations"),
        ({}, (BackendFacts(name="aws"),), "none of this project's backends"),
        ({"backends": ["gcp"]}, (CAN,), "none of the backends that `backends` names"),
        ({"spot_policy": "spot"}, (CAN,), "never a spot machine"),
        ({"spot_policy": "auto"}, (CAN,), ""),
        ({}, (CAN,), ""),
    ],
)
def test_what_no_reservation_can_do_is_refused_at_once(
    config: dict[str, Any], facts: tuple[BackendFacts, ...], message: str
) -> None:
    for spec in (b.run_spec(reservation="cr-1", **config), b.fleet_spec(nodes=1, reservation="cr-1", **config)):
        found = reservation_refusals(spec, facts)
        assert [problem.path for problem in found] == (["configuration.reservation"] if message else [])
        assert all(message in problem.message and problem.hint for problem in found)
    (found,) = reservation_refusals(b.run_spec({"reservation": "cr-1"}), ())
    assert found.path == "profile.reservation", "where it was written"
