"""Logging in to Google: what is signed, where it is sent, and what of a given text is never followed."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from chalicelib.backends.gcp.backend import GcpBackend
from chalicelib.backends.gcp.client import GcpClients
from chalicelib.backends.gcp.config import GCPBackendConfig
from chalicelib.backends.gcp.credentials import TOKENS, credentials
from chalicelib.configuration.server import parse_backend
from chalicelib.domain.specs.credentials import UsesServersOwn
from chalicelib.errors import Invalid, InvalidCredentials, Transient
from tests.backends.gcp.conftest import Site
from tests.backends.gcp.provider import config

AUDIENCE = "//iam.googleapis.com/projects/123/locations/global/workloadIdentityPools/dstack/providers/aws"
ACCOUNT = "dstack@my-project.iam.gserviceaccount.com"
FEDERATED = {"type": "workload_identity", "audience": AUDIENCE, "service_account": ACCOUNT}


@cache
def private_key() -> str:
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def key(**other: Any) -> str:
    usual = {"type": "service_account", "private_key_id": "k1", "private_key": private_key(), "client_email": ACCOUNT}
    return json.dumps({**usual, **other})


def creds_of(text: str) -> Any:
    return config(creds={"type": "service_account", "data": text}).creds


def claims(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def nobody(*args: Any, **named: Any) -> Any:
    raise AssertionError("a service account's key needs nobody to make a token")


def test_a_key_signs_by_itself() -> None:
    headers: dict[str, str] = {}
    credentials(creds_of(key())).before_request(nobody, "GET", "https://compute.googleapis.com/compute/v1/x", headers)
    found = claims(headers["authorization"].removeprefix("Bearer "))
    assert found["iss"] == found["sub"] == ACCOUNT
    assert found["scope"] == "https://www.googleapis.com/auth/cloud-platform"


def test_addresses_in_a_key_are_not_followed() -> None:
    """Whoever adds a backend gives the text, and the server would call what it names."""
    made = credentials(creds_of(key(token_uri="http://169.254.169.254/", universe_domain="evil.example")))
    assert made._token_uri == TOKENS and made.universe_domain == "googleapis.com"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "isn't JSON"),
        ("[]", "isn't a service account's key"),
        ('{"type": "external_account", "credential_source": {"file": "/etc/shadow"}}', "isn't a service account's key"),
        ('{"type": "authorized_user"}', "isn't a service account's key"),
        ('{"type": "service_account", "client_email": "a"}', "lacks `private_key`"),
        (
            '{"type": "service_account", "client_email": "a", "private_key": "nokey", "private_key_id": "b"}',
            "isn't one",
        ),
    ],
)
def test_what_is_no_key_says_so(text: str, why: str) -> None:
    with pytest.raises(InvalidCredentials, match=why) as refused:
        credentials(creds_of(text))
    assert "nokey" not in f"{refused.value!r}"


def test_a_key_in_a_file_is_for_global_admins(tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text(key())
    given = config(creds={"type": "service_account", "filename": str(tmp_path / "key.json")})
    assert isinstance(given, UsesServersOwn) and given.servers_own() == "creds.filename"
    assert credentials(given.creds).service_account_email == ACCOUNT
    with pytest.raises(InvalidCredentials, match="can't be read"):
        credentials(config(creds={"type": "service_account", "filename": str(tmp_path / "none")}).creds)


# --- from AWS ---------------------------------------------------------------------------------------------------------


class Google:
    """Its token service, and the one that lends the service account."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def __call__(self, url: str, method: str = "GET", body: Any = None, headers: Any = None, **_: Any) -> Any:
        self.calls.append((url, body))
        if url.endswith("/v1/token"):
            answer = {"access_token": "federated", "expires_in": 3600, "issued_token_type": "x", "token_type": "Bearer"}
        else:
            assert headers["authorization"] == "Bearer federated"
            until = datetime.now(UTC) + timedelta(hours=1)
            answer = {"accessToken": "of-the-account", "expireTime": until.strftime("%Y-%m-%dT%H:%M:%SZ")}
        return SimpleNamespace(status=200, data=json.dumps(answer).encode(), headers={})


def test_a_function_in_aws_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "ASIAEXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", "secret-of-the-function"),
        ("AWS_SESSION_TOKEN", "session"),
        ("AWS_REGION", "eu-west-1"),
    ):
        monkeypatch.setenv(name, value)
    google, headers = Google(), dict[str, str]()
    credentials(config(creds=FEDERATED).creds).before_request(google, "GET", "https://compute.googleapis.com", headers)
    assert headers["authorization"] == "Bearer of-the-account"
    (exchange, sent), (lent, _) = google.calls
    assert exchange == "https://sts.googleapis.com/v1/token"
    assert lent.endswith(f"serviceAccounts/{ACCOUNT}:generateAccessToken")
    text = str(sent)
    assert "sts.eu-west-1.amazonaws.com" in text and "ASIAEXAMPLE" in text and "secret-of-the-function" not in text


def test_that_role_is_the_control_planes_own() -> None:
    found = config(creds=FEDERATED)
    assert isinstance(found, UsesServersOwn) and found.servers_own() == "creds.type"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("audience", "https://evil.example/"),
        ("audience", AUDIENCE + "/../x"),
        ("service_account", "x@evil.example"),
        ("service_account", "a/b:c@d.iam.gserviceaccount.com"),
    ],
)
def test_addresses_are_made_of_names_alone(field: str, value: str) -> None:
    text = json.dumps({"type": "gcp", "project_id": "p", "creds": {**FEDERATED, field: value}})
    with pytest.raises(Invalid, match=field):
        parse_backend(text)


# --- failures, and what isn't there -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("error", "kind"), [("RefreshError", InvalidCredentials), ("TransportError", Transient)])
def test_failures_of_logging_in(site: Site, error: str, kind: type[Exception]) -> None:
    from google.auth import credentials as base
    from google.auth import exceptions

    class Failing(base.Credentials):  # type: ignore[misc]
        def refresh(self, request: Any) -> None:
            raise getattr(exceptions, error)("invalid_grant")

    clients = GcpClients(None, "my-project", login=Failing, endpoint="http://127.0.0.1:1")
    backend = GcpBackend(site.config, clients, site.clock.now)
    for call in (backend.check, lambda: list(clients.skus())):
        with pytest.raises(kind, match="invalid_grant"):
            call()


def test_tags_have_to_be_labels() -> None:
    with pytest.raises(Invalid, match="Team"):
        parse_backend('{"type": "gcp", "project_id": "p", "creds": {"type": "default"}, "tags": {"Team": "x"}}')


def test_a_project_is_needed() -> None:
    assert GCPBackendConfig.model_fields["project_id"].is_required()
