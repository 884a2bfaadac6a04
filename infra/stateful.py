"""`python -m infra.stateful`: the CloudFormation template of what must outlive every deployment: table, bucket, queues.

The table uses the store's own schema. Resources with state are retained when the stack is deleted.
"""

from __future__ import annotations

import json
from typing import Any

from chalicelib.domain.instants import SECOND
from chalicelib.planning.hosts import ADD_HOST, REMOVE_HOST
from chalicelib.store.dynamo import TTL, table_schema

KEPT = {"DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain"}
VISIBILITY = 180  # seconds: six times the longest pass, as AWS recommends for SQS event sources
TRIES = 5  # before a message is set aside


def template() -> dict[str, Any]:
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "dstack: the table, the bucket and the queues of one control plane",
        "Parameters": {"Stage": {"Type": "String", "Default": "prod", "AllowedPattern": "[a-z][a-z0-9-]{0,20}"}},
        "Resources": {"Table": _table(), "Bucket": _bucket(), **_queue("Wake"), **_queue("Effects"), **_hosts()},
        "Outputs": {
            "DSTACKTABLE": _output("DSTACK_TABLE", {"Ref": "Table"}),
            "DSTACKBUCKET": _output("DSTACK_BUCKET", {"Ref": "Bucket"}),
            "DSTACKWAKEQUEUE": _output("DSTACK_WAKE_QUEUE", {"Ref": "WakeQueue"}),
            "DSTACKEFFECTQUEUE": _output("DSTACK_EFFECT_QUEUE", {"Ref": "EffectsQueue"}),
            "DSTACKHOSTQUEUE": _output("DSTACK_HOST_QUEUE", {"Ref": "HostsQueue"}),
            "DSTACKKEYS": _output("DSTACK_KEYS", {"Fn::Sub": "/dstack-${Stage}"}),
        },
    }


def _table() -> dict[str, Any]:
    properties = {
        "TableName": {"Fn::Sub": "dstack-${Stage}"},
        **table_schema(),
        "TimeToLiveSpecification": TTL,
        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
        "DeletionProtectionEnabled": True,
    }
    return {"Type": "AWS::DynamoDB::Table", **KEPT, "Properties": properties}


def _bucket() -> dict[str, Any]:
    closed = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
    encryption = {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    properties = {
        "BucketName": {"Fn::Sub": "dstack-${Stage}-${AWS::AccountId}"},
        "PublicAccessBlockConfiguration": dict.fromkeys(closed, True),
        "BucketEncryption": {"ServerSideEncryptionConfiguration": [encryption]},
        "LifecycleConfiguration": {"Rules": [_leftovers()]},
    }
    return {"Type": "AWS::S3::Bucket", **KEPT, "Properties": properties}


def _leftovers() -> dict[str, Any]:
    """What no record speaks of: uploads that were broken off, and versions of deleted objects if the owner turns
    versioning on. No rule goes by an object's age: the log of a run that still runs may be older than any other, so
    `functions.erase_unused` deletes logs and archives, which knows what runs."""
    return {
        "Id": "leftovers",
        "Status": "Enabled",
        "Prefix": "",
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
        "NoncurrentVersionExpiration": {"NoncurrentDays": 1},
        "ExpiredObjectDeleteMarker": True,
    }


def _hosts() -> dict[str, Any]:
    """The queue of `functions.bootstrap_host`."""
    return _queue("Hosts", 6 * round(max(step.timeout for step in ADD_HOST.steps + REMOVE_HOST.steps) / SECOND))


def _queue(name: str, visibility: int = VISIBILITY) -> dict[str, Any]:
    """A queue, and the dead-letter queue for messages that failed too often."""
    aside = f"{name}Aside"
    redrive = {"deadLetterTargetArn": {"Fn::GetAtt": [aside, "Arn"]}, "maxReceiveCount": TRIES}
    stem = f"dstack-${{Stage}}-{name.lower()}"
    main = {"QueueName": {"Fn::Sub": stem}, "VisibilityTimeout": visibility, "RedrivePolicy": redrive}
    kept = {"QueueName": {"Fn::Sub": f"{stem}-aside"}, "MessageRetentionPeriod": 1_209_600}
    return {
        f"{name}Queue": {"Type": "AWS::SQS::Queue", "Properties": main},
        aside: {"Type": "AWS::SQS::Queue", "Properties": kept},
    }


def _output(setting: str, value: Any) -> dict[str, Any]:
    return {"Description": setting, "Value": value}


if __name__ == "__main__":
    print(json.dumps(template(), indent=2))  # noqa: T201
