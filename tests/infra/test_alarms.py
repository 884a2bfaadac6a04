"""CloudWatch's alarms: none unless somebody asks, and then what the alerts for Prometheus say, as far as a stage's
metrics show it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from botocore.session import get_session
from botocore.validate import ParamValidator

from chalicelib.domain.objectives import ANSWERS, DECISIONS, OBJECTIVES, SPEED, STARTS
from infra import alarms, spending, stateful, stateless
from infra.functions import FUNCTIONS

ROOT = Path(__file__).parents[2]
RULES = {
    rule["alert"]: rule["expr"]
    for rule in yaml.safe_load((ROOT / "docs/prometheus/alerts.yml").read_text())["groups"][0]["rules"]
}
TEMPLATE = spending.template("dev")
MADE = {
    name: each["Properties"] for name, each in TEMPLATE["Resources"].items() if each["Type"] == "AWS::CloudWatch::Alarm"
}
OF_REQUESTS = [(objective, alert) for objective in (ANSWERS, SPEED) for alert in alarms.BURNS]


def rings(alarm: dict[str, Any], values: dict[str, float]) -> bool:
    """Whether it goes off over a window of these values, by the maths of CloudWatch."""
    expression = alarm["Metrics"][0]["Expression"]
    assert {each["Id"] for each in alarm["Metrics"][1:]} <= values.keys()
    known = {"IF": lambda holds, then, otherwise: then if holds else otherwise, "FILL": lambda value, _: value}
    result = eval(expression, {"__builtins__": {}}, known | values)
    compare = {"GreaterThanThreshold": float.__gt__, "LessThanThreshold": float.__lt__}[alarm["ComparisonOperator"]]
    return bool(compare(float(result), float(alarm["Threshold"])))


@pytest.mark.parametrize(("objective", "alert"), OF_REQUESTS)
def test_an_alarm_on_requests_goes_off_where_the_alert_fires(objective: str, alert: str) -> None:
    alarm = MADE[f"{objective.title()}{alert.removeprefix('DstackObjective')}"]
    factor = float(re.findall(r"> ([\d.]+) \*", RULES[alert])[0])
    hours = int(re.findall(r"\[(\d+)h\]", RULES[alert])[0])
    few = int(re.findall(r"> (\d+)$", RULES[alert])[0])
    assert {each["MetricStat"]["Period"] for each in alarm["Metrics"][1:]} == {hours * 3600}
    for total in (10, 100, 2000, 500_000):
        for missed in (0, 5, 6, 13, 15, 29, 144, 146, 2000, 7100, 7300, 71_000, 73_000):
            if missed <= total:
                fires = missed / total > factor * (1 - OBJECTIVES[objective].target) and missed > few
                values = {"failed": missed, "total": total, "quick": 100 - 100 * missed / total}
                assert rings(alarm, values) == fires, (missed, total)


def test_speed_is_the_share_that_is_quick_enough() -> None:
    (quick,) = {each["MetricStat"]["Stat"] for each in MADE["SpeedFailing"]["Metrics"][1:] if each["Id"] == "quick"}
    assert quick == "PR(:1000)" and OBJECTIVES[SPEED].within == 1_000_000


def test_passes_are_missed_where_none_ends_well() -> None:
    alarm = MADE["ReconcilerStopped"]
    assert rings(alarm, {"calls": 10, "failed": 10}) and not rings(alarm, {"calls": 10, "failed": 9})
    assert alarm["TreatMissingData"] == "breaching", "nobody calls it any more"
    others = [each["TreatMissingData"] for each in MADE.values() if each is not alarm]
    assert set(others) == {"notBreaching"}, "a quiet stage is none that fails"


def test_jobs_go_by_their_number() -> None:
    for objective in (DECISIONS, STARTS):
        alarm = MADE[f"{objective.title()}Failing"]
        assert (alarm["Threshold"], alarm["Period"]) == ({"Ref": "SlowJobs"}, 3600)
    assert TEMPLATE["Parameters"]["SlowJobs"]["Default"] == alarms.FEW


@pytest.mark.slow
def test_they_have_the_shape_that_cloudwatch_takes() -> None:
    """Its own description, which the SDK has."""
    takes = get_session().get_service_model("cloudwatch").operation_model("PutMetricAlarm").input_shape
    for name, each in MADE.items():
        given = {**each, "AlarmActions": ["arn"], "OKActions": ["arn"]}
        given |= {"Threshold": 5.0} if isinstance(each["Threshold"], dict) else {}
        assert not (wrong := ParamValidator().validate(given, takes)).has_errors(), (name, wrong.generate_report())


def test_they_read_what_the_stacks_resources_are_called() -> None:
    read = [one["MetricStat"]["Metric"] for each in MADE.values() for one in each.get("Metrics", ())[1:]]
    read += [each for each in MADE.values() if "MetricName" in each]
    named = {one["Value"] for each in read for one in each.get("Dimensions", ())}
    api = stateless.template("dev")["Resources"]["RestAPI"]["Properties"]["DefinitionBody"]["info"]["title"]
    queue = stateful.template()["Resources"]["Aside"]["Properties"]["QueueName"]["Fn::Sub"].replace("${Stage}", "dev")
    assert named == {api, queue, "dstack-dev-reconcile"} and "reconcile" in {each.name for each in FUNCTIONS}
    assert {each["Namespace"] for each in read if "Dimensions" not in each} == {"dstack-dev"}, "the table's name"


def test_none_is_made_unless_somebody_asks_and_all_notify_the_topic() -> None:
    assert TEMPLATE["Parameters"]["Alarms"]["Default"] == "off" and MADE
    for each in MADE.values():
        assert each["AlarmActions"] == each["OKActions"] == [{"Ref": "SpendingTopic"}]
    may = TEMPLATE["Resources"]["SpendingTopicMay"]["Properties"]["PolicyDocument"]["Statement"][0]["Principal"]
    assert "cloudwatch.amazonaws.com" in may["Service"]


@pytest.mark.parametrize("name", MADE)
def test_each_says_what_to_do(name: str) -> None:
    alert, page = re.findall(r"^(\w+): .* What to do: (\S+\.md)$", MADE[name]["AlarmDescription"])[0]
    watching = (ROOT / "docs/operate/watch.md").read_text()
    assert (ROOT / page).read_text().startswith(f"# {alert}\n") and f"[{alert}](runbooks/" in watching
    assert alert in RULES or alert == "DstackEventsSetAside"


def test_what_they_cost_is_said() -> None:
    monthly = f"${alarms.metrics('dev') * alarms.PRICE:.2f}"
    page = " ".join((ROOT / "docs/operate/watch.md").read_text().split())
    assert f"{alarms.metrics('dev')} metrics, for {monthly} a month" in page
    assert monthly in alarms.describe("dev", {"Alarms": "on"}) and alarms.describe("dev", {}) == ""
