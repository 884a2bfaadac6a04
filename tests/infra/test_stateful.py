"""The stateful stack says what the code needs, and keeps what it holds."""

from __future__ import annotations

from chalicelib.runtime.settings import LambdaSettings
from chalicelib.store.dynamo import TTL, table_schema
from infra.stateful import template
from tests.functions.test_functions import ROOT

RESOURCES = template()["Resources"]


def test_the_table_is_the_stores_own_schema() -> None:
    properties = dict(RESOURCES["Table"]["Properties"])
    schema = table_schema()
    assert {name: properties[name] for name in schema} == schema
    assert properties["TimeToLiveSpecification"] == TTL


def test_what_holds_state_outlives_the_stack_and_what_fails_is_set_aside() -> None:
    for name in ("Table", "Bucket"):
        assert RESOURCES[name]["DeletionPolicy"] == RESOURCES[name]["UpdateReplacePolicy"] == "Retain"
    for name in ("Wake", "Effects", "Hosts"):
        target = RESOURCES[f"{name}Queue"]["Properties"]["RedrivePolicy"]["deadLetterTargetArn"]
        assert target == {"Fn::GetAtt": [f"{name}Aside", "Arn"]} and f"{name}Aside" in RESOURCES


def test_a_step_on_a_host_isnt_repeated_while_it_may_still_run() -> None:
    assert RESOURCES["HostsQueue"]["Properties"]["VisibilityTimeout"] == 6 * 180


def test_the_bucket_drops_leftovers_and_nothing_by_its_age() -> None:
    """The log of a run that still runs may be older than anything else there."""
    (rule,) = RESOURCES["Bucket"]["Properties"]["LifecycleConfiguration"]["Rules"]
    assert rule["Status"] == "Enabled" and rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"] == 1
    assert rule["NoncurrentVersionExpiration"]["NoncurrentDays"] == 1
    assert not rule.keys() & {"ExpirationInDays", "ExpirationDate", "Expiration", "Transitions"}


def test_its_outputs_are_settings_that_the_functions_read() -> None:
    source = (ROOT / "chalicelib" / "runtime" / "settings.py").read_text()
    told = {output["Description"] for output in template()["Outputs"].values()}
    assert all(f'"{name}"' in source for name in told)
    assert len(told) == len(LambdaSettings.__dataclass_fields__) - 6  # all but the URL and what has a default
