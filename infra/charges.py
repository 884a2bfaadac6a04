"""What the stacks cost while idle, and what a function's calls cost: the part of the bill that the templates decide.

Every resource type that the templates may use is listed here with its standing charge, which is zero for all that are
made without being asked for. A test fails for a template with a type that isn't listed, so a new one needs its price
looked up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from chalicelib.billing.plane import SECONDS, USUALLY, Usage
from infra.functions import FUNCTIONS

FREE = "nothing while it isn't used"
CHARGES: Mapping[str, str] = {
    "AWS::ApiGateway::RestApi": FREE,
    "AWS::ApiGatewayV2::Api": FREE,
    "AWS::ApiGatewayV2::Integration": FREE,
    "AWS::ApiGatewayV2::Route": FREE,
    "AWS::ApiGatewayV2::Stage": FREE,
    "AWS::Budgets::Budget": "nothing: budgets that start no actions are free",
    "AWS::CloudWatch::Alarm": "$0.10 a month for each metric that it reads: none is made unless `Alarms` is on",
    "AWS::DynamoDB::Table": "nothing but its storage, as it is billed by request",
    "AWS::Events::EventBus": FREE,
    "AWS::Events::Rule": FREE,
    "AWS::IAM::Role": FREE,
    "AWS::Lambda::EventInvokeConfig": FREE,
    "AWS::Lambda::EventSourceMapping": "nothing: what Lambda reads of a table's stream is free",
    "AWS::Lambda::Function": FREE,
    "AWS::Lambda::Permission": FREE,
    "AWS::Lambda::Url": FREE,
    "AWS::Logs::LogGroup": FREE,
    "AWS::S3::Bucket": FREE,
    "AWS::S3::BucketPolicy": FREE,
    "AWS::SNS::Subscription": FREE,
    "AWS::SNS::Topic": FREE,
    "AWS::SNS::TopicPolicy": FREE,
    "AWS::SQS::Queue": FREE,
    "AWS::SQS::QueuePolicy": FREE,
    "AWS::SSM::Parameter": "nothing, as it is a standard one",
    "AWS::Serverless::Api": FREE,
    "AWS::Serverless::Function": FREE,
    "AWS::StepFunctions::StateMachine": FREE,
}

# Properties that add a standing charge to a resource of those types.
STANDING = frozenset(
    {"CacheClusterEnabled", "ProvisionedConcurrencyConfig", "ProvisionedThroughput", "SnapStart", "Tier"}
)

GB = 1024**3


def unknown(template: Mapping[str, Any]) -> list[str]:
    """Resource types that aren't listed here."""
    return sorted({resource["Type"] for resource in template["Resources"].values() if "Type" in resource} - {*CHARGES})


def standing(template: Mapping[str, Any]) -> list[str]:
    """Properties in the template that cost money even while nothing happens."""
    found = []
    for name, resource in template["Resources"].items():
        properties = resource.get("Properties", {})
        found += [f"{name}: {each}" for each in sorted(STANDING & properties.keys())]
        if resource.get("Type") == "AWS::DynamoDB::Table" and properties.get("BillingMode") != "PAY_PER_REQUEST":
            found.append(f"{name}: its billing mode")
    return found


def usage(counted: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """Converts the meter's counts into billed usage. `within`: a function, or one kind of its work
    (`function/work`)."""
    memory = {function.name: function.memory for function in FUNCTIONS}
    found: Counter[str] = Counter()
    for (what, within), amount in counted.items():
        if what == "lambda":
            seconds = SECONDS.get(within, USUALLY)
            found["Lambda requests"] += amount  # type: ignore[assignment]
            found["Lambda time"] += amount * seconds * memory[within.split("/")[0]] / 1024  # type: ignore[assignment]
        elif what in BILLED:
            name, each = BILLED[what]
            found[name] += amount * each  # type: ignore[assignment]
    return dict(found)


BILLED = {
    "api-request": ("API Gateway requests", 1.0),
    "read": ("table reads", 1.0),
    "write": ("table writes", 1.0),
    "s3-put": ("S3 writes", 1.0),
    "s3-get": ("S3 reads", 1.0),
    "sqs": ("queue requests", 1.0),
    "transition": ("state transitions", 1.0),
    "table-bytes": ("table storage", 1 / GB),
    "kept-bytes": ("S3 storage", 1 / GB),
    "log-bytes": ("function logs", 1 / GB),
}


def announced(changes: float, calls: float) -> dict[str, float]:
    """The usage per state change, where the publishing function announced this many changes in this many calls."""
    return {"bus events": 1.0, **scaled(usage({("lambda", "publish"): calls}), 1 / changes)}


def less(more: Usage, part: Usage, times: float = 1.0) -> dict[str, float]:
    """The usage without this many times the part."""
    return {what: amount - times * part.get(what, 0.0) for what, amount in more.items()}


def scaled(used: Usage, factor: float) -> dict[str, float]:
    return {what: amount * factor for what, amount in used.items()}
