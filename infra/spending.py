"""The stack `dstack-<stage>-spending`: an alarm on the control plane's own spending.

It is a daily AWS budget, because that is the only free alarm. A CloudWatch alarm costs $0.10 a month for each metric,
and a custom metric $0.30, so either would cost more than everything else does while nothing runs. A metric from our own
code is also useless on the day on which that code is what runs away. The account's `EstimatedCharges` are the whole
month's for everything, and exist in one region only, and only if somebody enabled them.

A budget sees the real bill, a few hours late. It counts the services that the control plane uses, in its region. The
account's other use of them counts too, so the alarm may come too early, but never too late. Machines that runs rent
aren't included; their prices are in every plan, and a fleet's size limits them.

It has its own stack, because AWS denies budgets to some accounts: to members of an organisation that manages billing
centrally, to accounts younger than a day, and to users without access to bills. That must not roll back anything else.
CloudWatch's alarms (`alarms.py`), for whoever asks for them, are in it, too, and notify the same topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infra import alarms

DOLLARS = 2  # a day: the cost of 1,000 instances, ten times that of 100, so that there are few false alarms
SERVICES = (
    "AWS Lambda",
    "Amazon API Gateway",
    "Amazon DynamoDB",
    "Amazon Simple Queue Service",
    "Amazon Simple Storage Service",
    "AmazonCloudWatch",
    "AWS Step Functions",
    "AWS X-Ray",
    "CloudWatch Events",  # the event bus's name on bills
)


def template(stage: str, *, budget: bool = True) -> dict[str, Any]:
    """Without `budget` it doesn't name what CloudFormation doesn't know in every region."""
    notifying = ("budgets.amazonaws.com", "cloudwatch.amazonaws.com")
    made, known = resources(stage, notifying if budget else notifying[1:]), conditions()
    if not budget:
        del made["SpendingBudget"], known["SpendingIsWatched"]
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "dstack: the alarms on what one control plane itself costs, and on how it works",
        "Parameters": parameters(),
        "Conditions": known,
        "Resources": made | alarms.resources(stage, {"Ref": "SpendingTopic"}),
    }


def resources(stage: str, notifying: Sequence[str]) -> dict[str, Any]:
    """The budget, and the topic that it and other alarms notify; `notifying`: the services that may. Without any alarm,
    there is no topic. Budget names are shared by all regions of an account."""
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
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": list(notifying)},
        "Action": "sns:Publish",
        "Resource": {"Ref": "SpendingTopic"},
        "Condition": {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}},
    }
    policy = {
        "Topics": [{"Ref": "SpendingTopic"}],
        "PolicyDocument": {"Version": "2012-10-17", "Statement": [statement]},
    }
    subscription = {"Protocol": "email", "TopicArn": {"Ref": "SpendingTopic"}, "Endpoint": {"Ref": "SpendingEmail"}}
    return {
        "SpendingTopic": _resource("AWS::SNS::Topic", "AnythingIsWatched", {"TopicName": f"dstack-{stage}-spending"}),
        "SpendingTopicMay": _resource("AWS::SNS::TopicPolicy", "AnythingIsWatched", policy),
        "SpendingLetter": _resource("AWS::SNS::Subscription", "SomebodyIsWritten", subscription),
        "SpendingBudget": _resource(
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
            "Description": "dollars a day of the control plane's own spending above which AWS notifies you; 0: never",
        },
        "SpendingEmail": {
            "Type": "String",
            "Default": "",
            "Description": "who is notified; without it, the topic's subscribers",
        },
        **alarms.parameters(),
    }


def conditions() -> dict[str, Any]:
    spending: dict[str, Any] = {"Fn::Not": [{"Fn::Equals": [{"Ref": "SpendingAlarm"}, "0"]}]}
    work: dict[str, Any] = {"Fn::Equals": [{"Ref": "Alarms"}, "on"]}
    has_email = {"Fn::Not": [{"Fn::Equals": [{"Ref": "SpendingEmail"}, ""]}]}
    return {
        "SpendingIsWatched": spending,
        alarms.CONDITION: work,
        "AnythingIsWatched": {"Fn::Or": [spending, work]},
        "SomebodyIsWritten": {"Fn::And": [{"Fn::Or": [spending, work]}, has_email]},
    }


def describe(chosen: Mapping[str, str]) -> str:
    """The message that a deployment prints about the alarm."""
    figure, email = chosen.get("SpendingAlarm", str(DOLLARS)), chosen.get("SpendingEmail", "")
    if figure == "0":
        return "No alarm is set on its spending: --set SpendingAlarm=2 sets one at $2 a day."
    recipient = email or "the topic SpendingTopic, to which --set SpendingEmail=ADDRESS subscribes you"
    return (
        f"If it spends more than ${figure} a day, AWS notifies {recipient}; --set SpendingAlarm=DOLLARS changes that."
    )


def describe_refusal(why: str) -> str:
    """The message if AWS didn't allow the alarm."""
    return (
        f"Everything is deployed but the alarms: {why}\n"
        "AWS has no budgets in some regions, and none for accounts that are younger than a day, or whose organisation "
        "keeps billing to itself: deploy again later, or --set SpendingAlarm=0."
    )


def _resource(kind: str, condition: str, properties: dict[str, Any]) -> dict[str, Any]:
    return {"Type": kind, "Condition": condition, "Properties": properties}
