"""Where Lambda has no Function URLs: agents' calls through the HTTP API that the template makes, on an emulator."""

from __future__ import annotations

import base64
import json
import urllib.request
from typing import Any

import pytest

from infra import agent_address
from tests.emulators.ministack import Emulator
from tests.harness.lambda_host import url_event

pytestmark = pytest.mark.slow
ECHO = "import json\ndef handler(event, context):\n    return {'statusCode': 202, 'body': json.dumps(event)}\n"
ROLE = "arn:aws:iam::000000000000:role/any"


def deployed(emulator: Emulator) -> str:
    """A function that answers with its event, behind the address that agents would get. Returns the API's id."""
    function = {"Handler": "index.handler", "Runtime": "python3.13", "Role": ROLE, "Code": {"ZipFile": ECHO}}
    template = {
        "Resources": {
            "AgentSync": {"Type": "AWS::Lambda::Function", "Properties": {"FunctionName": "agents-echo", **function}},
            **agent_address.resources("AgentSync", "agents", api=True),
        },
        "Outputs": {"AgentUrl": {"Value": agent_address.address("AgentSync", api=True)}},
    }
    formation = emulator.client("cloudformation")
    formation.create_stack(StackName="agents", TemplateBody=json.dumps(template))
    formation.get_waiter("stack_create_complete").wait(StackName="agents", WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    (output,) = formation.describe_stacks(StackName="agents")["Stacks"][0]["Outputs"]
    return str(output["OutputValue"]).partition("://")[2].partition(".")[0]


def test_a_call_through_the_api_is_the_event_of_a_function_url(emulator: Emulator) -> None:
    address = f"{emulator.url}/_aws/execute-api/{deployed(emulator)}/$default/agent/sync?a=1&b=2"
    body, headers = b'{"v": 1}', {"Authorization": "Bearer of-an-agent", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(address, body, headers), timeout=60) as answer:
        assert answer.status == 202
        event: dict[str, Any] = json.load(answer)
    usual = url_event("POST", "/agent/sync", "a=1&b=2", headers, body)
    assert (event["version"], event["rawPath"]) == (usual["version"], usual["rawPath"])
    assert event["requestContext"]["http"]["method"] == "POST"
    assert event["queryStringParameters"] == usual["queryStringParameters"]
    assert event["headers"].items() >= {name.lower(): value for name, value in headers.items()}.items()
    text = event["body"]
    assert (base64.b64decode(text) if event["isBase64Encoded"] else text.encode()) == body
