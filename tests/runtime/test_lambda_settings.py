"""The settings of the functions in AWS: one call, what overrides what, and what is said where something is missing."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from chalicelib.backends.simulated.cloud import FACTS
from chalicelib.domain.owner import ANY
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.errors import Bug, NotDeployed
from chalicelib.runtime.chalice_app import ControlPlane
from chalicelib.runtime.lambda_ import Boto, parameters
from chalicelib.runtime.settings import LambdaSettings
from chalicelib.store.seal import NoSealer
from tests.harness.lambda_host import api_event

KEYS = {"install-key": "a1" * 32, "master-key": "b2" * 32}
STACK = {
    "table": "dstack-dev",
    "bucket": "dstack-dev-1",
    "wake_function": "dstack-dev-reconcile",
    "provider_functions": {"clouds": "dstack-dev-provider_clouds"},
    "host_function": "dstack-dev-bootstrap_host",
    "aside_queue": "https://sqs/aside",
    "api_url": "https://a.example.com/api/",
    "agent_url": "https://b.example.com/",
    "state_machines": {"add-host": "arn:aws:states:::add"},
}
HERE = {"DSTACK_KEYS": "/dstack-dev"}
COMPLETE = {**KEYS, "settings": json.dumps(STACK)}


class Ssm:
    """Parameter Store as far as one function asks it."""

    def __init__(self, stored: dict[str, str]) -> None:
        self._stored, self.calls = stored, 0

    def __call__(self, service: str) -> Ssm:
        assert service == "ssm"
        return self

    def get_parameters(self, Names: list[str], WithDecryption: bool) -> Any:
        self.calls += 1
        assert WithDecryption
        stored = {f"/dstack-dev/{name}": value for name, value in self._stored.items()}
        return {"Parameters": [{"Name": name, "Value": stored[name]} for name in Names if name in stored]}


def test_one_call_brings_the_keys_and_what_the_stack_wrote() -> None:
    ssm = Ssm(COMPLETE)
    found = LambdaSettings.read(parameters(ssm), HERE)
    assert ssm.calls == 1
    assert (found.table, found.bucket, found.dead_letter_queue) == ("dstack-dev", "dstack-dev-1", "https://sqs/aside")
    assert (found.wake_function, found.host_function) == ("dstack-dev-reconcile", "dstack-dev-bootstrap_host")
    assert (found.api_url, found.agent_url) == ("https://a.example.com/api", "https://b.example.com")
    assert (found.install_key, found.master_key) == (b"\xa1" * 32, b"\xb2" * 32)
    assert found.state_machines == {"add-host": "arn:aws:states:::add"}
    assert "a1a1" not in repr(found) and r"\xa1" not in repr(found)


def test_a_function_has_the_keys_that_it_reads_and_no_others() -> None:
    reads = {**HERE, "DSTACK_READS": "settings,master-key", "DSTACK_INSTALL_ID": "i"}
    found = LambdaSettings.read(parameters(Ssm(COMPLETE)), reads)
    assert (found.install_key, found.master_key, found.install_id) == (b"", b"\xb2" * 32, "i")
    for id_ in ("", ANY):  # as a stack has it whose owner set none
        with pytest.raises(NotDeployed, match="InstallId"):
            LambdaSettings.read(parameters(Ssm(COMPLETE)), {**reads, "DSTACK_INSTALL_ID": id_})


def test_without_its_key_nothing_is_sealed_or_signed() -> None:
    """With an empty one, anybody could."""
    for use in (NoSealer().seal, NoSealer().open, lambda text: bootstrap_token(b"", text, 0)):
        with pytest.raises(Bug, match="has no"):
            use("text")


def test_a_variable_overrides_what_the_stack_wrote() -> None:
    own = {"DSTACK_API_URL": "https://dstack.example.com", "DSTACK_PROVIDER_FUNCTION": "mine", "DSTACK_TABLE": ""}
    found = LambdaSettings.read(parameters(Ssm(COMPLETE)), {**HERE, **own})
    assert (found.api_url, found.provider_functions, found.table) == (
        "https://dstack.example.com",
        {"clouds": "mine"},
        "dstack-dev",
    )


def test_the_simulated_cloud_has_its_own_name_unless_it_stands_in_for_another() -> None:
    found = LambdaSettings.read(parameters(Ssm(COMPLETE)), HERE)
    other = LambdaSettings.read(parameters(Ssm(COMPLETE)), {**HERE, "DSTACK_FAKE_CLOUD_NAME": "aws"})
    assert (found.fake_cloud_name, other.fake_cloud_name) == (FACTS.name, "aws")


def test_agents_call_where_people_do_unless_they_have_an_address_of_their_own() -> None:
    stored = {**KEYS, "settings": json.dumps({**STACK, "agent_url": ""})}
    assert LambdaSettings.read(parameters(Ssm(stored)), HERE).agent_url == "https://a.example.com/api"


@pytest.mark.parametrize(
    ("stored", "missing"),
    [
        (
            {},
            "table, bucket, wake_function, api_url, /dstack-dev/install-key, /dstack-dev/master-key",
        ),
        ({"settings": COMPLETE["settings"]}, "/dstack-dev/install-key, /dstack-dev/master-key"),
        ({**KEYS, "settings": json.dumps({**STACK, "bucket": ""})}, "bucket"),
    ],
    ids=["nothing", "no keys", "an empty setting"],
)
def test_what_is_missing_is_named_with_the_command_that_brings_it(stored: dict[str, str], missing: str) -> None:
    with pytest.raises(NotDeployed) as raised:
        LambdaSettings.read(parameters(Ssm(stored)), HERE)
    assert f"missing: {missing}." in str(raised.value)
    assert "make deploy STAGE=dev" in str(raised.value)


def test_the_api_of_a_bare_chalice_deploy_answers_what_it_lacks() -> None:
    def plane() -> Any:
        return LambdaSettings.read(parameters(Ssm({})), HERE)

    answer = ControlPlane(plane)(api_event("POST", "/api/server/get_info", "", {}, b"", binary=()), None)
    assert answer["statusCode"] == 503
    body = answer["body"] if not answer.get("isBase64Encoded") else base64.b64decode(answer["body"]).decode()
    (problem,) = json.loads(body)["detail"]
    assert "make deploy STAGE=dev" in problem["msg"]


def test_a_function_without_a_stage_says_so() -> None:
    with pytest.raises(NotDeployed, match="DSTACK_KEYS isn't set"):
        LambdaSettings.read(parameters(Ssm(COMPLETE)), {})


@pytest.mark.slow
def test_an_address_that_is_signed_for_an_agent_names_the_buckets_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new bucket isn't known by the name without one for hours, and no signature survives the redirection."""
    for name, value in {"DEFAULT_REGION": "eu-west-1", "ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    url = Boto(None)("s3").generate_presigned_url("put_object", Params={"Bucket": "dstack-dev-1", "Key": "logs/a"})
    assert url.startswith("https://dstack-dev-1.s3.eu-west-1.amazonaws.com/logs/a?X-Amz-Algorithm=AWS4")
