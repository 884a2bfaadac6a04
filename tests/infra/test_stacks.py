"""What is done about a stack, by what is found of it: on a CloudFormation in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError

from chalicelib.errors import Invalid, Refused
from infra.stacks import Change, Course, Stack, course

PAGE = 3  # events


@dataclass
class Formation:
    """One stack, whose next statuses are given; a change set proposes `changes`."""

    statuses: list[str] = field(default_factory=list)  # of the next looks; the last one stays
    changes: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""  # why the change set failed
    events: list[dict[str, Any]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    change_set: dict[str, Any] = field(default_factory=dict)

    def describe_stacks(self, StackName: str) -> Any:
        if not self.statuses:
            error = {"Code": "ValidationError", "Message": f"Stack with id {StackName} does not exist"}
            raise ClientError({"Error": error}, "DescribeStacks")
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if status == "gone":
            self.statuses.clear()
            return {"Stacks": []}
        parameters = [{"ParameterKey": name, "ParameterValue": "old"} for name in ("Kept", "Given", "Dropped")]
        return {"Stacks": [{"StackStatus": status, "StackId": "arn", "Parameters": parameters}]}

    def describe_stack_events(self, StackName: str, NextToken: str = "0") -> Any:
        start = int(NextToken)
        more = {"NextToken": str(start + PAGE)} if start + PAGE < len(self.events) else {}
        return {"StackEvents": self.events[start : start + PAGE], **more}

    def get_paginator(self, operation: str) -> Formation:
        assert operation == "list_stack_resources"
        return self

    def paginate(self, StackName: str) -> Any:
        for name, status in (("B", "UPDATE_COMPLETE"), ("A", "CREATE_COMPLETE"), ("Gone", "DELETE_COMPLETE")):
            one = {"LogicalResourceId": name, "ResourceType": "AWS::X::Y", "ResourceStatus": status}
            yield {"StackResourceSummaries": [one]}

    def delete_stack(self, StackName: str) -> None:
        self.calls.append("delete")
        self.statuses[:] = ["DELETE_IN_PROGRESS", "gone"]

    def get_template_summary(self, **template: str) -> Any:
        return {"Parameters": [{"ParameterKey": name} for name in ("Kept", "Given", "New")]}

    def create_change_set(self, **params: Any) -> Any:
        self.calls.append(params["ChangeSetType"])
        self.change_set = params
        return {"Id": "change"}

    def describe_change_set(
        self, ChangeSetName: str, StackName: str, IncludePropertyValues: bool, NextToken: str = ""
    ) -> Any:
        assert IncludePropertyValues, "else only whole properties are named"
        if self.reason:
            return {"Status": "FAILED", "StatusReason": self.reason}
        first, rest = self.changes[:1], self.changes[1:]
        page = {"Changes": rest} if NextToken else {"Changes": first, "NextToken": "more"}
        return {"Status": "CREATE_COMPLETE", **page}

    def delete_change_set(self, ChangeSetName: str, StackName: str) -> None:
        self.calls.append("drop")

    def execute_change_set(self, ChangeSetName: str, StackName: str) -> None:
        self.calls.append("execute")
        self.events.insert(0, event("e2", "Roles", "CREATE_FAILED", "Resource creation cancelled"))
        self.events.insert(0, event("e3", "Api", "CREATE_FAILED", "it is full"))
        self.events.insert(0, event("e4", "Zone", "DELETE_FAILED", "it is in use"))
        self.statuses[:] = self.statuses[1:] or self.statuses


def event(id_: str, name: str, status: str, reason: str = "") -> dict[str, Any]:
    return {
        "EventId": id_,
        "LogicalResourceId": name,
        "ResourceType": "AWS::X::Y",
        "ResourceStatus": status,
        "ResourceStatusReason": reason,
    }


def change(action: str, name: str, replacement: str = "False", *targets: dict[str, str]) -> dict[str, Any]:
    fields = {"Action": action, "LogicalResourceId": name, "ResourceType": "AWS::X::Y", "Replacement": replacement}
    return {"ResourceChange": fields | {"Details": [{"Target": target} for target in targets]}}


def stack(formation: Formation, lines: list[str] | None = None) -> Stack:
    return Stack(formation, "dstack-dev", (lines if lines is not None else []).append, poll=0)


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        (None, "create"),
        ("REVIEW_IN_PROGRESS", "create"),
        ("CREATE_IN_PROGRESS", "follow"),
        ("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "follow"),
        ("UPDATE_ROLLBACK_IN_PROGRESS", "follow"),
        ("ROLLBACK_COMPLETE", "clear"),
        ("CREATE_COMPLETE", "change"),
        ("UPDATE_COMPLETE", "change"),
        ("UPDATE_ROLLBACK_COMPLETE", "change"),
        ("IMPORT_COMPLETE", "change"),
        ("ROLLBACK_FAILED", "refuse"),
        ("UPDATE_ROLLBACK_FAILED", "refuse"),
        ("DELETE_FAILED", "refuse"),
    ],
)
def test_a_status_says_what_to_do(status: str | None, wanted: Course) -> None:
    assert course(status) == wanted


def test_a_deployment_in_progress_is_followed_to_its_end() -> None:
    lines: list[str] = []
    formation = Formation(["UPDATE_IN_PROGRESS", "UPDATE_IN_PROGRESS", "UPDATE_COMPLETE"])
    stack(formation, lines).settle()
    assert "waiting for its end" in lines[0] and formation.calls == []


def test_a_stack_that_was_never_finished_is_deleted_first() -> None:
    formation = Formation(["ROLLBACK_COMPLETE"])
    one = stack(formation)
    one.settle()
    assert formation.calls == ["delete"] and one.status() is None


@pytest.mark.parametrize(
    ("status", "message"),
    [("UPDATE_ROLLBACK_FAILED", "continue-update-rollback --stack-name dstack-dev"), ("DELETE_FAILED", "delete-stack")],
)
def test_a_stuck_stack_is_refused_with_what_to_do(status: str, message: str) -> None:
    with pytest.raises(Refused, match=status) as raised:
        stack(Formation([status])).settle()
    assert message in raised.value.hint


def test_changes_are_listed_by_all_pages_with_what_is_replaced() -> None:
    formation = Formation(
        ["CREATE_COMPLETE"], [change("Modify", "B", "True"), change("Remove", "C"), change("Add", "A")]
    )
    proposal = stack(formation).propose({}, TemplateBody="{}")
    assert proposal is not None
    assert [str(one) for one in proposal.changes] == [
        "  + A  AWS::X::Y",
        "  ~ B  AWS::X::Y  (replaced by a new one)",
        "  - C  AWS::X::Y",
    ]
    assert proposal.changes[0] == Change("Add", "A", "AWS::X::Y")


def test_what_a_removal_deletes_is_listed_by_all_pages() -> None:
    shown = [str(one) for one in stack(Formation(["CREATE_COMPLETE"])).removal()]
    assert shown == ["  - A  AWS::X::Y", "  - B  AWS::X::Y"]


def test_a_change_names_what_of_a_resource_is_another() -> None:
    """Above all a variable that somebody forgot to set again."""
    code = {"Attribute": "Properties", "Name": "Code", "Path": "/Properties/Code/S3Key"}
    gone = {"Attribute": "Properties", "Name": "Environment", "Path": "/Properties/Environment/Variables/DSTACK_X"}
    properties, tags = {"Attribute": "Properties", "Name": "MemorySize"}, {"Attribute": "Tags"}
    formation = Formation(["CREATE_COMPLETE"], [change("Modify", "Api", "False", code, gone, gone, properties, tags)])
    proposal = stack(formation).propose({}, TemplateBody="{}")
    assert proposal is not None
    (line,) = map(str, proposal.changes)
    assert line == "  ~ Api  AWS::X::Y: Code/S3Key, Environment/Variables/DSTACK_X, MemorySize, Tags"
    many = Change("Modify", "Api", "AWS::X::Y", what=tuple("abcdefghij"))
    assert str(many) == "  ~ Api  AWS::X::Y: a, b, c, d, e, f, g, h and 2 more"


def test_a_parameter_that_isnt_given_stays_as_it_was_deployed() -> None:
    formation = Formation(["CREATE_COMPLETE"], [change("Add", "A")])
    stack(formation).propose({"Given": "new"}, TemplateBody="{}")
    assert formation.change_set["Parameters"] == [
        {"ParameterKey": "Given", "ParameterValue": "new"},
        {"ParameterKey": "Kept", "UsePreviousValue": True},
    ]
    assert formation.calls == ["UPDATE"]


def test_a_parameter_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    formation = Formation(["CREATE_COMPLETE"], [change("Add", "A")])
    with pytest.raises(Invalid, match="no parameter Givne") as refused:
        stack(formation).propose({"Given": "new", "Givne": "x"}, TemplateBody="{}")
    assert refused.value.hint == "It has Given, Kept, New." and formation.calls == []


def test_parameters_are_those_that_are_deployed() -> None:
    assert stack(Formation(["CREATE_COMPLETE"])).parameters() == dict.fromkeys(("Kept", "Given", "Dropped"), "old")
    assert stack(Formation([])).parameters() == {}


def test_a_first_time_creates() -> None:
    formation = Formation([], [change("Add", "A")])
    stack(formation).propose({"Given": "new"}, TemplateBody="{}")
    assert formation.calls == ["CREATE"]


def test_nothing_to_change_is_no_failure_and_leaves_no_change_set() -> None:
    formation = Formation(
        ["CREATE_COMPLETE"], reason="The submitted information didn't contain changes. Submit others."
    )
    assert stack(formation).propose({}, TemplateBody="{}") is None
    assert formation.calls == ["UPDATE", "drop"]


def test_a_template_that_cloudformation_refuses_is_told_in_its_words() -> None:
    with pytest.raises(Refused, match="Unresolved resource dependencies"):
        stack(Formation(["CREATE_COMPLETE"], reason="Unresolved resource dependencies")).propose({}, TemplateBody="{}")


def test_a_failed_change_names_the_first_resource_that_failed() -> None:
    """And not those that were cancelled because of it, nor what earlier deployments said."""
    old = event("e1", "Old", "CREATE_FAILED", "long ago")
    formation = Formation(["CREATE_COMPLETE", "UPDATE_IN_PROGRESS"], [change("Add", "A")], events=[old])
    lines: list[str] = []
    one = stack(formation, lines)
    formation.statuses[:] = ["CREATE_COMPLETE", "CREATE_COMPLETE", "CREATE_COMPLETE"]
    proposal = one.propose({}, TemplateBody="{}")
    assert proposal is not None
    formation.statuses[:] = ["CREATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE"]
    with pytest.raises(Refused, match=r"Api \(AWS::X::Y\): it is full") as raised:
        one.execute(proposal)
    assert "run this command again" in raised.value.hint
    assert not any("long ago" in line for line in lines)


def test_what_failed_first_is_found_however_much_followed_before_the_next_look() -> None:
    """And nothing of earlier deployments is looked at."""
    lines: list[str] = []
    old = [event(f"old{number}", "Old", "CREATE_FAILED", "long ago") for number in range(9)]
    formation = Formation(["CREATE_COMPLETE"], [change("Add", "A")], events=old)
    one = stack(formation, lines)
    proposal = one.propose({}, TemplateBody="{}")
    assert proposal is not None
    execute = formation.execute_change_set

    def executed(**params: str) -> None:
        execute(**params)
        formation.events[:0] = [event(f"d{number}", f"R{number}", "DELETE_COMPLETE") for number in range(7)]

    formation.execute_change_set = executed  # type: ignore[method-assign]
    formation.statuses[:] = ["CREATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE"]
    with pytest.raises(Refused, match=r"Api \(AWS::X::Y\): it is full"):
        one.execute(proposal)
    assert len(lines) == 10 and not any("long ago" in line for line in lines)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("UPDATE_ROLLBACK_COMPLETE", "CloudFormation has undone what it had begun"),
        ("UPDATE_ROLLBACK_FAILED", "continue-update-rollback --stack-name dstack-dev"),
        ("DELETE_FAILED", "What is left of it stays"),
    ],
)
def test_what_failed_is_said_to_be_undone_only_if_it_was(status: str, expected: str) -> None:
    formation = Formation(["CREATE_COMPLETE"], [change("Add", "A")])
    one = stack(formation)
    proposal = one.propose({}, TemplateBody="{}")
    assert proposal is not None
    formation.statuses[:] = ["CREATE_COMPLETE", status]
    with pytest.raises(Refused) as raised:
        one.execute(proposal)
    assert expected in raised.value.hint and "run this command again" in raised.value.hint
