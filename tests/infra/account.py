"""An AWS account in memory, as far as a deployment calls it, whose calls can be cut off.

CloudFormation works on by itself, as it does: a stack that is being changed is done when it is looked at again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError, EndpointConnectionError

from chalicelib.store.memory import MemoryStore

BUCKET = "dstack-dev-1-here"
POLLS = 3  # until what CloudFormation is at has ended
LIMIT = 400  # executions at once
NOT_THERE = type("ResourceNotFoundException", (Exception,), {})


def refused(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "AnyCall")


@dataclass
class StackOf:
    status: str = "REVIEW_IN_PROGRESS"
    template: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    then: str = ""  # its status once it has been looked at often enough
    polls_left: int = 0

    def goes_on(self, status: str, then: str) -> None:
        self.status, self.then, self.polls_left = status, then, POLLS


@dataclass
class Account:
    stacks: dict[str, StackOf] = field(default_factory=dict)
    changes: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    reserved: dict[str, int] = field(default_factory=dict)  # executions, by function
    items: list[Any] = field(default_factory=list)  # of the table
    records: MemoryStore = field(default_factory=MemoryStore)  # of the table, as our store reads them
    invoked: list[str] = field(default_factory=list)
    old: set[str] = field(default_factory=set)  # objects that were put long ago
    bucket: str = BUCKET
    subnets: dict[str, dict[str, Any]] = field(default_factory=dict)  # the routes of each, by its id
    endpoints: list[dict[str, Any]] = field(default_factory=list)
    fails: set[str] = field(default_factory=set)  # stacks whose next change CloudFormation undoes
    cut: int = 0  # the number of the call at which the connection breaks; 0: none
    reached: bool = False  # that call was made all the same, and its answer was lost
    calls: list[str] = field(default_factory=list)

    def __call__(self, service: str) -> Any:
        return _Client(self, service)

    def called(self, name: str, call: Callable[[], Any]) -> Any:
        self.calls.append(name)
        if len(self.calls) != self.cut:
            return call()
        if self.reached:
            with suppress(NOT_THERE, ClientError):  # an answer, too
                call()
        raise EndpointConnectionError(endpoint_url=name)

    # --- CloudFormation ----------------------------------------------------------------------------------------------

    def describe_stacks(self, StackName: str) -> Any:
        if StackName not in self.stacks:
            raise refused("ValidationError", f"Stack with id {StackName} does not exist")
        stack = self.stacks[StackName]
        shown = {"StackStatus": stack.status, "StackId": StackName, "Outputs": []}
        stack.polls_left -= 1
        if stack.then and stack.polls_left <= 0:
            stack.status, stack.then = stack.then, ""
        if stack.status == "DELETE_COMPLETE":
            del self.stacks[StackName]
        listed = [{"ParameterKey": name, "ParameterValue": value} for name, value in stack.parameters.items()]
        return {"Stacks": [{**shown, "Parameters": listed}]}

    def describe_stack_events(self, StackName: str) -> Any:
        return {"StackEvents": []}

    def describe_stack_resource(self, StackName: str, LogicalResourceId: str) -> Any:
        assert LogicalResourceId in self.stacks[StackName].template["Resources"]
        found = self.bucket if LogicalResourceId == "Bucket" else LogicalResourceId.lower()
        return {"StackResourceDetail": {"PhysicalResourceId": found}}

    def get_template_summary(self, **where: str) -> Any:
        return {"Parameters": [{"ParameterKey": name} for name in self._template(where)["Parameters"]]}

    def create_change_set(self, StackName: str, ChangeSetName: str, ChangeSetType: str, **more: Any) -> Any:
        there = self.stacks.get(StackName)
        new = there is None or there.status == "REVIEW_IN_PROGRESS"
        assert new == (ChangeSetType == "CREATE"), "as CloudFormation demands"
        if there is not None and (there.then or there.status == "ROLLBACK_COMPLETE"):
            raise refused("ValidationError", f"Stack is in {there.status} state and can not be updated.")
        stack = self.stacks.setdefault(StackName, StackOf())
        template = self._template({name: more[name] for name in ("TemplateBody", "TemplateURL") if name in more})
        given = {
            one["ParameterKey"]: one["ParameterValue"]
            if "ParameterValue" in one
            else stack.parameters[one["ParameterKey"]]
            for one in more["Parameters"]
        }
        self.changes[ChangeSetName] = StackName, template, given
        return {"Id": ChangeSetName}

    def describe_change_set(self, ChangeSetName: str, StackName: str, IncludePropertyValues: bool) -> Any:
        name, template, parameters = self.changes[ChangeSetName]
        if (template, parameters) == (self.stacks[name].template, self.stacks[name].parameters):
            return {"Status": "FAILED", "StatusReason": "The submitted information didn't contain changes."}
        change = {"Action": "Add", "LogicalResourceId": "Any", "ResourceType": "AWS::X::Y"}
        return {"Status": "CREATE_COMPLETE", "Changes": [{"ResourceChange": change}]}

    def delete_change_set(self, ChangeSetName: str, StackName: str) -> None:
        self.changes.pop(ChangeSetName, None)

    def execute_change_set(self, ChangeSetName: str, StackName: str) -> None:
        name, template, parameters = self.changes.pop(ChangeSetName)
        stack = self.stacks[name]
        new = not stack.template
        kind = "CREATE" if new else "UPDATE"
        if name in self.fails:
            self.fails.remove(name)
            stack.goes_on(f"{kind}_IN_PROGRESS", "ROLLBACK_COMPLETE" if new else "UPDATE_ROLLBACK_COMPLETE")
            return
        stack.goes_on(f"{kind}_IN_PROGRESS", f"{kind}_COMPLETE")
        for code in template.get("Code", ()):
            assert code in self.objects, "CloudFormation finds the code that it is told of"
        stack.template, stack.parameters = template, parameters
        self.functions |= set(template.get("Functions", ()))
        self.reserved |= template.get("Reserved", {})

    def delete_stack(self, StackName: str) -> None:
        self.stacks[StackName].goes_on("DELETE_IN_PROGRESS", "DELETE_COMPLETE")

    def paginate(self, StackName: str) -> Any:
        there = {"LogicalResourceId": "Api", "ResourceType": "AWS::X::Y", "ResourceStatus": "CREATE_COMPLETE"}
        return [{"StackResourceSummaries": [there]}]

    def _template(self, where: Mapping[str, str]) -> dict[str, Any]:
        body = where.get("TemplateBody") or self.objects[where["TemplateURL"].split(f"/{self.bucket}/")[1]].decode()
        found: dict[str, Any] = json.loads(body)
        return found

    # --- EC2 ---------------------------------------------------------------------------------------------------------

    def describe_subnets(self, SubnetIds: list[str]) -> Any:
        if unknown := [each for each in SubnetIds if each not in self.subnets]:
            raise refused("InvalidSubnetID.NotFound", f"The subnet ID '{unknown[0]}' does not exist")
        return {"Subnets": [{"SubnetId": each, "VpcId": "vpc-1"} for each in SubnetIds]}

    def describe_route_tables(self, Filters: list[Any]) -> Any:
        return {
            "RouteTables": [
                {"RouteTableId": f"rtb-{id_}", "Associations": [{"SubnetId": id_}], "Routes": [route] if route else []}
                for id_, route in self.subnets.items()
            ]
        }

    def describe_vpc_endpoints(self, Filters: list[Any]) -> Any:
        return {"VpcEndpoints": self.endpoints}

    # --- the others --------------------------------------------------------------------------------------------------

    def get_parameters(self, Names: list[str]) -> Any:
        return {"Parameters": [{"Name": name} for name in Names if name in self.secrets]}

    def get_parameter(self, Name: str, WithDecryption: bool) -> Any:
        return {"Parameter": {"Value": self.secrets[Name]}}

    def put_parameter(self, Name: str, Value: str, Type: str, Overwrite: bool) -> None:
        assert Type == "SecureString" and not Overwrite and Name not in self.secrets
        self.secrets[Name] = Value

    def scan(self, TableName: str, Limit: int) -> Any:
        return {"Items": self.items}

    def get_account_settings(self) -> Any:
        return {"AccountLimit": {"UnreservedConcurrentExecutions": LIMIT - sum(self.reserved.values())}}

    def get_function_concurrency(self, FunctionName: str) -> Any:
        self.get_function(FunctionName)
        found = self.reserved.get(FunctionName)
        return {} if found is None else {"ReservedConcurrentExecutions": found}

    def get_function(self, FunctionName: str) -> Any:
        if FunctionName not in self.functions:
            raise NOT_THERE
        return {}

    def invoke(self, FunctionName: str, InvocationType: str, Payload: bytes) -> None:
        assert FunctionName in self.functions
        self.invoked.append(FunctionName)

    def list_objects_v2(self, Bucket: str, Prefix: str) -> Any:
        now = datetime.now(UTC)
        since = {name: now - timedelta(days=9) if name in self.old else now for name in self.objects}
        return {"Contents": [{"Key": key, "LastModified": at} for key, at in since.items() if key.startswith(Prefix)]}

    def upload_file(self, path: str, Bucket: str, Key: str) -> None:
        self.objects[Key] = Path(path).read_bytes()

    def put_object(self, Bucket: str, Key: str, Body: bytes) -> None:
        self.objects[Key] = Body

    def copy_object(self, Bucket: str, Key: str, CopySource: dict[str, str], MetadataDirective: str) -> None:
        assert Key in self.objects
        self.old.discard(Key)

    def delete_object(self, Bucket: str, Key: str) -> None:
        del self.objects[Key]

    def get_object(self, Bucket: str, Key: str) -> Any:
        if Key not in self.objects:
            raise refused("NoSuchKey", "")
        return {"Body": BytesIO(self.objects[Key])}


class _Client:
    def __init__(self, account: Account, service: str) -> None:
        self._account, self._service = account, service
        self.exceptions = SimpleNamespace(ResourceNotFoundException=NOT_THERE)
        self.meta = SimpleNamespace(endpoint_url="https://s3")

    def get_paginator(self, operation: str) -> Any:
        assert operation == "list_stack_resources"
        return self

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._account, name)
        return lambda *given, **more: self._account.called(f"{self._service}.{name}", lambda: call(*given, **more))
