"""What the templates cost while nothing happens, and how a bill is made."""

from __future__ import annotations

import logging

import pytest

from chalicelib.billing import plane
from chalicelib.billing.plane import ACCOUNT, BUSY, CHANGE, DOOR, INSTANCE, NODE, PRICES, REPLICA, RUN, SCHEDULES, START
from chalicelib.billing.plane_rates import CHANGES, RATES
from docs import cost_page
from infra import charges, spending, stateful, stateless
from tests.bench import month
from tests.bench.cost import over
from tests.world.metered import OF_A_LINE, Meter, metered_logs

TEMPLATES = {
    "stateful": stateful.template(),
    "stateless": stateless.template("prod"),
    "spending": spending.template("prod"),
}

ASKED_FOR = {kind for kind, charge in charges.CHARGES.items() if "nothing" not in charge}  # what costs all the time


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_resource_type_is_one_whose_charge_is_known_to_be_none(name: str) -> None:
    assert charges.unknown(TEMPLATES[name]) == []
    assert charges.standing(TEMPLATES[name]) == []
    charged = {each["Condition"] for each in TEMPLATES[name]["Resources"].values() if each.get("Type") in ASKED_FOR}
    off = {"WorkIsWatched": TEMPLATES[name]["Parameters"].get("Alarms", {}).get("Default") == "off"}
    assert all(off[each] for each in charged)


def test_a_type_that_nobody_looked_up_is_named() -> None:
    resources = {"Way": {"Type": "AWS::EC2::NatGateway"}, "Key": {"Type": "AWS::KMS::Key"}, "Part": {}}
    assert charges.unknown({"Resources": resources}) == ["AWS::EC2::NatGateway", "AWS::KMS::Key"]


def test_a_property_with_a_standing_charge_is_named() -> None:
    table = {"Type": "AWS::DynamoDB::Table", "Properties": {"ProvisionedThroughput": {"ReadCapacityUnits": 5}}}
    warm = {"Properties": {"SnapStart": {"ApplyOn": "PublishedVersions"}}}  # completes a function of Chalice's
    found = charges.standing({"Resources": {"Table": table, "APIHandler": warm}})
    assert found == ["Table: ProvisionedThroughput", "Table: its billing mode", "APIHandler: SnapStart"]


def test_calls_become_what_is_billed() -> None:
    counted = {
        ("lambda", "agent_sync"): 1_000_000.0,
        ("read", "api"): 3.0,
        ("read", "reconcile"): 4.0,
        ("sqs", "dead_letters"): 6.0,
        ("lambda", "provider_clouds"): 2.0,
        ("lambda", "provider_clouds/refresh"): 1.0,
    }
    used = charges.usage(counted)
    assert used["Lambda requests"] == 1_000_003
    assert used["Lambda time"] == pytest.approx(1_000_000 * 0.015 * 0.25 + (2 * 0.15 + 10) * 0.5)
    assert (used["table reads"], used["queue requests"]) == (7, 6)


def test_state_changes_are_billed_where_they_are_announced() -> None:
    changes = {INSTANCE: 2.0, RUN: 12.0}
    assert CHANGE not in plane.counts(10, 100)
    assert plane.counts(10, 100, changes)[CHANGE] == 2 * 10 + 12 * 100
    one = charges.announced(changes=8, calls=2)
    assert one == {"bus events": 1, "Lambda requests": 0.25, "Lambda time": pytest.approx(0.25 * 0.15 * 0.25)}


def test_changes_of_what_there_is_none_of_count_nothing() -> None:
    assert plane.counts(0, 1, {RUN: 12.0, NODE: 7.0})[CHANGE] == 12
    assert plane.counts(0, 1, {RUN: 12.0, NODE: 7.0}, {NODE: 3.0})[CHANGE] == 12 + 3 * 7


def test_services_add_what_they_use_beyond_machines_and_runs() -> None:
    counts = plane.counts(2, 1, more={REPLICA: 1.0, BUSY: 3.0})
    assert counts == {SCHEDULES: 1, ACCOUNT: 1, INSTANCE: 2, RUN: 1, REPLICA: 1, BUSY: 3}
    added = [line for line in plane.bill(RATES, counts) if line.driver == BUSY]
    assert plane.total(added) == pytest.approx(3 * plane.total(plane.bill(RATES, {BUSY: 1})))


def test_accounts_are_counted_or_one_where_there_are_instances() -> None:
    assert [plane.counts(number).get(ACCOUNT) for number in (0, 1, 100)] == [None, 1, 1]
    assert plane.counts(0, accounts=3)[ACCOUNT] == 3 and ACCOUNT not in plane.counts(5, accounts=0)


def test_a_bill_is_a_sum_of_products() -> None:
    rates = {
        SCHEDULES: {"table writes": 1e6},
        ACCOUNT: {"S3 writes": 1e5},
        INSTANCE: {"Lambda requests": 1e6, "S3 reads": 0.0},
        RUN: {"S3 writes": 1e3},
    }
    lines = plane.bill(rates, plane.counts(10))
    assert [(line.driver, line.amount, round(line.dollars, 6)) for line in lines] == [
        (RUN, 600_000, 3.0),
        (INSTANCE, 10_000_000, 2.0),
        (SCHEDULES, 1_000_000, 0.625),
        (ACCOUNT, 100_000, 0.5),
    ]
    assert plane.total(lines) == pytest.approx(6.125)


def test_the_guide_has_the_models_figures() -> None:
    assert cost_page.PAGE.read_text(encoding="utf-8") == cost_page.page(), "make docs"


def test_what_functions_log_is_counted() -> None:
    log, meter = logging.getLogger("chalicelib"), Meter()
    with metered_logs(meter):
        log.info("of nobody's call")
        with meter.during("api"):
            log.info("hello")
            log.debug("not logged there")
    (counted,) = meter.counts.items()
    assert counted[0] == ("log-bytes", "api") and OF_A_LINE + len("hello") < counted[1] < 500
    assert charges.usage(meter.counts) == {"function logs": counted[1] / charges.GB}


def test_bills_are_within_their_budgets_and_one_that_is_not_is_named() -> None:
    assert over(RATES) == []
    assert plane.total(plane.bill(RATES, {ACCOUNT: 1})) < 0.05, "beside the schedules"
    assert over({**RATES, SCHEDULES: {"queue requests": 1e6}}) == [0]
    assert over({**RATES, INSTANCE: {"function logs": 0.2}}) == [100, 1_000, 10_000]


@pytest.mark.slow
def test_what_is_recorded_is_what_a_month_in_small_measures() -> None:
    """Fewer machines for a shorter time than `make cost` plays, so not the same to the last call."""
    found = month.measured(machines=3, idle=month.TURN, steady=1)
    assert over(found.rates) == []
    for what, used in found.rates[SCHEDULES].items():
        assert used == pytest.approx(RATES[SCHEDULES][what], rel=0.01, abs=100), what
    assert found.rates[START]["state transitions"] == RATES[START]["state transitions"]
    for driver in (ACCOUNT, INSTANCE, RUN, NODE, START, REPLICA, DOOR, BUSY):
        for what in ("Lambda requests", "table reads", "table writes"):
            assert found.rates[driver][what] == pytest.approx(RATES[driver].get(what, 0), rel=0.3, abs=500), (
                driver,
                what,
            )
    assert found.a_sync <= 0.2
    assert found.changes[RUN] == pytest.approx(CHANGES[RUN], rel=0.1) and found.changes[INSTANCE] == 0
    assert found.rates[CHANGE] == pytest.approx(RATES[CHANGE], rel=0.1)


def test_prices_are_those_of_the_list() -> None:
    assert plane.price("Lambda requests") * 1e6 == pytest.approx(0.20)
    assert {name for name, _ in charges.BILLED.values()} | {"Lambda requests", "Lambda time", "bus events"} == set(
        PRICES
    )
