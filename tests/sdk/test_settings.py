"""Which server, token and project a client has."""

from __future__ import annotations

import ssl
from inspect import signature
from pathlib import Path

import pytest

from cli.connection.config import ProjectEntry, config_path, save_projects
from dstack_serverless import AsyncClient, Client, Refused
from dstack_serverless.sdk.settings import certificates, endpoint_of

ENV = {"DSTACK_SERVER_URL": "http://env/", "DSTACK_TOKEN": "of-env", "DSTACK_PROJECT": "env"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    entries = [ProjectEntry("a", "http://file", "of-a", default=True), ProjectEntry("b", "http://other", "of-b")]
    save_projects(config_path(tmp_path), entries)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "env", "found"),
    [
        (("http://x", "t", "p"), ENV, ("http://x", "t", "p")),
        ((None, None, None), ENV, ("http://env", "of-env", "env")),
        ((None, "t", "p"), ENV, ("http://env", "t", "p")),
        (("http://x", "t", None), {}, ("http://x", "t", "")),
        ((None, None, None), {}, ("http://file", "of-a", "a")),
        ((None, None, "b"), {}, ("http://other", "of-b", "b")),
        ((None, "t", None), {}, ("http://file", "t", "a")),
        (("http://other", None, None), {}, ("http://other", "of-b", "b")),
        ((None, None, None), {"DSTACK_SERVER_URL": "http://other/"}, ("http://other", "of-b", "b")),
        (("server:3000", "t", "p"), {}, ("http://server:3000", "t", "p")),
    ],
)
def test_what_is_given_then_the_environment_then_the_file(
    given: tuple[str | None, ...], env: dict[str, str], found: tuple[str, str, str], home: Path
) -> None:
    url, token, project = given
    at = endpoint_of(url, token, project, env, home)
    assert (at.url, at.token, at.project) == found


@pytest.mark.parametrize(
    ("given", "env", "why"),
    [
        (("http://unknown", None, None), {}, "No token for http://unknown is known"),
        ((None, None, None), {"DSTACK_SERVER_URL": "http://unknown"}, "No token for http://unknown is known"),
        (("http://other", None, "a"), {}, "has no project a of http://other, only b"),
        ((None, None, "c"), {}, "There is no project c"),
        (("http://x:port", "t", "p"), {}, "is not a server's address"),
        (("http://x", "a\nb", "p"), {}, "The token contains"),
    ],
)
def test_what_is_missing_or_malformed_is_refused(
    given: tuple[str | None, ...], env: dict[str, str], why: str, home: Path
) -> None:
    with pytest.raises(Refused, match=why):
        endpoint_of(*given[:2], given[2], env, home)


@pytest.mark.parametrize("url", ["https://far.example", "HTTPS://far.example"])
def test_a_server_must_prove_who_it_is(url: str) -> None:
    context = certificates(url)
    assert context and context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname
    assert certificates("http://far.example") is False


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_no_proxy_gets_what_is_for_this_machine(kind: type[Client | AsyncClient]) -> None:
    for url, proxied in (("http://localhost:3000", False), ("http://[::1]:3000", False), ("https://far.example", True)):
        assert kind(url, "token", "main", home=Path("/nowhere"))._http.trust_env is proxied


def test_type_checkers_see_the_arguments_of_both_clients() -> None:
    for kind in (Client, AsyncClient):
        assert [*signature(kind).parameters][:4] == ["url", "token", "project", "timeout"]


def test_a_token_that_can_be_read_on_its_way_is_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    for url in ("http://far.example", "https://far.example", "http://127.0.0.1:3000"):
        Client(url, "token", "main", home=Path("/nowhere")).close()
    (record,) = caplog.records
    assert record.message.startswith("http://far.example isn't https")
