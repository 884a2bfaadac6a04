"""What Lambda gave up is told of where people look, and what was lost with it is done all the same."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.runtime import telemetry
from chalicelib.runtime.lambda_ import SqsDeadLetters
from chalicelib.runtime.root import Root
from functions import dead_letters
from tests.functions.test_handlers import Stack
from tests.harness.lambda_host import scheduled_event

QUEUE = "https://sqs/aside"


class Sqs:
    """Messages are handed out once, ten at most, and are gone when they are deleted."""

    def __init__(self, *bodies: str) -> None:
        self.bodies = dict(enumerate(bodies))
        self._out: set[int] = set()

    def receive_message(self, QueueUrl: str, MaxNumberOfMessages: int) -> dict[str, Any]:
        assert QueueUrl == QUEUE
        found = [(n, body) for n, body in self.bodies.items() if n not in self._out]
        self._out |= {n for n, _ in found[:MaxNumberOfMessages]}
        messages = [{"Body": body, "ReceiptHandle": str(n)} for n, body in found[:MaxNumberOfMessages]]
        return {"Messages": messages} if messages else {}

    def delete_message(self, QueueUrl: str, ReceiptHandle: str) -> None:
        del self.bodies[int(ReceiptHandle)]

    def left(self) -> int:
        return len(self.bodies)


def given_up(*events: Any) -> Sqs:
    """The messages in which Lambda wraps what it gave up."""
    context = {
        "functionArn": "arn:aws:lambda:us-east-1:1:function:dstack-dev-provider_clouds",
        "condition": "RetriesExhausted",
    }
    return Sqs(*(json.dumps({"version": "1.0", "requestContext": context, "requestPayload": each}) for each in events))


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    made = Stack.at(tmp_path)
    yield made
    made.root.close()


def handled(stack: Stack, sqs: Sqs) -> tuple[Any, dict[str, int]]:
    counted: dict[str, int] = {}
    queue = SqsDeadLetters(lambda service: sqs, QUEUE)
    root = Root(replace(stack.root.ports, dead_letters=queue, count=counted.__setitem__))
    return dead_letters.handler(scheduled_event("dead-letters"), None, root), counted


def test_a_purchase_that_was_given_up_is_told_on_its_instance_and_made_when_it_is_due(stack: Stack) -> None:
    stack.submit_run()
    sqs = given_up(*stack.events)
    stack.events.clear()  # its event failed too often, and comes no more
    assert handled(stack, sqs) == ({"reported": 1}, {telemetry.DEAD_LETTERS: 1}) and sqs.left() == 0
    events = stack.rig.ok("/api/events/list", {"target_instances": [stack.instance["id"]]})
    messages = [event["message"] for event in events if "failed too often" in event["message"]]
    assert messages == ["processing failed and will be retried (Create: it failed too often or waited too long; it "
                    "is repeated when it is due)"]  # fmt: skip
    stack.rig.world.clock.pass_(30)  # seconds: the effect had 22
    stack.reconcile()
    assert [event["effect"] for event in stack.events] == ["Create"]
    stack.perform()
    assert stack.instance["status"] == "provisioning" and stack.events == []


def test_a_message_that_names_no_unit_is_logged_whole(stack: Stack, caplog: pytest.LogCaptureFixture) -> None:
    hint = {"units": ["run/gone"]}
    sqs = Sqs(*given_up(hint, [1], {"effect": "Create", "unit": "x/y"}).bodies.values(), "no JSON", "[2]", "{}")
    with caplog.at_level(logging.ERROR):
        assert handled(stack, sqs) == ({"reported": 6}, {telemetry.DEAD_LETTERS: 6})
    logged = "\n".join(caplog.messages)
    assert json.dumps(hint) in logged and "no JSON" in logged and "[1]" in logged and "[2]" in logged
    assert "Create of x/y was given up" in logged
    assert sqs.left() == 0


def test_more_than_a_batch_is_told_in_one_turn(stack: Stack) -> None:
    sqs = given_up(*({"effect": "Create", "unit": f"instance/{n}"} for n in range(23)))
    assert handled(stack, sqs)[0] == {"reported": 23} and sqs.left() == 0


def test_a_message_stays_until_it_was_told(stack: Stack) -> None:
    """Whoever dies while it is told finds it again."""
    sqs = Sqs("one", "two")
    messages = SqsDeadLetters(lambda service: sqs, QUEUE)()
    assert next(messages) == "one" and sqs.left() == 2
    assert next(messages) == "two" and sqs.left() == 1
