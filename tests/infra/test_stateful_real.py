"""The stateful stack, created by an emulator of CloudFormation."""

from __future__ import annotations

import json

from infra.stateful import template
from tests.emulators.ministack import Emulator


def test_an_emulator_accepts_it(emulator: Emulator) -> None:
    formation = emulator.client("cloudformation")
    stage = {
        "ParameterKey": "Stage",
        "ParameterValue": "made",
    }  # other tests of the same emulator have one of their own
    formation.create_stack(StackName="state", TemplateBody=json.dumps(template()), Parameters=[stage])
    formation.get_waiter("stack_create_complete").wait(StackName="state", WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    outputs = formation.describe_stacks(StackName="state")["Stacks"][0]["Outputs"]
    made = {output["OutputKey"]: output["OutputValue"] for output in outputs}
    assert made["Bucket"] == f"dstack-made-000000000000-{formation.meta.region_name}"
    table = emulator.client("dynamodb").describe_table(TableName=made["Table"])["Table"]
    assert {index["IndexName"] for index in table["GlobalSecondaryIndexes"]} == {"gsi1", "gsi2", "due"}
    sqs = emulator.client("sqs")
    sqs.send_message(QueueUrl=sqs.get_queue_url(QueueName=f"{made['Table']}-aside")["QueueUrl"], MessageBody="{}")
