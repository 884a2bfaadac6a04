"""The table of permissions has exactly the actions that the backend's code calls, and grants no more than it needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import chalicelib.backends.aws
from chalicelib.backends.aws.backend import AwsBackend
from chalicelib.backends.aws.permissions import CREATIONS, MARKED, OURS, PERMISSIONS, actions, probes
from chalicelib.errors import MissingPermission
from tests.backends.aws.account import Account, Script
from tests.backends.aws.provider import clients, config
from tests.backends.test_aws import Clock

HERE = Path(chalicelib.backends.aws.__file__).parent
# What AWS checks beside the action that is called.
IMPLIED = {"ec2:CreateTags", "iam:PassRole", "iam:CreateServiceLinkedRole"}
SERVICES = {"service-quotas": "servicequotas"}
_CALL = re.compile(r'(?:call|pages)\(\s*"([a-z0-9-]+)",\s*[^,]+,\s*"([a-z_]+)"')
_NAMED = re.compile(r'"(authorize_[a-z_]+)"')


def action(service: str, operation: str) -> str:
    return f"{SERVICES.get(service, service)}:{''.join(word.capitalize() for word in operation.split('_'))}"


def called() -> set[str]:
    text = "\n".join(path.read_text() for path in HERE.glob("*.py") if path.name != "permissions.py")
    found = {action(*each) for each in _CALL.findall(text)}
    return found | {action("ec2", each) for each in _NAMED.findall(text)}


def test_every_call_is_in_the_table() -> None:
    assert called() - set(actions()) == set()


def test_the_table_has_no_action_that_nothing_calls() -> None:
    unused = set(actions()) - called() - IMPLIED
    assert {each for each in unused if not _catalogue(each)} == set()


def _catalogue(name: str) -> bool:
    """The catalogue names its calls in tables of its own."""
    (table,) = (each for each in PERMISSIONS if each.sid == "Catalogue")
    return name in table.actions


def test_no_action_is_a_pattern() -> None:
    assert not [name for name in actions() if "*" in name]


def test_only_reading_is_allowed_everywhere() -> None:
    for each in PERMISSIONS:
        if each.things == ("*",):
            assert all(name.partition(":")[2].startswith(("Describe", "Get", "List")) for name in each.actions)


def test_what_is_changed_or_ended_bears_our_tag() -> None:
    for each in PERMISSIONS:
        for name in each.actions:
            verb = name.partition(":")[2]
            if verb.startswith(("Terminate", "Delete", "Release", "Authorize", "Disassociate")):
                assert each.only_if == OURS
            if (
                verb in ("RunInstances", *CREATIONS)
                and "ec2:vpc/*" not in each.things
                and "ec2:image/*" not in each.things
            ):
                assert each.only_if == MARKED


def test_statements_are_told_apart() -> None:
    names = [each.sid for each in PERMISSIONS]
    assert len(names) == len(set(names))


def test_what_is_probed_is_in_the_table() -> None:
    assert {action("ec2", probe.operation) for probe in probes("us-east-1a", "vpc-1")} <= set(actions())


def check(demands: str, **configured: object) -> list[str]:
    """Of an account that lets nothing be created without this tag; which creations were rehearsed."""
    clock = Clock()
    account = Account(clock.now, Script(demands=demands))
    AwsBackend(config(regions=["us-east-1"], **configured), clients(account), clock.now).check()
    return sorted(call.operation for call in account.calls if call.params.get("DryRun"))


@pytest.mark.parametrize(("tag", "configured"), [("dstack-install", {}), ("team", {"tags": {"team": "ml"}})])
def test_what_is_rehearsed_bears_the_tags_that_a_policy_demands(tag: str, configured: dict[str, object]) -> None:
    assert check(tag, **configured) == sorted(each for each in CREATIONS if each != "RunInstances")


def test_a_tag_that_isnt_configured_is_a_lack_of_permission() -> None:
    with pytest.raises(MissingPermission, match="CreateVolume"):
        check("team")
