"""The stage's bus, switched on: what it brings, and a rule that acts, as the guide has them."""

from __future__ import annotations

import json
from typing import Any

from chalicelib.domain.state_changes import StateChange
from tests.e2e.aws.deployment import PATIENCE, STAGE
from tests.e2e.aws.journey import Journey
from tests.harness.server import until
from tests.runtime.test_webhooks_real import block

BUS = f"dstack-{STAGE}"
PROJECT = "resumed"
ARN = "arn:aws:lambda:us-east-1:000000000000:function:dstack-e2e-automate"
TRAIN = "type: task\nname: train\ncommands: [ls]\n"  # nowhere to run, so it fails


def announced(trip: Journey) -> None:
    """The bus is switched on: a queue gets each change of state, and a rule applies a stored configuration, once. From
    then on agents call an API, as where there are no Function URLs."""
    assert trip.one.front is not None
    with trip.one.front.closed():
        # The emulator sees no change where only a parameter is another, so a setting is changed, too.
        trip.one.make("deploy", args="--set Bus=on --set AgentApi=on", DSTACK_RETAIN_EVENTS="60")
    trip.one.lead()
    assert trip.one.call("/api/server/get_cost", {})["counts"]["a state change"] > 0, "the API knows of the bus"
    (follows,) = trip.one.client("lambda").list_event_source_mappings()["EventSourceMappings"]
    assert follows["FunctionArn"].endswith(f"{BUS}-publish") and f"table/{BUS}/stream/" in follows["EventSourceArn"]
    queue, stage = rules(trip), trip.at(PROJECT)
    (stage.home / "retrain.dstack.yml").write_text(block("retrain.dstack.yml"))
    (stage.home / "train.dstack.yml").write_text(TRAIN)
    for command in (["automation", "add", "-f", "retrain.dstack.yml"], ["apply", "-y", "-d", "-f", "train.dstack.yml"]):
        output, status = stage.dstack(command)
        assert status == 0, output
    stage.until("the rule to apply", lambda: applied(trip) == 1)
    changes: dict[str, StateChange] = {}
    until("the queue to have all", lambda: missing(trip, queue, changes) == set(), every=0.5, seconds=PATIENCE)
    (failed,) = (one for one in changes.values() if (one.target.name, one.after) == ("train", "failed"))
    assert failed.project is not None and failed.project.name == PROJECT
    order = {"rule": "resume", "event": failed.id, "project": PROJECT, "configuration": "retrain", "action": "apply"}
    answer = trip.one.client("lambda").invoke(FunctionName=f"{BUS}-automate", Payload=json.dumps(order).encode())
    assert json.loads(answer["Payload"].read()) == {"refused": ""}
    assert applied(trip) == 1
    unruled(trip, queue)
    trip.clear(stage)


def rules(trip: Journey) -> str:
    """The guide's rule, and one that brings everything to a queue. Returns the queue's URL."""
    events, sqs = trip.one.client("events"), trip.one.client("sqs")
    pattern = json.loads(block("pattern.json").replace('"main"', f'"{PROJECT}"'))
    targets = block("targets.json").replace("arn:aws:lambda:REGION:ACCOUNT:function:dstack-prod-automate", ARN)
    events.put_rule(EventBusName=BUS, Name="resume", EventPattern=json.dumps(pattern))
    chosen = json.loads(targets.replace('\\"main\\"', f'\\"{PROJECT}\\"'))
    assert events.put_targets(EventBusName=BUS, Rule="resume", Targets=chosen)["FailedEntryCount"] == 0
    url = str(sqs.create_queue(QueueName="heard")["QueueUrl"])
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(EventBusName=BUS, Name="all", EventPattern=json.dumps({"source": ["dstack"]}))
    events.put_targets(EventBusName=BUS, Rule="all", Targets=[{"Id": "heard", "Arn": arn}])
    return url


def unruled(trip: Journey, queue: str) -> None:
    """A bus with rules can't be deleted. The queue was this journey's own."""
    events = trip.one.client("events")
    for rule, target in (("resume", "automate"), ("all", "heard")):
        events.remove_targets(EventBusName=BUS, Rule=rule, Ids=[target])
        events.delete_rule(EventBusName=BUS, Name=rule)
    trip.one.client("sqs").delete_queue(QueueUrl=queue)


def missing(trip: Journey, queue: str, changes: dict[str, StateChange]) -> set[str]:
    """The events of the project's runs and jobs that the queue hasn't brought yet."""
    sqs = trip.one.client("sqs")
    while messages := sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages"):
        for message in messages:
            event: dict[str, Any] = json.loads(message["Body"])
            assert (event["source"], event["detail-type"]) == ("dstack", "State Change")
            change = StateChange.model_validate(event["detail"])
            changes[change.id] = change
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    query = {"within_projects": [project_id(trip)], "include_target_types": ["run", "job"]}
    return {one["id"] for one in trip.one.call("/api/events/list", query)} - changes.keys()


def applied(trip: Journey) -> int:
    events = trip.one.call("/api/events/list", {"within_projects": [project_id(trip)]})
    return sum(one["message"] == "retrain is applied by rule resume" for one in events)


def project_id(trip: Journey) -> str:
    return str(trip.one.call(f"/api/projects/{PROJECT}/get", {})["project_id"])
