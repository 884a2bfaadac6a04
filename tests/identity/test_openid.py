"""What a provider sends is believed only if it is signed, fresh, and meant for us."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import pytest
import requests
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from chalicelib.domain.specs.sign_on import SignOnProvider
from chalicelib.errors import Refused
from chalicelib.identity.openid import CACHE_SECONDS, OpenId

ISSUER = "https://login.example.com"
NOW = 1_800_000_000
KEY = RSAKey.generate_key(2048, {"kid": "one"})
OTHER = RSAKey.generate_key(2048, {"kid": "two"})
PUBLISHED = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "jwks_uri": f"{ISSUER}/keys",
    "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
}
CLAIMS = {"iss": ISSUER, "sub": "1", "aud": "dstack", "exp": NOW + 600, "iat": NOW, "nonce": "n"}


class Known(OpenId):
    """A provider whose pages are given."""

    def __init__(self, **pages: Any) -> None:
        rules = SignOnProvider.model_validate({"name": "corp", "issuer": ISSUER, "client_id": "dstack"})
        super().__init__(rules, now=lambda: self.at)
        self.at = float(NOW)
        self.pages = {
            f"{ISSUER}/.well-known/openid-configuration": PUBLISHED,
            f"{ISSUER}/keys": KeySet([KEY]).as_dict(private=False),
            **pages,
        }
        self.fetched: list[str] = []

    def _fetched(self, address: str) -> Any:
        self.fetched.append(address)
        return self.pages[address]

    def believes(self, claims: dict[str, Any], *, key: Any = KEY) -> Any:
        return self.reads(jwt.encode({"alg": "RS256", "kid": key.kid}, claims, key))

    def reads(self, token: str) -> Any:
        with self._clear():
            return self._checked(token, "access", "n")


def test_a_good_token_is_believed() -> None:
    assert Known().believes(CLAIMS)["sub"] == "1"


@pytest.mark.parametrize(
    "wrong",
    [
        {"iss": "https://evil.example"},
        {"aud": "somebody-else"},
        {"aud": ["dstack", "other"], "azp": "other"},
        {"nonce": "another"},
        {"nonce": None},
        {"exp": NOW - 61},
        {"iat": NOW + 3600},
        {"sub": None},
        {"exp": None},
    ],
    ids=str,
)
def test_a_token_for_somebody_else_or_another_time_is_not(wrong: dict[str, Any]) -> None:
    claims = {name: value for name, value in {**CLAIMS, **wrong}.items() if value is not None}
    with pytest.raises(Refused, match="can't be trusted"):
        Known().believes(claims)


def test_a_clock_may_be_off_by_a_minute() -> None:
    assert Known().believes({**CLAIMS, "exp": NOW - 30})


@pytest.mark.slow
def test_a_forged_signature_is_not_believed() -> None:
    forger = RSAKey.generate_key(2048, {"kid": "one"})
    with pytest.raises(Refused, match="can't be trusted"):
        Known().believes(CLAIMS, key=forger)


def test_a_public_key_doesnt_sign_as_a_shared_secret() -> None:
    head, body = (b64(json.dumps(each).encode()) for each in ({"alg": "HS256", "kid": "one"}, CLAIMS))
    signature = hmac.digest(KEY.as_pem(private=False), f"{head}.{body}".encode(), "sha256")
    with pytest.raises(Refused, match="can't be trusted"):
        Known().reads(f"{head}.{body}.{b64(signature)}")


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def test_a_new_key_is_fetched_when_it_is_used() -> None:
    provider = Known()
    provider.believes(CLAIMS)
    provider.pages[f"{ISSUER}/keys"] = KeySet([KEY, OTHER]).as_dict(private=False)
    assert provider.believes(CLAIMS, key=OTHER)
    provider.believes(CLAIMS, key=OTHER)
    assert provider.fetched.count(f"{ISSUER}/keys") == 2


def test_what_is_published_is_kept_for_an_hour() -> None:
    provider = Known()
    for passed, fetched in ((0, 1), (CACHE_SECONDS, 1), (CACHE_SECONDS + 1, 2)):
        provider.at = NOW + passed
        provider.address("http://localhost/x", "state", "n", "v" * 43)
        assert len(provider.fetched) == fetched


def test_the_address_has_the_challenge_and_not_the_verifier() -> None:
    address = Known().address("http://localhost/x", "state", "nonce", "v" * 43)
    assert "code_challenge_method=S256" in address and "nonce=nonce" in address and "v" * 43 not in address


def test_another_issuer_is_refused() -> None:
    page = {f"{ISSUER}/.well-known/openid-configuration": {**PUBLISHED, "issuer": "https://evil.example"}}
    with pytest.raises(Refused, match=r"calls itself https://evil\.example"):
        Known(**page).address("http://localhost/x", "state", "n", "v" * 43)


def test_what_it_doesnt_offer_is_said() -> None:
    with pytest.raises(Refused, match="codes typed elsewhere"):
        Known().device()


class Away(Known):
    def _fetched(self, address: str) -> Any:
        raise requests.ConnectionError("refused")


def test_a_provider_that_is_away_is_one_sentence() -> None:
    with pytest.raises(Refused, match=r"corp can't be reached \(ConnectionError\)"):
        Away().address("http://localhost/x", "state", "n", "v" * 43)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"aud": "somebody-else"}, "its `aud` is `somebody-else`"),
        ({"iss": "https://evil.example"}, "its `iss` is `https://evil.example`"),
        ({"exp": None}, "its `exp` is missing; it sent `aud`, `iat`, `iss`, `nonce`, `sub`"),
    ],
)
def test_what_it_sent_in_place_of_what_was_expected_is_said(wrong: dict[str, Any], message: str) -> None:
    claims = {name: value for name, value in {**CLAIMS, **wrong}.items() if value is not None}
    with pytest.raises(Refused, match=message):
        Known().believes(claims)


def answer(status: int, kind: str, body: bytes) -> requests.Response:
    made = requests.Response()
    made.status_code, made._content, made.url, made.reason = status, body, f"{ISSUER}/token", "Unauthorized"
    made.headers["Content-Type"] = kind
    return made


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (answer(401, "application/json", b'{"error": "invalid_client"}'), "answered 401 invalid_client to"),
        (
            answer(400, "application/json", b'{"error": "invalid_grant", "error_description": "code expired"}'),
            "answered 400 invalid_grant: code expired to",
        ),
        (answer(401, "text/html", b"<p>no"), "answered 401 Unauthorized to"),
        (
            answer(200, "text/html; charset=utf-8", b"<p>hello"),
            "answered 200 with text/html; charset=utf-8 in place of",
        ),
    ],
)
def test_an_errors_code_and_words_are_both_said(sent: requests.Response, message: str) -> None:
    with pytest.raises(Refused, match=message):
        Known()._json(sent)
