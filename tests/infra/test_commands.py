"""`infra.deploy` and `infra.destroy` where they can't go on: each says what to do, and nothing raises."""

from __future__ import annotations

import io

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError

from chalicelib.domain import keys
from chalicelib.domain.instances import InstanceStatus
from chalicelib.errors import DstackError, Invalid, Refused
from chalicelib.store import nouns
from chalicelib.store.memory import MemoryStore
from infra import carriers, command, deploy, deploy_policy, destroy, new_token, restore
from infra.account import checked, explained
from infra.installed import costing, variables
from tests.world import gateway_seats
from tests.world import nouns as b


@pytest.mark.parametrize("name", ["", "Dev", "1st", "a" * 22, "de v", "dev/x", "dev-data", "dev-spending"])
def test_a_stage_needs_a_name_that_resources_can_bear(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Invalid):
        checked(name)
    assert (
        deploy.main([name])
        == destroy.main([name])
        == new_token.main([name])
        == carriers.main([name])
        == deploy_policy.main([name])
        == restore.main([name, "--at", "2026-11-21T08:00Z"])
        == 1
    )
    assert "can't name a stage" in capsys.readouterr().err


def test_a_name_of_21_characters_is_one() -> None:
    assert checked("a" * 21) == "a" * 21


def failed(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "as told"}}, "Call")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (NoCredentialsError(), "There are no AWS credentials. Set AWS_PROFILE"),
        (failed("ExpiredToken"), "have expired. Log in again"),
        (failed("InvalidClientTokenId"), "doesn't know these credentials"),
        (failed("AccessDenied"), "refused to look: as told (AccessDenied) `make policy STAGE=…` writes"),
        (failed("LimitExceeded"), "refused to look: as told (LimitExceeded)"),
        (EndpointConnectionError(endpoint_url="https://x"), "Check the connection and the region"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_the_sdk_raises_is_told_with_a_way_out(error: Exception, message: str) -> None:
    with pytest.raises(Refused) as raised, explained("look"):
        raise error
    assert message in str(raised.value)


def test_without_a_region_it_says_where_to_set_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", f"{tmp_path}/none")
    assert deploy.main(["dev"]) == 1
    assert "No region is set." in capsys.readouterr().err


def test_a_file_of_prices_is_refused_since_no_function_would_read_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DSTACK_CATALOG_FILE", "prices.csv")
    assert deploy.main(["dev", "--region", "eu-west-1"]) == 1
    assert "DSTACK_CATALOG_FILE is for `dstack server`" in capsys.readouterr().err


def test_without_a_terminal_nobody_is_taken_to_have_agreed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(DstackError, match="nobody to answer"):
        command._ask("Really?")


def test_a_parameter_is_a_name_and_a_value() -> None:
    assert command.pairs(["A=1", "B=x=y"], "--set", "A=1") == {"A": "1", "B": "x=y"}
    with pytest.raises(Invalid, match="NAME=VALUE"):
        command.pairs(["A"], "--set", "A=1")


def test_only_variables_that_functions_read_are_passed_on() -> None:
    given = {"DSTACK_RETAIN_EVENTS": "9", "DSTACK_API_URL": "https://x", "DSTACK_DIND_IMAGE": "", "HOME": "/root"}
    assert variables(given) == {"DSTACK_RETAIN_EVENTS": "9", "DSTACK_API_URL": "https://x"}


def test_what_is_kept_can_be_deleted_by_hand() -> None:
    advice = destroy.how_to_delete("dev", "dstack-dev-data", "dstack-dev", "dstack-dev-1")
    for part in (
        "delete-stack --stack-name dstack-dev-data",
        "s3://dstack-dev-1",
        "/dstack-dev/master-key",
        "/traces-headers",
    ):
        assert part in advice


def test_machines_of_fleets_and_of_gateways_are_left_alone_by_nobody() -> None:
    """A gateway's machine is in no fleet. One on a host of a fleet is named once, as the fleet's."""
    store, fleet = MemoryStore(), b.fleet("pool")
    store.commit([nouns.pointer(keys.project_name("main"), b.PROJECT), nouns.put(fleet)])
    store.commit([nouns.pointer(keys.fleet_name(b.PROJECT, "pool"), fleet.id)])
    host, gone = b.machine(0, fleet), b.machine(1, fleet, status=InstanceStatus.terminated)
    door = gateway_seats.gateway(b.PROJECT, name="door")
    own = b.machine(0, b.fleet("door").with_(id=door.id), due_at=None)
    store.commit([nouns.put(gone)])
    gateway_seats.keep(store, gateway_seats.gateway(b.PROJECT, host, name="edge"), host)
    gateway_seats.keep(store, door, own)
    assert sorted(costing(store)) == ["door-0 in main (idle)", "pool-0 in main (idle)"]
