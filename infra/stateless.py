"""The stack `dstack-<stage>`: everything that can be recreated from the code. Data is in the stateful stack.

`python -m infra.stateless STAGE` prints it for `chalice package --merge-template`, which merges it into the template of
the functions in `app.py`. It extends those functions by their logical ids, and adds the others.

It refers to the stateful stack by names that both derive from the stage, rather than by imports, so neither stack
blocks changes to the other. The functions' settings are a parameter that this stack writes. So CloudFormation fills in
the resources that it created, and no program copies a stack's outputs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chalicelib.backends.registry import artefacts
from chalicelib.domain import keys
from chalicelib.domain.owner import ANY
from chalicelib.engine import asl
from chalicelib.engine.workflows import WORKFLOWS
from chalicelib.planning.kernel.workflows import Definition
from chalicelib.planning.machines.hosts import ADD_HOST, REMOVE_HOST
from infra import agent_address
from infra import grants as may
from infra.artefacts import PYTHON
from infra.functions import CHALICE, FUNCTIONS, REPETITIONS, UNNAMED, Function, named
from infra.policies import VERSION, bucket_of, in_template, sub_arn

LOG_RETENTION_DAYS = 14  # after which CloudWatch deletes logs
# Lambda's own log lines for each call would add a quarter to the bill of a large installation. They can be left out
# only in this format; those of failed calls stay.
LOGGED = {"LogFormat": "JSON", "SystemLogLevel": "WARN"}
CALLS, BURST = 200, 400  # people's calls per second, and in a burst: API Gateway rejects more
TRACES = "TracesEndpoint"  # the parameter by which the functions get OpenTelemetry
PUBLISH_WINDOW = 2  # seconds of state changes in one call of `publish`
Resources = dict[str, Any]
Code = Mapping[str, tuple[str, str]]  # artefact -> bucket and key


@dataclass(frozen=True)
class Choices:
    """What a deployment finds out, or takes from its options."""

    code: Code = field(default_factory=dict)  # a missing artefact is a file beside the template
    variables: Mapping[str, str] = field(default_factory=dict)  # additional environment of every function
    reserved: Mapping[str, int] = field(default_factory=dict)  # concurrent executions by function
    bucket: str = ""  # its name, if it isn't the default one
    python: str = PYTHON
    endpoints: tuple[str, ...] = ()  # the VPC endpoints through which alone the API is reached; none: from everywhere
    agent_api: bool = False  # agents call an HTTP API, and no Function URL


def template(stage: str, chosen: Choices = Choices()) -> dict[str, Any]:
    in_vpc = {"Fn::Not": [{"Fn::Equals": [{"Ref": "BastionSubnets"}, ""]}]}
    bounded, encrypted = ({"Fn::Not": [{"Fn::Equals": [{"Ref": name}, ""]}]} for name in ("Boundary", "EncryptionKey"))
    traced = {"Fn::Equals": [{"Ref": "Tracing"}, "Active"]}
    bus = {"Fn::And": [{"Fn::Equals": [{"Ref": "Bus"}, "on"]}, {"Fn::Not": [{"Fn::Equals": [{"Ref": "Stream"}, ""]}]}]}
    resources: Resources = {
        "RestAPI": _rest_api(stage, chosen.endpoints),
        "Settings": _settings(stage, chosen),
        "StateChanges": _bus(stage),
    }
    for function in FUNCTIONS:
        resources |= _function(function, stage, chosen)
    for definition in WORKFLOWS.values():
        resources |= _state_machine(definition, stage)
    return {
        "Parameters": parameters(),
        "Conditions": {
            "InVpc": in_vpc,
            "Traced": traced,
            "Announced": bus,
            "Bounded": bounded,
            "Encrypted": encrypted,
        },
        "Resources": resources,
        "Outputs": {"ApiUrl": {"Value": _api_url(chosen)}, "AgentUrl": {"Value": _agent_url(chosen)}},
    }


def _api_url(chosen: Choices) -> Resources:
    """A private API's has the name of an endpoint, so that it leads there with and without private DNS."""
    host = "-".join(("${RestAPI}", *chosen.endpoints[:1]))
    return {"Fn::Sub": f"https://{host}.execute-api.${{AWS::Region}}.${{AWS::URLSuffix}}/api"}


def _agent_url(chosen: Choices) -> Resources:
    return agent_address.address(named("agent_sync").id, api=chosen.agent_api)


def parameters() -> Resources:
    """What depends on the account rather than on the code. Each default is right for a new account."""
    ids = {"Type": "String", "Default": ""}  # separated by commas
    return {
        "Tracing": {
            "Type": "String",
            "Default": "PassThrough",
            "AllowedValues": ["PassThrough", "Active"],
            "Description": "Active: each call is traced by X-Ray, for $5 a million",
        },
        TRACES: {
            "Type": "String",
            "Default": "",
            "AllowedPattern": r"(https?://[^\s?#@]+)?",
            "ConstraintDescription": "empty, or the address of an OpenTelemetry collector: https://otel.example.com:4318",
            "Description": "where the traces of runs go, by OTLP over HTTP; none: nowhere",
        },
        "Bus": {
            "Type": "String",
            "Default": "off",
            "AllowedValues": ["off", "on"],
            "Description": "on: state changes are announced on the stage's bus of EventBridge, for $1 a million",
        },
        "Stream": {
            "Type": "String",
            "Default": "",
            "Description": "the ARN of the table's stream, which the bus needs",
        },
        "InstallId": {
            "Type": "String",
            "Default": ANY,
            "Description": "the mark of what this stage makes, which `make deploy` sets; by default any is its own",
        },
        "Boundary": {
            "Type": "String",
            "Default": "",
            "Description": "the ARN of the permissions boundary of every role that the stack makes",
        },
        "EncryptionKey": {
            "Type": "String",
            "Default": "",
            "Description": "the ARN of the KMS key that encrypts logs, and which functions may use for stored data",
        },
        "ApiEndpoints": {
            **ids,
            "Description": "VPC endpoints, through which alone the API is reached; `make deploy` renders them",
        },
        **agent_address.parameters(),
        "BastionSubnets": {**ids, "Description": "subnets from which hosts are reached by SSH; none: the internet"},
        "BastionSecurityGroups": {
            **ids,
            "Description": "security groups of the function in those subnets: one at least",
        },
    }


def _rest_api(stage: str, endpoints: tuple[str, ...]) -> Resources:
    """Properties that Chalice doesn't set on its own resource. Without the version, SAM would add a second stage, named
    `Stage`, without throttling. CloudWatch's metrics tell APIs apart by their names alone."""
    limit = {"ResourcePath": "/*", "HttpMethod": "*", "ThrottlingRateLimit": CALLS, "ThrottlingBurstLimit": BURST}
    named: Resources = {"info": {"title": f"dstack-{stage}"}}
    properties: Resources = {"OpenApiVersion": "2.0", "MethodSettings": [limit], "DefinitionBody": named}
    if endpoints:
        through = {
            "Effect": "Allow",
            "Principal": "*",
            "Action": "execute-api:Invoke",
            "Resource": "execute-api:/*",
            "Condition": {"StringEquals": {"aws:SourceVpce": list(endpoints)}},
        }
        policy = {"Version": VERSION, "Statement": [through]}
        properties["EndpointConfiguration"] = {"Type": "PRIVATE", "VPCEndpointIds": list(endpoints)}
        named["x-amazon-apigateway-policy"] = policy
    return {"Properties": properties}


def _settings(stage: str, chosen: Choices) -> Resources:
    value = {
        "table": f"dstack-{stage}",
        "bucket": chosen.bucket or bucket_of(stage),
        "wake_function": f"dstack-{stage}-reconcile",
        "provider_functions": {artefact: f"dstack-{stage}-{may.provider(artefact)}" for artefact in artefacts()},
        "host_function": f"dstack-{stage}-bootstrap_host",
        "bus": "${Bus}",
        "aside_queue": f"https://sqs.${{AWS::Region}}.${{AWS::URLSuffix}}/${{AWS::AccountId}}/{may.dead_letter_queue(stage)}",
        "api_url": _api_url(chosen)["Fn::Sub"],
        "agent_url": "${AgentUrl}",
        "state_machines": {name: f"${{{_machine_id(name)}}}" for name in WORKFLOWS},
    }
    properties = {
        "Name": f"/dstack-{stage}/settings",
        "Type": "String",
        "Description": "written by the stack; the functions read it at their start",
        "Value": {
            "Fn::Sub": [
                json.dumps(value),
                {"Bus": _if("Announced", f"dstack-{stage}", ""), "AgentUrl": _agent_url(chosen)},
            ]
        },
    }
    return {"Type": "AWS::SSM::Parameter", "Properties": properties}


# --- functions -------------------------------------------------------------------------------------------------------


def _function(function: Function, stage: str, chosen: Choices) -> Resources:
    resources = {f"{function.id}Logs": _logs(function, stage)}
    properties: Resources = {
        "FunctionName": f"dstack-{stage}-{function.name}",
        "LoggingConfig": {**LOGGED, "LogGroup": {"Ref": f"{function.id}Logs"}},
        "Environment": {"Variables": {**_variables(function, stage), **function.environment(stage, chosen.variables)}},
    }
    if function.loops:
        properties["RecursiveLoop"] = "Allow"
    if function.chalice:
        resources |= _of_chalice(function, stage, chosen, properties)
    else:
        resources |= _plain(function, stage, chosen, properties)
        if function.every:
            resources |= _schedule(function)
    if function.name in chosen.reserved:
        properties["ReservedConcurrentExecutions"] = chosen.reserved[function.name]
    if function.every or function.async_events:
        resources[f"{function.id}Events"] = _events(function, stage)
    if function.name == "automate":
        of_bus = {"Fn::Sub": sub_arn(f"events:rule/dstack-{stage}/*")}
        resources[f"{function.id}May"] = _may_invoke(function, "events.amazonaws.com", SourceArn=of_bus)
    if function.reads_event_log:
        resources |= _following(function, stage)
    if function.url:
        resources |= agent_address.resources(function.id, f"dstack-{stage}-agents", api=chosen.agent_api)
    return resources


def _variables(function: Function, stage: str) -> Resources:
    """Those that the stack's parameters decide."""
    found: Resources = {"DSTACK_INSTALL_ID": {"Ref": "InstallId"}}
    if function.traces:
        found["OTEL_EXPORTER_OTLP_ENDPOINT"] = {"Ref": TRACES}
        found["OTEL_RESOURCE_ATTRIBUTES"] = f"deployment.environment.name={stage}"
    return found


def _of_chalice(function: Function, stage: str, chosen: Choices, properties: Resources) -> Resources:
    """Properties that Chalice doesn't set, to be merged into its own resource. The plain handler replaces Chalice's,
    which accepts the schedule's events only, whereas `reconcile` also gets hints."""
    properties |= {"Runtime": f"python{chosen.python}", "Handler": function.entry, "Tracing": {"Ref": "Tracing"}}
    properties["CodeUri"] = _where(function, chosen.code, "Bucket", "Key")
    role = f"{function.id}Role" if function.id != "APIHandler" else "ApiHandlerRole"
    policies = _policies(function, stage, chosen)
    return {function.id: {"Properties": properties}, role: {"Properties": {"Policies": policies, **_BOUNDED}}}


def _plain(function: Function, stage: str, chosen: Choices, properties: Resources) -> Resources:
    properties |= {
        "Runtime": f"python{chosen.python}",
        "Architectures": ["x86_64"],
        "Handler": function.entry,
        "Code": _where(function, chosen.code, "S3Bucket", "S3Key"),
        "MemorySize": function.memory,
        "Timeout": function.timeout,
        "Role": {"Fn::GetAtt": [f"{function.id}Role", "Arn"]},
        "TracingConfig": {"Mode": {"Ref": "Tracing"}},
    }
    role = _role("lambda.amazonaws.com", _policies(function, stage, chosen))
    if function.vpc:
        parameters = {"SubnetIds": "BastionSubnets", "SecurityGroupIds": "BastionSecurityGroups"}
        inside = {name: {"Fn::Split": [",", {"Ref": parameter}]} for name, parameter in parameters.items()}
        properties["VpcConfig"] = _if("InVpc", inside)
    return {function.id: {"Type": "AWS::Lambda::Function", "Properties": properties}, f"{function.id}Role": role}


def _where(function: Function, code: Code, bucket: str, key: str) -> Any:
    if function.artefact in code:
        return dict(zip((bucket, key), code[function.artefact], strict=True))
    return "./deployment.zip" if function.artefact == CHALICE else f"./{function.artefact}.zip"


def _if(condition: str, value: Any, otherwise: Any = None) -> Resources:
    return {"Fn::If": [condition, value, {"Ref": "AWS::NoValue"} if otherwise is None else otherwise]}


def _logs(function: Function, stage: str) -> Resources:
    properties = {
        "LogGroupName": f"/aws/lambda/dstack-{stage}-{function.name}",
        "RetentionInDays": LOG_RETENTION_DAYS,
        "KmsKeyId": _if("Encrypted", {"Ref": "EncryptionKey"}),
    }
    return {"Type": "AWS::Logs::LogGroup", "Properties": properties}


def _policies(function: Function, stage: str, chosen: Choices) -> list[Resources]:
    """One policy. If parameters ask for it, it includes what Lambda does with the function's role: writing traces, and
    putting the function into a VPC. The latter is denied to the function's own code."""
    policy = in_template(function.allowed, stage, chosen.bucket)
    (trace, network) = in_template((may.TRACE, may.NETWORK), stage)["Statement"]
    conditional = {"Traced": [trace], "Encrypted": [_use_of_key()]}
    if function.vpc:
        itself = {"Fn::Sub": sub_arn(f"lambda:function:dstack-{stage}-{function.name}")}
        of_itself = {"Condition": {"ArnEquals": {"lambda:SourceFunctionArn": itself}}}
        conditional["InVpc"] = [network, {**network, "Sid": "NotByItself", "Effect": "Deny", **of_itself}]
    policy["Statement"] += [
        _if(condition, each) for condition, statements in conditional.items() for each in statements
    ]
    return [{"PolicyName": function.name, "PolicyDocument": policy}]


def _use_of_key() -> Resources:
    """What the stores do with the key in a function's name. A function can't use it by itself."""
    through = [{"Fn::Sub": f"{service}.${{AWS::Region}}.${{AWS::URLSuffix}}"} for service in may.ENCRYPTING]
    return {
        "Sid": "Key",
        "Effect": "Allow",
        "Action": list(may.USE_KEY),
        "Resource": [{"Ref": "EncryptionKey"}],
        "Condition": {"StringEquals": {"kms:ViaService": through}},
    }


_BOUNDED = {"PermissionsBoundary": {"Fn::If": ["Bounded", {"Ref": "Boundary"}, {"Ref": "AWS::NoValue"}]}}


def _role(service: str, policies: list[Resources]) -> Resources:
    trust = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    document = {"Version": VERSION, "Statement": [trust]}
    properties = {"AssumeRolePolicyDocument": document, "Policies": policies, **_BOUNDED}
    return {"Type": "AWS::IAM::Role", "Properties": properties}


# --- event sources ---------------------------------------------------------------------------------------------------


def _schedule(function: Function) -> Resources:
    arn = {"Fn::GetAtt": [function.id, "Arn"]}
    rule = {"ScheduleExpression": function.every, "Targets": [{"Id": function.name, "Arn": arn}]}
    source = {"Fn::GetAtt": [f"{function.id}Schedule", "Arn"]}
    return {
        f"{function.id}Schedule": {"Type": "AWS::Events::Rule", "Properties": rule},
        f"{function.id}ScheduleMay": _may_invoke(function, "events.amazonaws.com", SourceArn=source),
    }


def _events(function: Function, stage: str) -> Resources:
    """Retries of asynchronous events. A schedule's next event comes anyway, so only events from other functions become
    dead letters."""
    properties: Resources = {
        "FunctionName": {"Ref": function.id},
        "Qualifier": "$LATEST",
        "MaximumRetryAttempts": REPETITIONS,
        "MaximumEventAgeInSeconds": function.max_event_age,
    }
    if function.async_events:
        properties["DestinationConfig"] = _to_dead_letters(stage)
    return {"Type": "AWS::Lambda::EventInvokeConfig", "Properties": properties}


def _to_dead_letters(stage: str) -> Resources:
    return {"OnFailure": {"Destination": {"Fn::Sub": sub_arn(f"sqs:{may.dead_letter_queue(stage)}")}}}


def _bus(stage: str) -> Resources:
    return {"Type": "AWS::Events::EventBus", "Condition": "Announced", "Properties": {"Name": f"dstack-{stage}"}}


def _following(function: Function, stage: str) -> Resources:
    """The event source for the event log in the table's stream. Reading the stream is free, and filtered records invoke
    nothing. A failed batch is retried from the failed record, for six hours; then its position becomes a dead
    letter."""
    of_events = {"eventName": ["INSERT"], "dynamodb": {"Keys": {"pk": {"S": [{"prefix": keys.EVENTS}]}}}}
    properties = {
        "FunctionName": {"Ref": function.id},
        "EventSourceArn": {"Ref": "Stream"},
        "StartingPosition": "LATEST",
        "FilterCriteria": {"Filters": [{"Pattern": json.dumps(of_events)}]},
        "BatchSize": 100,
        "MaximumBatchingWindowInSeconds": PUBLISH_WINDOW,
        "MaximumRecordAgeInSeconds": 6 * 3600,
        "BisectBatchOnFunctionError": True,
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        "DestinationConfig": _to_dead_letters(stage),
    }
    first = {"DependsOn": [f"{function.id}Role", "Settings"]}  # the function reads the bus's name there when it starts
    mapping = {"Type": "AWS::Lambda::EventSourceMapping", "Condition": "Announced", **first, "Properties": properties}
    return {f"{function.id}Stream": mapping}


def _may_invoke(function: Function, principal: str, **more: Any) -> Resources:
    properties = {
        "FunctionName": {"Ref": function.id},
        "Action": "lambda:InvokeFunction",
        "Principal": principal,
        **more,
    }
    return {"Type": "AWS::Lambda::Permission", "Properties": properties}


# --- workflows -------------------------------------------------------------------------------------------------------


def _state_machine(definition: Definition, stage: str) -> Resources:
    name, id_ = f"dstack-{stage}-{definition.name}", _machine_id(definition.name)
    performer = {"Fn::GetAtt": [performer_of(definition).id, "Arn"]}
    itself = {"Fn::Sub": sub_arn(f"states:stateMachine:{name}")}
    statements = [
        {"Sid": "Perform", "Effect": "Allow", "Action": "lambda:InvokeFunction", "Resource": performer},
        {"Sid": "GoOn", "Effect": "Allow", "Action": "states:StartExecution", "Resource": itself},
    ]
    policy = {"PolicyName": definition.name, "PolicyDocument": {"Version": VERSION, "Statement": statements}}
    properties = {
        "StateMachineName": name,
        "DefinitionString": json.dumps(asl.render(definition)),
        "DefinitionSubstitutions": {"Performer": performer, "Partition": {"Ref": "AWS::Partition"}},
        "RoleArn": {"Fn::GetAtt": [f"{id_}Role", "Arn"]},
    }
    return {
        id_: {"Type": "AWS::StepFunctions::StateMachine", "Properties": properties},
        f"{id_}Role": _role("states.amazonaws.com", [policy]),
    }


def performer_of(definition: Definition) -> Function:
    """The function that performs a step. Only one function can log in to hosts."""
    return named("bootstrap_host" if definition in (ADD_HOST, REMOVE_HOST) else "workflow_step")


def _machine_id(name: str) -> str:
    return "".join(part.title() for part in name.split("_")) + "Workflow"


if __name__ == "__main__":
    json.dump(template(sys.argv[1] if len(sys.argv) > 1 else UNNAMED), sys.stdout, indent=2)
