"""What whoever deploys a stage must be allowed: our commands' calls, and those that CloudFormation makes for them.

CloudFormation has no role of its own here, so it acts with the deployer's rights. Everything is limited to the stage's
names, but for what AWS gives no names: APIs, and calls that only list.

What a deployment chooses shapes the policy. With a boundary, no role can be made or changed without it. With tags,
nothing that can have tags is made without them. What nobody chose isn't allowed: a VPC, a key, a bus, a private API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.account import DATA, SPENDING
from infra.agent_address import USUAL, is_api
from infra.grants import TABLE, dead_letter_queue
from infra.policies import ACCOUNT, PARTITION, REGION, Grant

BUCKET, PARAMETERS = "s3:{bucket}", "ssm:parameter/dstack-{stage}"
FUNCTIONS = "lambda:function:dstack-{stage}-*"
LOGS = "logs:log-group:/aws/lambda/dstack-{stage}-*"
QUEUE = f"sqs:{dead_letter_queue('{stage}')}"
MACHINES = "states:stateMachine:dstack-{stage}-*"
BUS = "events:event-bus/dstack-{stage}"
TOPIC = "sns:dstack-{stage}-spending"
ALARMS = "cloudwatch:alarm:dstack-{stage}-*"
STACKS = tuple(f"cloudformation:stack/dstack-{{stage}}{suffix}/*" for suffix in ("", DATA, SPENDING))
KEPT = 24  # characters of a stack's name that CloudFormation leaves in the names that it makes up
PASSED_TO = ["lambda.amazonaws.com", "states.amazonaws.com"]  # in every partition


@dataclass(frozen=True)
class Options:
    """What a deployment chooses, as far as it changes what the deployer needs."""

    boundary: str = ""  # the ARN of a policy
    key: str = ""  # the ARN of a KMS key
    tags: Mapping[str, str] = field(default_factory=dict)
    alarm: bool = True  # on spending
    alarms: bool = False  # of CloudWatch
    bus: bool = False  # of EventBridge, for state changes
    vpc: bool = False  # a function is put into one
    private: bool = False  # the API has no public address
    agent_api: bool = False  # agents call an API instead of a Function URL

    @property
    def notifies(self) -> bool:
        """There is a topic for alarms."""
        return self.alarm or self.alarms

    @staticmethod
    def of(parameters: Mapping[str, str], tags: Mapping[str, str], partition: str = USUAL) -> Options:
        """By the stacks' parameters, and the partition that they are deployed to."""
        return Options(
            parameters.get("Boundary", ""),
            parameters.get("EncryptionKey", ""),
            tags,
            alarm=parameters.get("SpendingAlarm") != "0",
            alarms=parameters.get("Alarms") == "on",
            bus=parameters.get("Bus") == "on",
            vpc=bool(parameters.get("BastionSubnets")),
            private=bool(parameters.get("ApiEndpoints")),
            agent_api=is_api(parameters, partition),
        )


def grants(stage: str, chosen: Options) -> tuple[Grant, ...]:
    return (
        *_of_cloudformation(),
        *_of_creation(stage, chosen),
        *_of_roles(stage),
        *_of_data(),
        *_of_functions(stage),
        *_of_choices(chosen),
    )


def _grant(sid: str, actions: str, *resources: str, **conditions: Mapping[str, Any]) -> Grant:
    """`actions`: those of one service, separated by spaces: `sns:GetTopicAttributes DeleteTopic`."""
    service, _, names = actions.partition(":")
    return Grant(sid, tuple(f"{service}:{name}" for name in names.split()), resources, conditions)


def made_up(stage: str) -> str:
    """The beginning of the names that CloudFormation makes up, as it does for roles and rules."""
    name = f"dstack-{stage}"
    return f"{name}-" if len(name) < KEPT else name[:KEPT]


def _of_cloudformation() -> Iterator[Grant]:
    yield _grant(
        "Stacks",
        "cloudformation:CreateChangeSet DeleteChangeSet DeleteStack DescribeChangeSet DescribeStackEvents "
        "DescribeStackResource DescribeStacks ExecuteChangeSet ListStackResources",
        *STACKS,
    )
    yield _grant("Transform", "cloudformation:CreateChangeSet", "cloudformation:aws:transform/Serverless-2016-10-31")
    yield _grant("Templates", "cloudformation:GetTemplateSummary", "*")  # a template's, which isn't a stack's yet


def _of_creation(stage: str, chosen: Options) -> Iterator[Grant]:
    tags = {f"aws:RequestTag/{key}": value for key, value in sorted(chosen.tags.items())}
    bound = {"iam:PermissionsBoundary": chosen.boundary} if chosen.boundary else {}
    actions = ["dynamodb:CreateTable", "lambda:CreateFunction", "logs:CreateLogGroup", "sqs:CreateQueue"]
    resources = [TABLE, FUNCTIONS, LOGS, QUEUE, MACHINES]
    yield Grant("Create", (*actions, "states:CreateStateMachine"), tuple(resources), _equal(tags))
    roles = f"iam:role/{made_up(stage)}*"
    yield _grant("CreateRoles", "iam:CreateRole", roles, **_equal(tags | bound))
    keep = " PutRolePermissionsBoundary" if bound else ""
    yield _grant("AllowRoles", f"iam:PutRolePolicy{keep}", roles, **_equal(bound))
    if chosen.notifies:
        yield _grant("CreateTopic", "sns:CreateTopic", TOPIC, **_equal(tags))


def _equal(keys: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
    return {"StringEquals": keys} if keys else {}


def _of_roles(stage: str) -> Iterator[Grant]:
    roles = f"iam:role/{made_up(stage)}*"
    yield _grant(
        "Roles",
        "iam:DeleteRole DeleteRolePolicy GetRole GetRolePolicy ListAttachedRolePolicies ListRolePolicies ListRoleTags "
        "TagRole UntagRole UpdateAssumeRolePolicy UpdateRole UpdateRoleDescription",
        roles,
    )
    yield _grant("PassRoles", "iam:PassRole", roles, StringEquals={"iam:PassedToService": PASSED_TO})


def _of_data() -> Iterator[Grant]:
    yield _grant(
        "Table",
        "dynamodb:BatchGetItem DeleteItem DescribeContinuousBackups DescribeContributorInsights "
        "DescribeKinesisStreamingDestination DescribeTable DescribeTimeToLive GetItem GetResourcePolicy "
        "ListTagsOfResource PutItem Query Scan TagResource UntagResource UpdateContinuousBackups UpdateTable "
        "UpdateTimeToLive",
        TABLE,
    )
    yield _grant("Index", "dynamodb:Query", f"{TABLE}/index/gsi1")
    yield _grant(
        "Bucket",
        "s3:CreateBucket DeleteBucket DeleteBucketPolicy GetAccelerateConfiguration GetAnalyticsConfiguration "
        "GetBucketAbac GetBucketCORS GetBucketLogging GetBucketMetadataTableConfiguration GetBucketNotification "
        "GetBucketObjectLockConfiguration GetBucketOwnershipControls GetBucketPolicy GetBucketPublicAccessBlock "
        "GetBucketTagging GetBucketVersioning GetBucketWebsite GetEncryptionConfiguration "
        "GetIntelligentTieringConfiguration GetInventoryConfiguration GetLifecycleConfiguration "
        "GetMetricsConfiguration GetReplicationConfiguration ListBucket ListTagsForResource PutBucketPolicy "
        "PutBucketPublicAccessBlock PutBucketTagging PutEncryptionConfiguration PutLifecycleConfiguration "
        "TagResource UntagResource",
        BUCKET,
    )
    yield _grant("Files", "s3:GetObject PutObject", f"{BUCKET}/agent/*", f"{BUCKET}/deploy/*")
    yield _grant("OldFiles", "s3:DeleteObject", f"{BUCKET}/deploy/*")
    yield _grant(
        "Queue",
        "sqs:DeleteQueue GetQueueAttributes GetQueueUrl ListQueueTags SetQueueAttributes TagQueue UntagQueue",
        QUEUE,
    )
    yield _grant(
        "Parameters",
        "ssm:AddTagsToResource GetParameter GetParameters ListTagsForResource PutParameter RemoveTagsFromResource",
        f"{PARAMETERS}/*",
    )
    yield _grant("Settings", "ssm:DeleteParameter", f"{PARAMETERS}/settings")  # and not the keys


def _of_functions(stage: str) -> Iterator[Grant]:
    yield _grant(
        "Functions",
        "lambda:AddPermission DeleteFunction DeleteFunctionConcurrency DeleteFunctionEventInvokeConfig GetFunction "
        "GetFunctionCodeSigningConfig GetFunctionConcurrency GetFunctionEventInvokeConfig GetFunctionRecursionConfig "
        "GetFunctionScalingConfig GetPolicy GetRuntimeManagementConfig ListTags PutFunctionConcurrency "
        "PutFunctionEventInvokeConfig PutFunctionRecursionConfig RemovePermission TagResource UntagResource "
        "UpdateFunctionCode UpdateFunctionConfiguration UpdateFunctionEventInvokeConfig",
        FUNCTIONS,
    )
    yield _grant("Others", "lambda:GetFunction", "lambda:function:dstack-chalice-{stage}-reconcile")
    yield _grant("Offers", "lambda:InvokeFunction", "lambda:function:dstack-{stage}-refresh_catalog")
    yield _grant("Limits", "lambda:GetAccountSettings", "*")
    yield _grant(
        "Logs",
        "logs:DeleteLogGroup DeleteRetentionPolicy GetDataProtectionPolicy ListTagsForResource "
        "PutRetentionPolicy TagResource UntagResource",
        LOGS,
    )
    yield _grant("AllLogs", "logs:DescribeIndexPolicies DescribeLogGroups DescribeResourcePolicies", "*")
    yield _grant(
        "Rules",
        "events:DeleteRule DescribeRule ListTagsForResource ListTargetsByRule PutRule PutTargets RemoveTargets "
        "TagResource UntagResource",
        f"events:rule/{made_up(stage)}*",
    )
    yield _grant(
        "Workflows",
        "states:DeleteStateMachine DescribeStateMachine ListTagsForResource TagResource UntagResource "
        "UpdateStateMachine",
        MACHINES,
    )
    yield _grant("Apis", "apigateway:DELETE GET PATCH POST PUT", "apigateway:/restapis", "apigateway:/restapis/*")
    yield _grant("ApiTags", "apigateway:DELETE GET PUT", "apigateway:/tags/*")


def _of_choices(chosen: Options) -> Iterator[Grant]:
    if chosen.notifies:
        yield from _of_topic()
    if chosen.alarm:
        yield from _of_budget()
    if chosen.alarms:
        actions = "cloudwatch:DeleteAlarms DescribeAlarms ListTagsForResource PutMetricAlarm TagResource UntagResource"
        yield _grant("Alarms", actions, ALARMS)
    if chosen.agent_api:
        yield _grant("AgentApis", "apigateway:DELETE GET PATCH PUT UntagResource", "apigateway:/apis/*")
        yield _grant("CreateAgentApis", "apigateway:POST TagResource", "apigateway:/apis", "apigateway:/apis/*")
        yield _grant("TagAgentApis", "apigateway:POST", "apigateway:/tags/*")
    else:
        actions = "lambda:CreateFunctionUrlConfig DeleteFunctionUrlConfig GetFunctionUrlConfig UpdateFunctionUrlConfig"
        yield _grant("AgentUrl", actions, FUNCTIONS)
    if chosen.bus:
        yield from _of_bus()
    if chosen.vpc:
        yield _grant(
            "Network",
            "ec2:DescribeNetworkInterfaces DescribeRouteTables DescribeSecurityGroups DescribeSubnets "
            "DescribeVpcEndpoints DescribeVpcs",
            "*",
        )
    if chosen.private:
        yield _grant("Private", "apigateway:UpdateRestApiPolicy", "apigateway:/restapis", "apigateway:/restapis/*")
    if chosen.key:
        yield _grant("Key", "kms:Decrypt DescribeKey Encrypt GenerateDataKey", chosen.key)
        yield _grant("KeyForTable", "kms:CreateGrant", chosen.key, Bool={"kms:GrantIsForAWSResource": "true"})
        yield _grant("EncryptLogs", "logs:AssociateKmsKey DisassociateKmsKey", LOGS)


def _of_topic() -> Iterator[Grant]:
    yield _grant(
        "Topic",
        "sns:DeleteTopic GetDataProtectionPolicy GetTopicAttributes ListSubscriptionsByTopic ListTagsForResource "
        "SetTopicAttributes Subscribe TagResource UntagResource",
        TOPIC,
    )
    yield _grant("Subscriptions", "sns:GetSubscriptionAttributes SetSubscriptionAttributes Unsubscribe", "*")


def _of_budget() -> Iterator[Grant]:
    yield _grant(
        "Budget",
        "budgets:ListTagsForResource ModifyBudget TagResource UntagResource ViewBudget",
        f"budgets:budget/dstack-{{stage}}-{REGION}-spending",
    )
    yield _grant("Bills", "billing:GetBillingViewData", "billing:billingview/*")


def _of_bus() -> Iterator[Grant]:
    yield _grant(
        "Bus",
        "events:CreateEventBus DeleteEventBus DescribeEventBus ListTagsForResource TagResource UntagResource "
        "UpdateEventBus",
        BUS,
    )
    of_stage = f"arn:{PARTITION}:lambda:{REGION}:{ACCOUNT}:function:dstack-{{stage}}-*"
    to_stage = {"ArnLike": {"lambda:FunctionArn": of_stage}}
    mappings = "lambda:event-source-mapping:*"
    yield _grant("CreateStream", "lambda:CreateEventSourceMapping", "*", **to_stage)
    changes = "lambda:DeleteEventSourceMapping GetEventSourceMapping UpdateEventSourceMapping"
    yield _grant("Stream", changes, mappings, **to_stage)
    yield _grant("StreamTags", "lambda:ListTags TagResource UntagResource", mappings)
