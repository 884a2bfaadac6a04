"""The stateful stack says what the code needs, and keeps what it holds."""

from __future__ import annotations

import pytest

from chalicelib.domain.instants import SECOND
from chalicelib.planning.kernel.workflows import Definition
from chalicelib.planning.machines.hosts import ADD_HOST, REMOVE_HOST
from chalicelib.store.dynamo import TTL, table_schema
from infra.functions import named
from infra.stateful import template

RESOURCES = template()["Resources"]


def test_the_table_is_the_stores_own_schema() -> None:
    properties = dict(RESOURCES["Table"]["Properties"])
    schema = table_schema()
    assert {name: properties[name] for name in schema} == schema
    assert properties["TimeToLiveSpecification"] == TTL


def test_what_holds_state_outlives_the_stack() -> None:
    for name in ("Table", "Bucket", "BucketPolicy"):
        assert RESOURCES[name]["DeletionPolicy"].startswith("Retain")
        assert RESOURCES[name]["UpdateReplacePolicy"] == "Retain"


def test_a_first_deployment_that_fails_leaves_nothing_in_the_way_of_the_next() -> None:
    """CloudFormation deletes no resource with `Retain`, so no other may come after one."""
    stays = {name for name, one in RESOURCES.items() if one.get("DeletionPolicy") == "Retain"}
    assert stays == {"Table"} and set(RESOURCES["Table"]["DependsOn"]) == set(RESOURCES) - stays


@pytest.mark.parametrize("definition", [ADD_HOST, REMOVE_HOST], ids=lambda definition: str(definition.name))
def test_a_step_on_a_host_has_the_time_that_it_may_take(definition: Definition) -> None:
    longest = max(step.timeout for step in definition.steps) // SECOND
    assert named("bootstrap_host").timeout > longest


def test_the_bucket_answers_by_tls_alone() -> None:
    (clear,) = RESOURCES["BucketPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert (clear["Effect"], clear["Principal"], clear["Action"]) == ("Deny", "*", "s3:*")
    assert clear["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert clear["Resource"] == [{"Fn::GetAtt": ["Bucket", "Arn"]}, {"Fn::Sub": "${Bucket.Arn}/*"}]


def test_the_bucket_drops_leftovers_and_nothing_by_its_age() -> None:
    """The log of a run that still runs may be older than anything else there."""
    (rule,) = RESOURCES["Bucket"]["Properties"]["LifecycleConfiguration"]["Rules"]
    assert rule["Status"] == "Enabled" and rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"] == 1
    assert rule["NoncurrentVersionExpiration"]["NoncurrentDays"] == 1
    assert not rule.keys() & {"ExpirationInDays", "ExpirationDate", "Expiration", "Transitions"}
