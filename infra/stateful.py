"""The stack `dstack-<stage>-data`: the table, bucket and queue, which must outlive every deployment.
`python -m infra.stateful` prints its template.

The table's schema comes from the store. Resources with state are retained when the stack is deleted.
"""

from __future__ import annotations

import json
from typing import Any

from chalicelib.store.dynamo import TTL, table_schema
from infra.functions import named
from infra.grants import dead_letter_queue
from infra.policies import VERSION, bucket_of

KEPT = {"DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain"}
LONGEST = 1_209_600  # seconds: 14 days, the longest that SQS keeps a message


def template() -> dict[str, Any]:
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "dstack: the table, the bucket and the queue of one control plane",
        "Parameters": {
            "Stage": {"Type": "String", "Default": "prod", "AllowedPattern": "[a-z][a-z0-9-]{0,20}"},
            "BucketName": {
                "Type": "String",
                "Default": "",
                "Description": "of a stage that is older than the region in its bucket's name, which it keeps",
            },
            "EncryptionKey": {
                "Type": "String",
                "Default": "",
                "Description": "the ARN of the KMS key that encrypts all this; without it, AWS's own keys do",
            },
        },
        "Conditions": {"BucketIsNamed": _set("BucketName"), "Encrypted": _set("EncryptionKey")},
        "Resources": _resources(),
        "Outputs": {
            "Table": {"Value": {"Ref": "Table"}},
            "Bucket": {"Value": {"Ref": "Bucket"}},
            "Stream": {"Value": {"Fn::GetAtt": ["Table", "StreamArn"]}},
        },
    }


def _set(parameter: str) -> dict[str, Any]:
    """The condition that the parameter isn't empty."""
    return {"Fn::Not": [{"Fn::Equals": [{"Ref": parameter}, ""]}]}


def _encrypted(with_key: Any, otherwise: Any = None) -> dict[str, Any]:
    """The value of a property where there is a key, and where there is none."""
    return {"Fn::If": ["Encrypted", with_key, otherwise or {"Ref": "AWS::NoValue"}]}


_KEY = {"Ref": "EncryptionKey"}


def _resources() -> dict[str, Any]:
    """The table is created last. If the first deployment fails, for instance because the bucket's name is taken,
    CloudFormation deletes the others; a table would be kept, and its name would block every later attempt."""
    before = {"Bucket": _bucket(), "BucketPolicy": _only_tls(), "Aside": _dead_letters()}
    return {**before, "Table": {**_table(), "DependsOn": sorted(before)}}


def _table() -> dict[str, Any]:
    properties = {
        "TableName": {"Fn::Sub": "dstack-${Stage}"},
        **table_schema(),
        "StreamSpecification": {"StreamViewType": "NEW_IMAGE"},  # free; `publish` reads it if there is an event bus
        "TimeToLiveSpecification": TTL,
        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
        "DeletionProtectionEnabled": True,
        "SSESpecification": _encrypted({"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": _KEY}),
    }
    return {"Type": "AWS::DynamoDB::Table", **KEPT, "Properties": properties}


def _bucket() -> dict[str, Any]:
    closed = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
    by_key = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": _KEY}
    encryption = {
        "ServerSideEncryptionByDefault": _encrypted(by_key, {"SSEAlgorithm": "AES256"}),
        "BucketKeyEnabled": _encrypted(True),  # or each object would be a call to KMS
    }
    properties = {
        "BucketName": {"Fn::If": ["BucketIsNamed", {"Ref": "BucketName"}, {"Fn::Sub": bucket_of("${Stage}")}]},
        "PublicAccessBlockConfiguration": dict.fromkeys(closed, True),
        "BucketEncryption": {"ServerSideEncryptionConfiguration": [encryption]},
        "LifecycleConfiguration": {"Rules": [_leftovers()]},
    }
    return {"Type": "AWS::S3::Bucket", **KEPT, "DeletionPolicy": "RetainExceptOnCreate", "Properties": properties}


def _only_tls() -> dict[str, Any]:
    """Allows access to the bucket through TLS only, even with a presigned URL."""
    arn = {"Fn::GetAtt": ["Bucket", "Arn"]}
    clear = {
        "Sid": "OnlyTls",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [arn, {"Fn::Sub": "${Bucket.Arn}/*"}],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    properties = {"Bucket": {"Ref": "Bucket"}, "PolicyDocument": {"Version": VERSION, "Statement": [clear]}}
    return {"Type": "AWS::S3::BucketPolicy", **KEPT, "DeletionPolicy": "RetainExceptOnCreate", "Properties": properties}


def _leftovers() -> dict[str, Any]:
    """Lifecycle rules for what no record refers to: incomplete uploads, and versions of deleted objects if the owner
    enables versioning. No rule uses an object's age, because a run that still runs may have the oldest log. Logs and
    archives are deleted by `functions.erase_unused`, which knows what runs."""
    return {
        "Id": "leftovers",
        "Status": "Enabled",
        "Prefix": "",
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
        "NoncurrentVersionExpiration": {"NoncurrentDays": 1},
        "ExpiredObjectDeleteMarker": True,
    }


def _dead_letters() -> dict[str, Any]:
    """The queue to which Lambda sends the events that it gives up on. Nothing polls it: `functions.dead_letters` reads
    it on a schedule, and a received message stays invisible for as long as one invocation may take."""
    properties = {
        "QueueName": {"Fn::Sub": dead_letter_queue("${Stage}")},
        "MessageRetentionPeriod": LONGEST,
        "VisibilityTimeout": named("dead_letters").timeout,
        "KmsMasterKeyId": _encrypted(_KEY),
    }
    return {"Type": "AWS::SQS::Queue", "Properties": properties}


if __name__ == "__main__":
    print(json.dumps(template(), indent=2))
