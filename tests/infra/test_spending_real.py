"""Where there are no budgets, as in an emulator, the stack comes without them. The emulator's CloudFormation makes no
alarms with maths either; `test_alarms.py` does the sums."""

from __future__ import annotations

import json
from typing import Any

from infra import spending
from tests.emulators.ministack import Emulator


def made(emulator: Emulator, stage: str, **chosen: str) -> list[dict[str, Any]]:
    formation = emulator.client("cloudformation")
    template = spending.template(stage)
    with_maths = [name for name, each in template["Resources"].items() if "Metrics" in each["Properties"]]
    kept = {name: each for name, each in template["Resources"].items() if name not in with_maths}
    formation.create_stack(
        StackName=f"{stage}-spending",
        TemplateBody=json.dumps({**template, "Resources": kept}),
        Parameters=[{"ParameterKey": name, "ParameterValue": value} for name, value in chosen.items()],
    )
    formation.get_waiter("stack_create_complete").wait(
        StackName=f"{stage}-spending", WaiterConfig={"Delay": 1, "MaxAttempts": 30}
    )
    found: list[dict[str, Any]] = formation.describe_stack_resources(StackName=f"{stage}-spending")["StackResources"]
    return found


def test_a_stack_without_the_alarm_asks_for_no_budget(emulator: Emulator) -> None:
    assert made(emulator, "unwatched", SpendingAlarm="0") == []


def test_alarms_on_work_need_no_budget_and_write_to_the_same_address(emulator: Emulator) -> None:
    made(emulator, "watched", SpendingAlarm="0", Alarms="on", SpendingEmail="me@example.com", SlowJobs="7")
    found = emulator.client("cloudwatch").describe_alarms(AlarmNamePrefix="dstack-watched-")["MetricAlarms"]
    alarms = {each["AlarmName"].removeprefix("dstack-watched-"): each for each in found}
    jobs = {"objective-failing-starts", "objective-failing-decisions"}
    assert alarms.keys() == jobs | {"units-failing", "effects-raising", "events-set-aside"}
    assert alarms["objective-failing-starts"]["Threshold"] == 7
    (topic,) = {action for each in found for action in each["AlarmActions"]}
    (letter,) = emulator.client("sns").list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
    assert (letter["Protocol"], letter["Endpoint"]) == ("email", "me@example.com")
