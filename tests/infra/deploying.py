"""What a deployment calls, as IAM is asked: our commands' calls, which the emulator saw, and those that CloudFormation
makes for the resources of the templates, which AWS's own schemas list (`handlers.json`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from infra import alarms, spending, stateful, stateless
from infra.deployer import PASSED_TO, Options, made_up
from infra.functions import FUNCTIONS
from infra.stateless import Choices
from tests.harness.iam import Call

HERE = Path(__file__).parent
SEEN = HERE / "golden" / "deploy_calls.txt"
HANDLERS: Mapping[str, Mapping[str, list[str]]] = json.loads((HERE / "handlers.json").read_text())
ACCOUNT, REGION = "0" * 12, "us-east-1"  # the emulator's
STAGE = "e2e"
# What Chalice's functions and API become.
OF_CHALICE = (
    "ApiGateway::Deployment",
    "ApiGateway::RestApi",
    "ApiGateway::Stage",
    "Events::Rule",
    "Lambda::Permission",
)

# What the schemas list for what no resource of ours has, by the reason.
UNUSED: Mapping[str, tuple[str, ...]] = {
    "no table is copied, imported or streamed elsewhere": (
        *("dynamodb:*Replica", "dynamodb:*Import*", "dynamodb:*KinesisStreamingDestination", "kinesis:*"),
        *("dynamodb:BatchWriteItem", "dynamodb:UpdateItem"),
        *("Table logs:*", "Table s3:*"),
    ),
    "no table counts who reads what, or has a policy of its own": (
        *("dynamodb:UpdateContributorInsights", "dynamodb:PutResourcePolicy", "dynamodb:DeleteResourcePolicy"),
        "iam:CreateServiceLinkedRole",
    ),
    "no role has a policy that isn't its own": ("iam:AttachRolePolicy", "iam:DetachRolePolicy"),
    "no function has a file system, a layer, a signature, versions, or a machine of its own": (
        *("elasticfilesystem:*", "s3files:*", "lambda:GetLayerVersion", "lambda:GetCodeSigningConfig"),
        *("lambda:*FunctionCodeSigningConfig", "lambda:PublishVersion", "lambda:PutRuntimeManagementConfig"),
        *("lambda:PutFunctionScalingConfig", "lambda:PassCapacityProvider", "lambda:AssociateRuntimeAlias"),
    ),
    "no code or template is asked for by its version": ("s3:GetObjectVersion",),
    "no HTTP API is described by a file, has logs or a name of its own": (
        *("Api s3:getObject", "Stage logs:*", "Integration iam:PassRole", "Stage iam:*"),
    ),
    "no log is protected, indexed, delivered or written by a token": (
        *("logs:*DataProtectionPolicy", "logs:*Delivery", "logs:*IndexPolicy", "logs:*ResourcePolicy", "firehose:*"),
        *("logs:PutLogGroupDeletionProtection", "logs:PutBearerTokenAuthentication", "s3:REST.PUT.OBJECT"),
    ),
    "no bus lets another account in": ("events:PutPermission", "events:RemovePermission"),
    "no topic delivers by a role, or protects data": ("sns:PutDataProtectionPolicy",),
    "no bucket has these": (
        *("s3:*Analytics*", "s3:*Cors", "s3:*CORS", "s3:*Metrics*", "s3:*Inventory*", "s3:*Notification"),
        *("s3:*Replication*", "s3:*Website", "s3:*Accelerate*", "s3:*Acl", "s3:*ObjectLock*", "s3:*Logging"),
        *("s3:*Versioning", "s3:*OwnershipControls", "s3:*IntelligentTiering*", "s3:*MetadataTable*", "s3:*Abac"),
        *(
            "s3:DeleteObject",
            "s3:*BucketMetadata*",
            "s3tables:*",
            "s3:DeleteBucketEncryption",
            "s3:DeleteBucketLifecycle",
        ),
    ),
    "tags are taken away by writing the others": ("s3:DeleteBucketTagging",),
    "the key is named by its ARN, and stays what it is": (
        *("kms:ListAliases", "kms:RevokeGrant", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncrypt*"),
    ),
}
READ = ("Get", "List", "Describe", "View")  # CloudFormation reads whole resources, also what they don't have
OF_NOBODY = ("iam:PassRole", "iam:GetRole")  # listed for resources to which no role is given
GIVEN_ROLES = ("AWS::Lambda::Function", "AWS::StepFunctions::StateMachine", "AWS::IAM::Role")
ENCRYPTED = tuple(f"AWS::{each}" for each in ("DynamoDB::Table", "Lambda::Function", "Logs::LogGroup"))
KEPT = ("AWS::DynamoDB::Table",)  # is never deleted


@dataclass(frozen=True)
class Deploying:
    options: Options

    def calls(self) -> Iterator[Call]:
        yield from seen()
        yield from self._beside()
        for kind, name in sorted(self.resources()):
            for phase, actions in HANDLERS[kind].items():
                if phase != "delete" or kind not in KEPT:
                    for action in actions:
                        if self._is_made(kind, action):
                            yield from self._of(kind, name, action)

    def resources(self) -> set[tuple[str, str]]:
        """Types, each with the name of one resource."""
        chosen = self.options
        templates = [stateful.template(), stateless.template(STAGE, Choices(agent_api=chosen.agent_api))]
        templates += [spending.template(STAGE)]
        made = [(id_, each) for one in templates for id_, each in one["Resources"].items() if "Type" in each]
        watched = chosen.alarm or chosen.alarms
        conditions = {"Announced": chosen.bus, "SpendingIsWatched": chosen.alarm, alarms.CONDITION: chosen.alarms}
        conditions |= {"AnythingIsWatched": watched, "SomebodyIsWritten": watched}
        on = [each for each in made if "Condition" not in each[1] or conditions[each[1]["Condition"]]]
        found = {(each["Type"], _name(id_, each)) for id_, each in on}
        found |= {(f"AWS::{kind}", "Chalices") for kind in OF_CHALICE}
        found |= {("AWS::Lambda::Function", f"dstack-{STAGE}-{each.name}") for each in FUNCTIONS}
        return found

    def _is_made(self, kind: str, action: str) -> bool:
        service, name = action.split(":")
        if service == "kms" or name.endswith("KmsKey"):
            return bool(self.options.key) and kind in ENCRYPTED and not unused(kind, action)
        if service == "ec2":
            return self.options.vpc
        if action in OF_NOBODY:
            return kind in GIVEN_ROLES
        if name in ("PutRolePermissionsBoundary", "DeleteRolePermissionsBoundary"):
            return bool(self.options.boundary) and name.startswith("Put")
        if name == "UpdateRestApiPolicy":
            return self.options.private
        return (name.startswith(READ) and not _foreign(kind, action)) or not unused(kind, action)

    def _of(self, kind: str, name: str, action: str) -> Iterator[Call]:
        service, operation = action.split(":")
        created = {f"aws:RequestTag/{key}": value for key, value in self.options.tags.items()}
        if self.options.boundary and service == "iam":
            created["iam:PermissionsBoundary"] = self.options.boundary
        if action == "iam:PassRole":
            yield from (Call(action, _role(), {"iam:PassedToService": each}) for each in PASSED_TO)
        elif service == "kms":
            yield Call(action, self.options.key, {"kms:GrantIsForAWSResource": "true"})
        elif kind == "AWS::Lambda::EventSourceMapping":
            of = "event-source-mapping:1-2"
            resource = "*" if operation == "CreateEventSourceMapping" else arn("lambda", of)
            yield Call(action, resource, {"lambda:FunctionArn": arn("lambda", f"function:dstack-{STAGE}-publish")})
        else:
            yield from (Call(action, each, created) for each in _things(kind, name, action))

    def _beside(self) -> Iterator[Call]:
        """What neither the emulator nor the schemas show."""
        transform = f"arn:aws:cloudformation:{REGION}:aws:transform/Serverless-2016-10-31"
        yield Call("cloudformation:CreateChangeSet", transform)
        bucket = f"arn:aws:s3:::dstack-{STAGE}-{ACCOUNT}-{REGION}"
        yield Call("s3:DeleteObject", f"{bucket}/deploy/chalice-DIGEST.zip")  # a day later
        yield Call("s3:GetObject", f"{bucket}/deploy/template-DIGEST.json")  # by CloudFormation
        yield Call("s3:PutObject", f"{bucket}/agent/carrier-x86")  # by `make carriers`
        yield Call("cloudformation:DeleteStack", arn("cloudformation", f"stack/dstack-{STAGE}-data/ID"))  # undone
        yield Call("apigateway:PUT", f"arn:aws:apigateway:{REGION}::/tags/arn%3Aaws")
        if self.options.agent_api:
            yield Call("apigateway:POST", f"arn:aws:apigateway:{REGION}::/tags/arn%3Aaws")
            yield Call("apigateway:TagResource", f"arn:aws:apigateway:{REGION}::/apis")
        if self.options.vpc:
            looks = ("RouteTables", "Subnets", "VpcEndpoints")
            yield from (Call(f"ec2:Describe{each}", "*") for each in looks)
        if self.options.key:  # of Parameter Store and the bucket, in the deployer's name
            yield from (Call(f"kms:{each}", self.options.key) for each in ("Encrypt", "Decrypt", "GenerateDataKey"))


def seen() -> Iterator[Call]:
    for line in SEEN.read_text().splitlines():
        _, action, resource = line.split()
        yield Call(action, resource)


def unused(kind: str, action: str) -> bool:
    return any(_fits(kind, action, each) for patterns in UNUSED.values() for each in patterns)


def _foreign(kind: str, action: str) -> bool:
    """Listed for a feature that no resource has, and so not read either."""
    never = ("elasticfilesystem:*", "s3files:*", "s3tables:*", "kinesis:*", "dynamodb:*Import*", "Table logs:*")
    never += ("s3:GetObject*", "Table s3:*", "lambda:GetLayerVersion", "lambda:GetCodeSigningConfig", "s3:GetBucketAcl")
    return any(_fits(kind, action, each) for each in never)


def _fits(kind: str, action: str, pattern: str) -> bool:
    """`Table logs:*` is about tables alone."""
    *kinds, wanted = pattern.split()
    return fnmatchcase(action, wanted) and all(kind.endswith(f"::{each}") for each in kinds)


def arn(service: str, rest: str) -> str:
    return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{rest}"


def _role() -> str:
    return f"arn:aws:iam::{ACCOUNT}:role/{made_up(STAGE)}AnyRole-0A1B2C"


def _name(id_: str, resource: Mapping[str, Any]) -> str:
    """As the template has it."""
    properties = resource.get("Properties", {})
    for key in ("FunctionName", "LogGroupName", "StateMachineName", "AlarmName"):
        if isinstance(name := properties.get(key), str):
            return name
    return id_


def _things(kind: str, name: str, action: str) -> Iterator[str]:
    service, operation = action.split(":")
    if service == "lambda":
        yield arn("lambda", f"function:{name if name.startswith('dstack-') else f'dstack-{STAGE}-api'}")
    elif service == "logs":
        whole = operation.startswith("Describe")
        yield "*" if whole else arn("logs", f"log-group:{name}")
    elif service == "s3":
        files = "/deploy/chalice-DIGEST.zip" if operation == "GetObject" else ""
        yield f"arn:aws:s3:::dstack-{STAGE}-{ACCOUNT}-{REGION}{files}"
    elif service == "apigateway":
        new = kind.endswith(("::RestApi", "V2::Api")) and operation == "POST"
        of = "apis" if "V2" in kind else "restapis"
        yield f"arn:aws:apigateway:{REGION}::/{of}{'' if new else '/a1b2c3/any'}"
        if operation == "UpdateRestApiPolicy":  # as it is made, and later
            yield f"arn:aws:apigateway:{REGION}::/restapis"
        if kind.endswith(("RestApi", "Stage")) and operation in ("PUT", "DELETE", "GET"):
            yield f"arn:aws:apigateway:{REGION}::/tags/arn%3Aaws"
    elif service == "cloudwatch":
        yield arn("cloudwatch", f"alarm:{name}")
    elif action == "sns:Unsubscribe" or operation.endswith("SubscriptionAttributes") or service == "ec2":
        yield "*"
    else:
        yield _BY_SERVICE[service, kind] if (service, kind) in _BY_SERVICE else _BY_SERVICE[service, ""]


_BY_SERVICE = {
    ("dynamodb", ""): arn("dynamodb", f"table/dstack-{STAGE}"),
    ("iam", ""): _role(),
    ("sqs", ""): arn("sqs", f"dstack-{STAGE}-aside"),
    ("ssm", ""): arn("ssm", f"parameter/dstack-{STAGE}/settings"),
    ("events", "AWS::Events::Rule"): arn("events", f"rule/{made_up(STAGE)}DeadLettersSchedule-0A1B2C"),
    ("events", "AWS::Events::EventBus"): arn("events", f"event-bus/dstack-{STAGE}"),
    ("states", ""): arn("states", f"stateMachine:dstack-{STAGE}-add_host"),
    ("sns", ""): arn("sns", f"dstack-{STAGE}-spending"),
    ("budgets", ""): f"arn:aws:budgets::{ACCOUNT}:budget/dstack-{STAGE}-{REGION}-spending",
    ("billing", ""): f"arn:aws:billing::{ACCOUNT}:billingview/primary",
}
