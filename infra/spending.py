"""The stack `dstack-<stage>-spending`: the alarm on the control plane's own spending.

It is a daily budget of AWS, because that is the only alarm without a price. One of CloudWatch costs $0.10 a month for
each metric it looks at, and a metric of our own $0.30, so either alone would cost more than everything else does while
nothing runs; and a figure that our own code reports says nothing on the day on which that code is what runs away. The
account's `EstimatedCharges` are the month's for everything, and exist in one region where somebody switched them on.

A budget sees the real bill, a few hours late. It counts the services that the control plane is made of, in its region.
What else the account uses them for counts too, so it may speak too early, but never too late. Machines that runs rent
aren't in it; their prices are in every plan, and a fleet's size bounds them.

It is a stack of its own, because AWS refuses budgets to some accounts: to those of an organisation that keeps billing
to itself, to those that are younger than a day, and to whoever may not see bills. That must not undo anything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DOLLARS = 2  # a day: what 1,000 instances cost, and ten times what 100 do, so that nobody is woken for nothing
SERVICES = (
    "AWS Lambda",
    "Amazon API Gateway",
    "Amazon DynamoDB",
    "Amazon Simple Queue Service",
    "Amazon Simple Storage Service",
    "AmazonCloudWatch",
    "AWS Step Functions",
    "AWS X-Ray",
    "CloudWatch Events",  # the bus, by its name on bills
)


def template(stage: str) -> dict[str, Any]:
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "dstack: the alarm on what one control plane itself costs",
        "Parameters": parameters(),
        "Conditions": conditions(),
        "Resources": resources(stage),
    }


def resources(stage: str) -> dict[str, Any]:
    """The budget, and the topic that hears of it. `SpendingAlarm` 0: none. Names of budgets are those of the account in
    all regions."""
    alarm = {"Ref": "SpendingAlarm"}
    budget = {
        "BudgetName": {"Fn::Sub": f"dstack-{stage}-${{AWS::Region}}-spending"},
        "BudgetType": "COST",
        "TimeUnit": "DAILY",
        "BudgetLimit": {"Amount": alarm, "Unit": "USD"},
        "CostFilters": {"Service": list(SERVICES), "Region": [{"Ref": "AWS::Region"}]},
    }
    over = {
        "Notification": {"NotificationType": "ACTUAL", "ComparisonOperator": "GREATER_THAN", "Threshold": 100},
        "Subscribers": [{"SubscriptionType": "SNS", "Address": {"Ref": "SpendingTopic"}}],
    }
    speaks = {
        "Effect": "Allow",
        "Principal": {"Service": "budgets.amazonaws.com"},
        "Action": "sns:Publish",
        "Resource": {"Ref": "SpendingTopic"},
        "Condition": {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}},
    }
    policy = {"Topics": [{"Ref": "SpendingTopic"}], "PolicyDocument": {"Version": "2012-10-17", "Statement": [speaks]}}
    letter = {"Protocol": "email", "TopicArn": {"Ref": "SpendingTopic"}, "Endpoint": {"Ref": "SpendingEmail"}}
    return {
        "SpendingTopic": _made("AWS::SNS::Topic", "SpendingIsWatched", {"TopicName": f"dstack-{stage}-spending"}),
        "SpendingTopicMay": _made("AWS::SNS::TopicPolicy", "SpendingIsWatched", policy),
        "SpendingLetter": _made("AWS::SNS::Subscription", "SpendingIsWritten", letter),
        "SpendingBudget": _made(
            "AWS::Budgets::Budget",
            "SpendingIsWatched",
            {"Budget": budget, "NotificationsWithSubscribers": [over]},
        ),
    }


def parameters() -> dict[str, Any]:
    return {
        "SpendingAlarm": {
            "Type": "Number",
            "Default": DOLLARS,
            "MinValue": 0,
            "Description": "dollars a day of the control plane's own spending above which AWS says so; 0: never",
        },
        "SpendingEmail": {
            "Type": "String",
            "Default": "",
            "Description": "who is notified; without it, the topic's subscribers",
        },
    }


def conditions() -> dict[str, Any]:
    watched: dict[str, Any] = {"Fn::Not": [{"Fn::Equals": [{"Ref": "SpendingAlarm"}, "0"]}]}
    told = {"Fn::Not": [{"Fn::Equals": [{"Ref": "SpendingEmail"}, ""]}]}
    return {"SpendingIsWatched": watched, "SpendingIsWritten": {"Fn::And": [watched, told]}}


def told(chosen: Mapping[str, str]) -> str:
    """What a deployment says of it."""
    figure, email = chosen.get("SpendingAlarm", str(DOLLARS)), chosen.get("SpendingEmail", "")
    if figure == "0":
        return "No alarm is set on its spending: --set SpendingAlarm=2 sets one at $2 a day."
    who = email or "the topic SpendingTopic, to which --set SpendingEmail=ADDRESS subscribes you"
    return f"If it spends more than ${figure} a day, AWS tells {who}; --set SpendingAlarm=DOLLARS changes that."


def refused(why: str) -> str:
    """What a deployment says instead, if AWS didn't let it be made."""
    return (
        f"Everything is deployed but the alarm on its spending: {why}\n"
        "AWS has no budgets for accounts that are younger than a day, or whose organisation keeps billing to itself: "
        "deploy again later, or --set SpendingAlarm=0."
    )


def _made(kind: str, condition: str, properties: dict[str, Any]) -> dict[str, Any]:
    return {"Type": kind, "Condition": condition, "Properties": properties}
