"""Tokens: each way to one, how long one serves, and what a refusal says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from chalicelib.backends.azure.client import AzureClient
from chalicelib.backends.kit.rest import NoAnswer, RestAnswer, RestCall
from chalicelib.errors import BackendError, InvalidCredentials, Throttled, Transient
from tests.backends.azure.fake import Azure
from tests.backends.azure.fake.api import CLIENT, SECRET, TENANT
from tests.backends.azure.provider import config
from tests.backends.clock import Clock
from tests.backends.fakes.transport import sender

DEFAULT = {"type": "default"}


class Site:
    def __init__(self, creds: Any = None, env: dict[str, str] | None = None) -> None:
        self.clock = Clock()
        self.fake = Azure(self.clock.now)
        given = config(creds=creds) if creds else config()
        self.client = AzureClient(given, self.clock.now, send=sender(self.fake), env=env or {})

    def ask(self) -> None:
        assert list(self.client.listed("/subscriptions"))


def creds(**other: str) -> dict[str, str]:
    return {"type": "client", "client_id": CLIENT, "client_secret": SECRET, **other}


def test_a_token_serves_until_shortly_before_its_end() -> None:
    site = Site()
    site.ask()
    site.clock.passes(54 * 60)
    site.ask()
    assert len(site.fake.exchanges) == 1
    site.clock.passes(2 * 60)
    site.ask()
    assert len(site.fake.exchanges) == 2


def test_a_token_that_is_refused_isnt_kept() -> None:
    site = Site()
    site.ask()
    site.fake.revoked = True
    with pytest.raises(InvalidCredentials):
        site.ask()
    site.fake.revoked = False
    site.ask()
    assert len(site.fake.exchanges) == 2


def test_an_application_may_be_of_another_tenant() -> None:
    assert Site(creds(tenant_id=TENANT)).ask() is None
    with pytest.raises(InvalidCredentials, match="AADSTS90002"):
        Site(creds(tenant_id="elsewhere")).ask()


@pytest.mark.parametrize(
    ("wrong", "code"),
    [({"client_secret": "wrong/s3cr3t~indeed"}, "AADSTS7000215"), ({"client_id": "another"}, "AADSTS700016")],
    ids=["secret", "application"],
)
def test_a_refusal_says_why_and_no_secret(wrong: dict[str, str], code: str) -> None:
    with pytest.raises(InvalidCredentials, match=code) as refused:
        Site(creds(**wrong)).ask()
    assert "s3cr3t" not in str(refused.value) and "Trace ID" not in str(refused.value)


# --- the environment's ------------------------------------------------------------------------------------------------


def test_the_environment_may_have_a_secret() -> None:
    site = Site(DEFAULT, {"AZURE_CLIENT_ID": CLIENT, "AZURE_CLIENT_SECRET": SECRET, "AZURE_TENANT_ID": TENANT})
    site.ask()
    assert site.fake.exchanges[0]["client_secret"] == SECRET


def test_a_workload_is_known_by_the_token_in_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    site = Site(DEFAULT, {"AZURE_CLIENT_ID": CLIENT, "AZURE_FEDERATED_TOKEN_FILE": str(file)})
    with pytest.raises(InvalidCredentials, match="can't be read"):
        site.ask()
    file.write_text("an-old-assertion\n")
    with pytest.raises(InvalidCredentials, match="AADSTS700024") as refused:
        site.ask()
    assert "an-old-assertion" not in str(refused.value)
    file.write_text(f"{site.fake.federated}\n")
    site.ask()
    assert "client_secret" not in site.fake.exchanges[-1]


def test_a_machine_has_its_managed_identity() -> None:
    site = Site(DEFAULT)
    site.fake.metadata = True
    site.ask()
    assert "client_id" not in site.fake.exchanges[0]
    named = Site(DEFAULT, {"AZURE_CLIENT_ID": CLIENT})
    named.fake.metadata = True
    named.ask()
    assert named.fake.exchanges[0]["client_id"] == CLIENT


def test_an_environment_without_any_says_what_it_lacks() -> None:
    def nobody(call: RestCall, deadline: float) -> RestAnswer:
        raise NoAnswer("no route to host")

    client = AzureClient(config(creds=DEFAULT), Clock().now, send=nobody, env={})
    with pytest.raises(InvalidCredentials, match=r"AZURE_CLIENT_ID .* nor a managed identity"):
        client.call("GET", "/subscriptions")


@pytest.mark.parametrize("status", [404, 410, 500, 503])
def test_metadata_that_fails_for_a_while_refutes_no_identity(status: int) -> None:
    """Azure asks to try these again."""
    site, token = Site(DEFAULT), {"access_token": "t", "expires_in": "3600"}
    answers = [(200, token), (200, {"value": []}), (status, {}), (200, token), (200, {"value": []})]

    def send(call: RestCall, deadline: float) -> RestAnswer:
        code, body = answers.pop(0)
        return RestAnswer(code, {}, orjson.dumps(body))

    client = AzureClient(config(creds=DEFAULT), site.clock.now, send=send, env={})
    client.call("GET", "/subscriptions")
    site.clock.passes(3600)
    with pytest.raises(Transient, match=f"answers {status}"):
        client.call("GET", "/subscriptions")
    client.call("GET", "/subscriptions")


def test_metadata_that_is_silent_for_a_while_refutes_no_identity() -> None:
    site = Site(DEFAULT)
    site.fake.metadata = True
    site.ask()
    site.clock.passes(24 * 3600)
    whole, answering = sender(site.fake), False

    def send(call: RestCall, deadline: float) -> RestAnswer:
        if not answering and call.path.startswith("/metadata"):
            raise NoAnswer("timed out")
        return whole(call, deadline)

    client = AzureClient(config(creds=DEFAULT), site.clock.now, send=send, env={})
    with pytest.raises(InvalidCredentials):
        client.call("GET", "/subscriptions")
    answering = True
    client.call("GET", "/subscriptions")
    answering = False
    site.clock.passes(24 * 3600)
    with pytest.raises(Transient, match="timed out"):
        client.call("GET", "/subscriptions")


def test_metadata_that_fails_at_first_is_asked_again() -> None:
    def failing(call: RestCall, deadline: float) -> RestAnswer:
        return RestAnswer(500, {}, b"")

    with pytest.raises(Transient, match="answers 500"):
        AzureClient(config(creds=DEFAULT), Clock().now, send=failing, env={}).call("GET", "/subscriptions")


def test_the_metadata_of_another_cloud_is_no_identity() -> None:
    def elsewhere(call: RestCall, deadline: float) -> RestAnswer:
        return RestAnswer(404, {}, b"<html>not found</html>")

    with pytest.raises(InvalidCredentials, match="nor a managed identity"):
        AzureClient(config(creds=DEFAULT), Clock().now, send=elsewhere, env={}).call("GET", "/subscriptions")


@pytest.mark.parametrize("lasts", ["", "soon", None, "inf", "nan"])
def test_a_token_that_doesnt_say_how_long_serves_once(lasts: str | None) -> None:
    asked: list[str] = []

    def send(call: RestCall, deadline: float) -> RestAnswer:
        asked.append(call.path)
        return RestAnswer(200, {}, orjson.dumps({"access_token": "t", "expires_in": lasts, "value": []}))

    client = AzureClient(config(), Clock().now, send=send, env={})
    for _ in range(2):
        client.call("GET", "/subscriptions")
    assert len([path for path in asked if path.endswith("/token")]) == 2


# --- a login that has no answer ---------------------------------------------------------------------------------------


def answering(answer: Callable[[], RestAnswer]) -> AzureClient:
    return AzureClient(config(), Clock().now, send=lambda call, deadline: answer(), env={})


def cut() -> RestAnswer:
    raise NoAnswer(f"reset, after {SECRET}")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (cut, Transient),
        (lambda: RestAnswer(503, {}, b"<html>away</html>"), Transient),
        (lambda: RestAnswer(200, {}, b"{}"), Transient),
        (lambda: RestAnswer(200, {}, b"[]"), Transient),
        (lambda: RestAnswer(429, {"retry-after": "9"}, b"{}"), Throttled),
    ],
    ids=["cut", "away", "empty", "a list", "throttled"],
)
def test_what_isnt_a_token_is_none(answer: Callable[[], RestAnswer], kind: type[BackendError]) -> None:
    with pytest.raises(kind) as raised:
        answering(answer).call("GET", "/subscriptions")
    assert SECRET not in str(raised.value)
    if isinstance(raised.value, Throttled):
        assert raised.value.retry_after == 9


def test_elsewhere_is_where_the_environment_says() -> None:
    asked: list[str] = []

    def send(call: RestCall, deadline: float) -> RestAnswer:
        asked.append(call.origin)
        return RestAnswer(200, {}, b'{"access_token": "t", "expires_in": 3600, "value": []}')

    env = {"AZURE_AUTHORITY_HOST": "https://login.microsoftonline.us/"}
    AzureClient(config(), Clock().now, send=send, env=env).call("GET", "/subscriptions")
    assert asked == ["https://login.microsoftonline.us", "https://management.azure.com"]
