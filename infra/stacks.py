"""A CloudFormation stack: its current state, what a template would change, and applying the change.

Every change goes through a change set, so it is known before it is made, and CloudFormation rolls back what it can't
finish. So a stack is always in one of these states, and what to do doesn't depend on what was done before:

| status                               | what to do                                                                  |
|--------------------------------------|-----------------------------------------------------------------------------|
| none, or only proposed               | create it                                                                   |
| complete, or rolled back to complete | update it                                                                   |
| in progress                          | another deployment runs, or was abandoned: wait for its end, then check again |
| `ROLLBACK_COMPLETE`                  | its creation failed and nothing of it is left: delete it, then create it     |
| any failure                          | a person must look into it; the error says where                            |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from chalicelib.errors import Invalid, Refused
from infra.account import explained

Course = Literal["create", "change", "follow", "clear", "refuse"]

CAPABILITIES = ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"]
POLL = 2.0  # seconds between polls of CloudFormation
SHOWN = 8  # shown properties of a resource: an API's description has hundreds
_EMPTY = ("didn't contain changes", "No updates are to be performed")
_SIGNS = {"Add": "+", "Modify": "~", "Remove": "-"}


def course(status: str | None) -> Course:
    if status in (None, "REVIEW_IN_PROGRESS"):
        return "create"
    if status.endswith("_IN_PROGRESS"):
        return "follow"
    if status == "ROLLBACK_COMPLETE":
        return "clear"
    return "change" if status.endswith("_COMPLETE") else "refuse"


def stuck(name: str, status: str) -> Refused:
    """What a person can do about a stack that CloudFormation couldn't finish."""
    if status == "UPDATE_ROLLBACK_FAILED":
        do = f"Fix what its events name, then run `aws cloudformation continue-update-rollback --stack-name {name}`"
    else:
        do = f"Look at its events, then delete it with `aws cloudformation delete-stack --stack-name {name}`"
    return Refused(f"The stack {name} is stuck: {status}.", hint=f"{do}; after that run this command again.")


def _failed(name: str, status: str, first: str) -> Refused:
    done, again = "changed", "Fix the cause, then run this command again."
    if status == "DELETE_FAILED":
        done, hint = "deleted", f"What is left of it stays. {again}"
    elif course(status) == "refuse":
        hint = stuck(name, status).hint
    else:
        hint = f"CloudFormation has undone what it had begun. {again}"
    return Refused(f"{name} could not be {done}: {first or status}.", hint=hint)


@dataclass(frozen=True)
class Change:
    """One resource in a change set."""

    action: str
    id: str
    type: str
    replaced: bool = False
    what: tuple[str, ...] = ()  # the changed properties: `Environment/Variables/NAME`

    @staticmethod
    def of(change: Mapping[str, Any]) -> Change:
        targets = [each["Target"] for each in change.get("Details", ())]
        return Change(
            change["Action"],
            change["LogicalResourceId"],
            change["ResourceType"],
            change.get("Replacement") == "True",
            tuple(dict.fromkeys(_property(target) for target in targets)),
        )

    def __str__(self) -> str:
        more = f" and {len(self.what) - SHOWN} more" if len(self.what) > SHOWN else ""
        what = f": {', '.join(self.what[:SHOWN])}{more}" if self.what else ""
        note = "  (replaced by a new one)" if self.replaced else ""
        return f"  {_SIGNS.get(self.action, '?')} {self.id}  {self.type}{what}{note}"


def _property(target: Mapping[str, str]) -> str:
    """The changed value's path in the resource's properties, if CloudFormation gives it; otherwise the property's
    name."""
    return "/".join(target.get("Path", "").split("/")[2:]) or target.get("Name") or target["Attribute"]


@dataclass(frozen=True)
class Proposal:
    """A change set that can be executed. There is none if nothing would change."""

    id: str
    changes: tuple[Change, ...]


class Stack:
    def __init__(self, formation: Any, name: str, say: Callable[[str], None], poll: float = POLL) -> None:
        self._formation, self.name, self._say, self._poll = formation, name, say, poll

    def found(self) -> dict[str, Any] | None:
        with explained(f"look at the stack {self.name}"):
            return _one_or_none(self._formation, self.name)

    def status(self) -> str | None:
        found = self.found()
        return None if found is None else found["StackStatus"]

    def parameters(self) -> dict[str, str]:
        """The deployed values."""
        found = self.found() or {}
        return {each["ParameterKey"]: each["ParameterValue"] for each in found.get("Parameters", ())}

    def tags(self) -> dict[str, str]:
        """The tags of the stack, which CloudFormation puts on everything that it makes for it."""
        return {each["Key"]: each["Value"] for each in (self.found() or {}).get("Tags", ())}

    def output(self, name: str) -> str:
        found = self.found() or {}
        return next((one["OutputValue"] for one in found.get("Outputs", ()) if one["OutputKey"] == name), "")

    def physical(self, logical: str) -> str:
        """The resource's physical id."""
        with explained(f"find {logical} of the stack {self.name}"):
            found = self._formation.describe_stack_resource(StackName=self.name, LogicalResourceId=logical)
            return str(found["StackResourceDetail"]["PhysicalResourceId"])

    def removal(self) -> tuple[Change, ...]:
        """The stack's resources, as changes that would delete them."""
        with explained(f"list the resources of {self.name}"):
            pages = self._formation.get_paginator("list_stack_resources").paginate(StackName=self.name)
            found = [each for page in pages for each in page["StackResourceSummaries"]]
        there = (each for each in found if each["ResourceStatus"] != "DELETE_COMPLETE")
        return tuple(
            sorted(
                (Change("Remove", each["LogicalResourceId"], each["ResourceType"]) for each in there),
                key=lambda change: change.id,
            )
        )

    def settle(self) -> None:
        """Waits until the stack can be created or updated. Raises Refused if only a person can fix it."""
        while (now := course(status := self.status())) in ("follow", "clear"):
            if now == "follow":
                self._say(f"{self.name} is being changed by somebody else ({status}); waiting for its end …")
                self._follow(self._seen_events())
            else:
                self._say(f"{self.name} was never finished ({status}): deleting what is left of it …")
                self.delete()
        if now == "refuse":
            raise stuck(self.name, str(status))

    def propose(
        self, parameters: Mapping[str, str], tags: Mapping[str, str] | None = None, **template: str
    ) -> Proposal | None:
        """Creates a change set for the template (`TemplateBody` or `TemplateURL`). None if there is nothing to
        change. Without `tags`, they stay as they are."""
        known = {} if tags is None else {"Tags": [{"Key": key, "Value": value} for key, value in sorted(tags.items())]}
        existing = self.found()
        kind = "CREATE" if course(existing["StackStatus"] if existing else None) == "create" else "UPDATE"
        deployed = (
            {each["ParameterKey"] for each in (existing or {}).get("Parameters", ())} if kind == "UPDATE" else set()
        )
        with explained(f"prepare the change of {self.name}"):
            declared = self._declared(template)
            if unknown := sorted(parameters.keys() - declared):
                raise Invalid(
                    f"The stack {self.name} has no parameter {', '.join(unknown)}.",
                    hint=f"It has {', '.join(sorted(declared))}.",
                )
            created = self._formation.create_change_set(
                StackName=self.name,
                ChangeSetName=f"deploy-{time.time_ns()}",
                ChangeSetType=kind,
                Capabilities=CAPABILITIES,
                Parameters=_parameters(parameters, deployed & declared),
                **known,
                **template,
            )
            return self._prepared(created["Id"])

    def _declared(self, template: dict[str, str]) -> set[str]:
        summary = self._formation.get_template_summary(**template)
        return {each["ParameterKey"] for each in summary.get("Parameters", ())}

    def _prepared(self, id_: str) -> Proposal | None:
        while True:
            described = self._described(id_)
            if described["Status"] == "FAILED":
                self.drop(id_)
                reason = described.get("StatusReason", "")
                if any(text in reason for text in _EMPTY):
                    return None
                raise Refused(f"CloudFormation can't change {self.name}: {reason}")
            if described["Status"] == "CREATE_COMPLETE":
                return Proposal(id_, tuple(self._changes(id_, described)))
            time.sleep(self._poll)

    def _changes(self, id_: str, described: dict[str, Any]) -> Sequence[Change]:
        found = list(described["Changes"])
        while described.get("NextToken"):
            described = self._described(id_, NextToken=described["NextToken"])
            found += described["Changes"]
        return sorted(
            (Change.of(each["ResourceChange"]) for each in found),
            key=lambda change: (change.action, change.id),
        )

    def _described(self, id_: str, **page: str) -> dict[str, Any]:
        return dict(
            self._formation.describe_change_set(
                ChangeSetName=id_, StackName=self.name, IncludePropertyValues=True, **page
            )
        )

    def drop(self, id_: str) -> None:
        with explained("delete a change set"):
            self._formation.delete_change_set(ChangeSetName=id_, StackName=self.name)

    def execute(self, proposal: Proposal) -> None:
        """Executes the change set and waits for its end. Raises Refused with the first resource that failed; the stack
        is then rolled back."""
        with explained(f"change {self.name}"):
            seen = self._seen_events()
            self._formation.execute_change_set(ChangeSetName=proposal.id, StackName=self.name)
        self._follow(seen, failing=True)

    def delete(self) -> None:
        with explained(f"delete {self.name}"):
            found = self.found()
            if found is None:
                return
            seen = self._seen_events()
            self._formation.delete_stack(StackName=found["StackId"])
        self._follow(seen, failing=True, name=found["StackId"])

    def _follow(self, seen: set[str], *, failing: bool = False, name: str = "") -> None:
        first = ""
        while True:
            with explained(f"follow {self.name}"):
                found = _one_or_none(self._formation, name or self.name)
                for event in reversed([each for each in self._events(name, seen) if each["EventId"] not in seen]):
                    seen.add(event["EventId"])
                    first = first or _failure(event)
                    self._say(_line(event))
            status = found["StackStatus"] if found else "DELETE_COMPLETE"
            if course(status) != "follow":
                break
            time.sleep(self._poll)
        if failing and ("ROLLBACK" in status or status.endswith("_FAILED")):
            raise _failed(self.name, status, first)

    def _seen_events(self) -> set[str]:
        """The ids of the latest events; later ones are new."""
        with explained(f"follow {self.name}"):
            return {event["EventId"] for event in self._events("", None)}

    def _events(self, name: str, seen: Collection[str] | None) -> list[dict[str, Any]]:
        """Events from newest to oldest, up to the first seen one. Only the latest page if `seen` is None."""
        if _one_or_none(self._formation, name or self.name) is None:
            return []
        found: list[dict[str, Any]] = []
        after: dict[str, str] = {}
        while True:
            page = self._formation.describe_stack_events(StackName=name or self.name, **after)
            found += page["StackEvents"]
            known = seen is None or any(each["EventId"] in seen for each in page["StackEvents"])
            if known or "NextToken" not in page:
                return found
            after = {"NextToken": page["NextToken"]}


def _one_or_none(formation: Any, name: str) -> dict[str, Any] | None:
    from botocore.exceptions import ClientError

    try:
        found: list[dict[str, Any]] = formation.describe_stacks(StackName=name)["Stacks"]
    except ClientError as error:
        if "does not exist" in error.response["Error"].get("Message", ""):
            return None
        raise
    return found[0] if found else None


def _parameters(given: Mapping[str, str], deployed: set[str]) -> list[dict[str, Any]]:
    """The parameters to deploy. The ones that aren't given keep their deployed values."""
    set_ = [{"ParameterKey": name, "ParameterValue": value} for name, value in given.items()]
    old = [{"ParameterKey": name, "UsePreviousValue": True} for name in sorted(deployed - given.keys())]
    return set_ + old


def _failure(event: dict[str, Any]) -> str:
    reason = event.get("ResourceStatusReason", "")
    if event["ResourceStatus"].endswith("_FAILED") and "cancelled" not in reason:
        return f"{event['LogicalResourceId']} ({event['ResourceType']}): {reason}"
    return ""


def _line(event: dict[str, Any]) -> str:
    reason = f"  {event['ResourceStatusReason']}" if event.get("ResourceStatusReason") else ""
    return f"  {event['ResourceStatus']:<28} {event['LogicalResourceId']}{reason}"
