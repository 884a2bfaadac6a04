"""Where there are no budgets, as in an emulator, the stack comes without the alarm."""

from __future__ import annotations

import json

from infra import spending
from tests.emulators.ministack import Emulator


def test_a_stack_without_the_alarm_asks_for_no_budget(emulator: Emulator) -> None:
    formation = emulator.client("cloudformation")
    formation.create_stack(
        StackName="spending",
        TemplateBody=json.dumps(spending.template("dev")),
        Parameters=[{"ParameterKey": "SpendingAlarm", "ParameterValue": "0"}],
    )
    formation.get_waiter("stack_create_complete").wait(
        StackName="spending", WaiterConfig={"Delay": 1, "MaxAttempts": 30}
    )
    made = formation.describe_stack_resources(StackName="spending")["StackResources"]
    assert made == []
