"""The alarm on the control plane's own spending: on by default, and without a charge of its own."""

from __future__ import annotations

from chalicelib.billing import plane
from chalicelib.billing.plane_rates import RATES
from infra import charges, spending, stateless

TEMPLATE = spending.template("dev")


def test_a_days_spending_is_watched_unless_somebody_chose_otherwise() -> None:
    made = TEMPLATE["Resources"]["SpendingBudget"]
    assert TEMPLATE["Parameters"]["SpendingAlarm"]["Default"] == spending.DOLLARS
    assert made["Properties"]["Budget"]["TimeUnit"] == "DAILY"
    assert made["Properties"]["Budget"]["BudgetLimit"]["Amount"] == {"Ref": "SpendingAlarm"}
    (notice,) = made["Properties"]["NotificationsWithSubscribers"]
    assert notice["Subscribers"] == [{"SubscriptionType": "SNS", "Address": {"Ref": "SpendingTopic"}}]
    of_spending = [each for name, each in TEMPLATE["Resources"].items() if name.startswith("Spending")]
    assert {each["Condition"] for each in TEMPLATE["Resources"].values()} == set(TEMPLATE["Conditions"])
    assert of_spending and all(each["Type"] in charges.CHARGES for each in of_spending)


def test_what_parameters_switch_on_is_counted_too() -> None:
    """The bus, which bills call by its old name, and traces."""
    assert {"Bus", "Tracing"} <= stateless.template("dev")["Parameters"].keys()
    counted = TEMPLATE["Resources"]["SpendingBudget"]["Properties"]["Budget"]["CostFilters"]["Service"]
    assert {"CloudWatch Events", "AWS X-Ray"} <= set(counted)


def test_its_figure_is_above_what_a_hundred_instances_cost_and_below_ten_thousand() -> None:
    def daily(instances: int) -> float:
        return plane.total(plane.bill(RATES, plane.counts(instances))) / 30

    assert 5 * daily(100) < spending.DOLLARS < daily(10_000)


def test_a_deployment_says_the_figure_and_who_hears_of_it() -> None:
    assert "more than $2 a day, AWS notifies the topic" in spending.describe({})
    assert "more than $9 a day, AWS notifies me@example.com" in spending.describe(
        {"SpendingAlarm": "9", "SpendingEmail": "me@example.com"}
    )
    assert spending.describe({"SpendingAlarm": "0"}).startswith("No alarm")
