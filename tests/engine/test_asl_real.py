"""State machines on an emulator's Step Functions, with a function that it runs itself.

The function is a stand-in that does what it is asked for, or fails: this shows that the machines are accepted, and go
the way that they declare. The emulator reports every exception as `Runtime.HandlerError`, so that an error is known by
its name is shown in `test_asl.py` alone; here each is repeated before the undoing begins.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest

from chalicelib.engine import asl
from chalicelib.engine.workflows import WORKFLOWS
from tests.emulators.ministack import Emulator
from tests.harness.server import until

FUNCTION = """
import json, os, urllib.request

def handler(event, context):
    wanted = os.environ["FAILS"]
    if event["step"] == wanted and not event["undo"]:
        raise ValueError("it failed")
    if event.get("token"):
        body = json.dumps({"taskToken": event["token"], "output": json.dumps({"Payload": {"relay": "there"}})}).encode()
        headers = {
            "X-Amz-Target": "AWSStepFunctions.SendTaskSuccess", "Content-Type": "application/x-amz-json-1.0",
            "Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/states/aws4_request",
        }
        urllib.request.urlopen(urllib.request.Request(os.environ["EMULATOR"], body, headers), timeout=20).read()
    return {"relay": "there"}
"""


def deployed(emulator: Emulator, name: str, fails: str) -> str:
    """The state machine's ARN. Pauses are as short as they may be, and each error is repeated once."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("index.py", FUNCTION)
    role = "arn:aws:iam::000000000000:role/any"
    function = emulator.client("lambda").create_function(
        FunctionName=f"{name}-{fails or 'well'}", Runtime="python3.11", Role=role, Handler="index.handler",
        Code={"ZipFile": packed.getvalue()}, Timeout=30,
        Environment={"Variables": {"FAILS": fails, "EMULATOR": emulator.url}},
    )["FunctionArn"]  # fmt: skip
    machine = asl.render(WORKFLOWS[name], function, "aws")
    for state in machine["States"].values():
        for retry in state.get("Retry", ()):
            retry.update({key: 1 for key in ("IntervalSeconds", "MaxAttempts") if retry.get(key, 0) > 1})
    made = emulator.client("stepfunctions").create_state_machine(
        name=f"{name}-{fails or 'well'}", definition=json.dumps(machine), roleArn=role
    )
    return str(made["stateMachineArn"])


def played(emulator: Emulator, name: str, fails: str = "") -> tuple[str, list[str]]:
    """How the execution ends, and the states that it entered."""
    steps = emulator.client("stepfunctions")
    started = steps.start_execution(
        stateMachineArn=deployed(emulator, name, fails), name="one", input=json.dumps(asl.first_input("w"))
    )["executionArn"]

    def found() -> dict[str, Any]:
        return dict(steps.describe_execution(executionArn=started))

    until("the execution to end", lambda: found()["status"] != "RUNNING")
    events = steps.get_execution_history(executionArn=started, maxResults=1000)["events"]
    entered = [each["stateEnteredEventDetails"]["name"] for each in events if "stateEnteredEventDetails" in each]
    return found()["status"], entered


@pytest.mark.parametrize("name", sorted(WORKFLOWS))
def test_each_goes_to_its_end(emulator: Emulator, name: str) -> None:
    ended, entered = played(emulator, name)
    assert (ended, entered[-1]) == ("SUCCEEDED", asl.DONE), entered
    wanted = [step.name for step in WORKFLOWS[name].steps]
    assert [state for state in entered if state in wanted] == wanted


def test_one_that_fails_is_undone_from_there(emulator: Emulator) -> None:
    ended, entered = played(emulator, "add_host", "start")
    assert (ended, entered[-1]) == ("FAILED", asl.UNDONE), entered
    assert [state for state in entered if state.startswith("undo ") and not state.endswith("?")] == [
        "undo start",
        "undo relay",
        "undo install",
    ]
