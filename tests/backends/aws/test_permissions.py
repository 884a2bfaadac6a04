"""The table of permissions has exactly the actions that the backend's code calls, and grants no more than it needs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import chalicelib.backends.aws
from chalicelib.backends.aws.backend import AwsBackend
from chalicelib.backends.aws.permissions import CREATIONS, MARKED, OURS, PERMISSIONS, actions, probes
from chalicelib.backends.price_file import OfflinePrices
from chalicelib.configuration.server import parse_backend
from chalicelib.errors import MissingPermission
from infra.policies import Grant, in_file
from tests.backends.aws.account import REHEARSED, Account, Fault, Script
from tests.backends.aws.provider import AwsProvider, clients, config
from tests.backends.clock import Clock
from tests.backends.conformance import group_request_for, request_for, volume_request
from tests.backends.test_aws import usual_offers

HERE = Path(chalicelib.backends.aws.__file__).parent
DOCS = Path(__file__).parents[3] / "docs"
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
    assert {each for each in unused if not _catalog(each)} == set()


def _catalog(name: str) -> bool:
    """The catalog names its calls in tables of its own."""
    (table,) = (each for each in PERMISSIONS if each.sid == "Catalog")
    return name in table.actions


def test_only_roles_for_machines_are_passed_and_only_to_ec2() -> None:
    (each,) = (each for each in PERMISSIONS if "iam:PassRole" in each.actions)
    assert each.actions == ("iam:PassRole",) and each.resources == ("iam:role/dstack-machine*",)
    assert each.condition == {"StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]}}


def test_no_action_is_a_pattern() -> None:
    assert not [name for name in actions() if "*" in name]


def test_only_reading_is_allowed_everywhere() -> None:
    for each in PERMISSIONS:
        if each.resources == ("*",):
            assert all(name.partition(":")[2].startswith(("Describe", "Get", "List")) for name in each.actions)


def test_what_is_changed_or_ended_bears_our_tag() -> None:
    for each in PERMISSIONS:
        for name in each.actions:
            verb = name.partition(":")[2]
            if verb.startswith(("Terminate", "Delete", "Release", "Authorize", "Disassociate")):
                assert each.condition == OURS
            if (
                verb in ("RunInstances", *CREATIONS)
                and "ec2:vpc/*" not in each.resources
                and "ec2:image/*" not in each.resources
            ):
                assert each.condition == MARKED


def test_statements_are_told_apart() -> None:
    names = [each.sid for each in PERMISSIONS]
    assert len(names) == len(set(names))


def test_the_policy_of_the_page_is_the_table() -> None:
    grants = [Grant(each.sid, each.actions, each.resources, each.condition) for each in PERMISSIONS]
    text = (DOCS / "examples" / "aws" / "policy.json").read_text()
    assert json.loads(text) == json.loads(json.dumps(in_file(grants, stage="")))
    assert len("".join(text.split())) <= 6_144, "AWS's limit for a policy"


def test_the_configuration_of_the_page_is_accepted() -> None:
    (text,) = re.findall(r"(?ms)^```yaml\n(type: aws\n.*?)^```", (DOCS / "guides" / "aws.md").read_text())
    given: Any = parse_backend(text)
    clock = Clock()
    AwsBackend(config(regions=given.regions), clients(Account(clock.now, Script(lag=0))), clock.now).check()


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
    assert check(tag, **configured) == sorted([*CREATIONS, "RunInstances"]), "a launch on demand and one of spot"


def test_a_tag_that_isnt_configured_is_a_lack_of_permission() -> None:
    with pytest.raises(MissingPermission, match="CreateVolume"):
        check("team")


# --- what a check finds -----------------------------------------------------------------------------------------------

MESSAGE = "You are not authorized to perform this operation. User: u is not authorized to perform: {} on resource: *"


class Checked:
    """An account in one region, with a machine, a group, a volume and an address of ours."""

    def __init__(self, *, empty: bool = False, prices: OfflinePrices | None = None, **configured: Any) -> None:
        clock = Clock()
        self.account = Account(clock.now, Script(lag=0))
        calls = clients(self.account)
        self.backend = AwsBackend(config(regions=["us-east-1"], **configured), calls, clock.now, prices)
        if empty:
            return
        if profile := configured.get("iam_instance_profile"):
            calls.call("iam", "us-east-1", "create_instance_profile", InstanceProfileName=profile)
        offer = next(
            each for each in usual_offers() if each.region == "us-east-1" and each.instance.name == "m7i.large"
        )
        (machine, *_) = self.backend.create(request_for(offer))
        self.backend.create_group(group_request_for(offer))
        self.backend.create_volume(volume_request("us-east-1"))
        tags = [{"Key": "dstack-install", "Value": "i"}]
        named = [{"ResourceType": "elastic-ip", "Tags": tags}]
        made = calls.call("ec2", "us-east-1", "allocate_address", Domain="vpc", TagSpecifications=named)
        clock.passes(120)  # until it runs
        ids = {"AllocationId": made["AllocationId"], "InstanceId": machine.id}
        calls.call("ec2", "us-east-1", "associate_address", **ids)

    def deny(self, operation: str, action: str = "") -> None:
        text = MESSAGE.format(action) if action else "You are not authorized to perform this operation."
        fault = Fault(operation, "UnauthorizedOperation", times=99, status=403, message=text)
        self.account.script.faults.append(fault)


@pytest.fixture(scope="module")
def checked() -> Checked:
    return Checked(iam_instance_profile="dstack-machines")


# Those that are part of another call, as AWS says in its answer; and two that a check can't or needn't find.
WITHIN = {"ec2:CreateTags": ("RunInstances", "CreateVolume"), "iam:PassRole": ("RunInstances",)}
UNFOUND = {
    "iam:CreateServiceLinkedRole",  # for the account's first spot machine, and never again
    "servicequotas:ListServiceQuotas",  # without which quotas are unknown
}


@pytest.mark.parametrize("action", sorted({*actions()} - UNFOUND))
def test_a_check_names_what_is_missing(checked: Checked, action: str) -> None:
    for operation in WITHIN.get(action, (action.partition(":")[2],)):
        checked.deny(operation, action)
        with pytest.raises(MissingPermission, match=rf"doesn't allow {action} in us-east-1"):
            checked.backend.check()
        checked.account.script.faults.clear()


def test_quotas_and_with_a_file_prices_neednt_be_read() -> None:
    checked = Checked(prices=OfflinePrices(Path("prices.csv")))
    for operation in ("ListServiceQuotas", "GetProducts", "DescribeSpotPriceHistory"):
        checked.deny(operation)
    checked.backend.check()


def test_a_check_says_everything_that_is_missing_at_once() -> None:
    checked = Checked()
    for operation in ("RunInstances", "DescribeVolumes", "TerminateInstances"):
        checked.deny(operation)
    with pytest.raises(MissingPermission) as raised:
        checked.backend.check()
    assert all(
        f"ec2:{name} in" in str(raised.value) for name in ("RunInstances", "DescribeVolumes", "TerminateInstances")
    )


def test_a_check_changes_nothing() -> None:
    checked = Checked()
    before = AwsProvider(checked.account).existing()
    begun = len(checked.account.calls)
    checked.backend.check()
    assert AwsProvider(checked.account).existing() == before and before
    calls = [call for call in checked.account.calls[begun:] if not call.operation.startswith(("Describe", "Get"))]
    assert {call.operation for call in calls} == {*CREATIONS, *REHEARSED}
    assert all(call.params["DryRun"] for call in calls)


def test_what_nobody_has_yet_is_not_found_to_be_denied() -> None:
    """Of what doesn't exist, AWS takes the tag to be missing, and denies what it would allow later."""
    checked = Checked(empty=True)
    for operation in REHEARSED:
        checked.deny(operation)
    checked.backend.check()


def test_a_launch_is_rehearsed_as_it_will_be() -> None:
    checked = Checked(empty=True, tags={"team": "ml"}, public_ips=True)
    checked.backend.check()
    on_demand, spot = checked.account.params_of("RunInstances")
    assert spot["InstanceMarketOptions"]["MarketType"] == "spot" and "InstanceMarketOptions" not in on_demand
    assert on_demand["ClientToken"] != spot["ClientToken"], "the SDK's own, which stands for nothing"
    tags = {tag["Key"] for each in on_demand["TagSpecifications"] for tag in each["Tags"]}
    assert tags >= {"team", "dstack-install", "dstack-token"}
