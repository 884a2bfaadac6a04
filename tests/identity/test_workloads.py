"""A program's token is believed only if an issuer that a rule names has signed it."""

from __future__ import annotations

import base64
import hmac
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from chalicelib.domain.specs.workload_rules import Workload
from chalicelib.errors import Refused
from chalicelib.identity.workloads import CACHE_SECONDS, LONGEST, REFETCH_SECONDS, WorkloadIssuers

ISSUER = "https://ci.example.com"
NOW = 1_800_000_000
KEY = RSAKey.generate_key(2048, {"kid": "one"})
OTHER = RSAKey.generate_key(2048, {"kid": "two"})
CLAIMS = {"iss": ISSUER, "sub": "job:7", "aud": "https://dstack.example.com", "exp": NOW + 300}
RULE = Workload.model_validate(
    {
        "name": "ci", "issuer": ISSUER, "audience": "https://dstack.example.com", "claims": {"sub": "job:*"},
        "user": "ci", "projects": ["main"], "verbs": ["run"],
    }
)  # fmt: skip


class Issuer:
    """An issuer whose pages are given, and the verifier that reads them."""

    def __init__(self) -> None:
        self.at, self.fetched = float(NOW), list[str]()
        self.pages: dict[str, Any] = {
            f"{ISSUER}/.well-known/openid-configuration": {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"},
            f"{ISSUER}/keys": KeySet([KEY]).as_dict(private=False),
        }
        self.verifier = WorkloadIssuers([RULE], fetch=self._fetch, now=lambda: self.at)

    def _fetch(self, address: str) -> Any:
        self.fetched.append(address)
        if address not in self.pages:
            raise Refused(f"{address} can't be read.")
        return self.pages[address]

    def believes(self, claims: dict[str, Any] | None = None, key: Any = KEY, alg: str = "RS256") -> Any:
        return self.verifier.verified(jwt.encode({"alg": alg, "kid": key.kid}, claims or CLAIMS, key))

    @property
    def asked_for_keys(self) -> int:
        return self.fetched.count(f"{ISSUER}/keys")


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def unsigned(head: dict[str, Any], claims: dict[str, Any]) -> str:
    return f"{b64(json.dumps(head).encode())}.{b64(json.dumps(claims).encode())}"


def test_a_good_token_is_believed() -> None:
    rules, claims = Issuer().believes()
    assert rules == (RULE,) and claims["sub"] == "job:7"


def test_nobody_is_asked_for_keys_whom_no_rule_names() -> None:
    issuer = Issuer()
    with pytest.raises(Refused, match="aren't accepted here"):
        issuer.believes({**CLAIMS, "iss": "https://evil.example.com"})
    assert issuer.fetched == []


def test_a_forged_signature_is_not_believed() -> None:
    with pytest.raises(Refused, match="can't be trusted"):
        Issuer().believes(key=RSAKey.generate_key(2048, {"kid": "one"}))


def test_no_signature_and_a_public_key_as_a_shared_secret_are_not_believed() -> None:
    none = unsigned({"alg": "none"}, CLAIMS) + "."
    secret = unsigned({"alg": "HS256", "kid": "one"}, CLAIMS)
    secret += "." + b64(hmac.digest(KEY.as_pem(private=False), secret.encode(), "sha256"))
    for token in (none, secret):
        with pytest.raises(Refused, match="can't be trusted"):
            Issuer().verifier.verified(token)


def test_claims_that_were_exchanged_are_not_believed() -> None:
    head, _, signature = jwt.encode({"alg": "RS256", "kid": "one"}, CLAIMS, KEY).split(".")
    other = b64(json.dumps({**CLAIMS, "sub": "job:8"}).encode())
    with pytest.raises(Refused, match="can't be trusted"):
        Issuer().verifier.verified(f"{head}.{other}.{signature}")


@pytest.mark.parametrize(
    "token",
    ["", "a.b", "a.b.c", f"a.{b64(b'[]')}.c", f"a.{b64(b'{}')}.c", f"a.{b64(bytes([255]))}.c", "a.b.c" + "c" * LONGEST],
)
def test_what_is_no_id_token_is_refused_and_nobody_is_asked(token: str) -> None:
    issuer = Issuer()
    with pytest.raises(Refused, match="ID token"):
        issuer.verifier.verified(token)
    assert issuer.fetched == []


def test_keys_are_cached_and_fetched_again_for_an_unknown_one_but_not_more_often_than_once_a_minute() -> None:
    issuer = Issuer()
    issuer.believes()
    issuer.believes()
    assert issuer.asked_for_keys == 1
    issuer.pages[f"{ISSUER}/keys"] = KeySet([KEY, OTHER]).as_dict(private=False)
    issuer.at += REFETCH_SECONDS - 1
    with pytest.raises(Refused, match="can't be trusted"):
        issuer.believes(key=OTHER)
    assert issuer.asked_for_keys == 1, "anybody can name a key"
    issuer.at += 1
    assert issuer.believes(key=OTHER) and issuer.asked_for_keys == 2
    issuer.at += CACHE_SECONDS
    issuer.believes()
    assert issuer.asked_for_keys == 3


def test_a_key_that_was_withdrawn_is_good_for_an_hour_at_most() -> None:
    issuer = Issuer()
    issuer.believes()
    issuer.pages[f"{ISSUER}/keys"] = KeySet([OTHER]).as_dict(private=False)
    issuer.at += CACHE_SECONDS
    with pytest.raises(Refused, match="can't be trusted"):
        issuer.believes()


def test_an_issuer_that_is_away_is_asked_once_a_minute() -> None:
    issuer = Issuer()
    pages, issuer.pages = issuer.pages, {}
    for why in ("can't be read", "a moment ago", "a moment ago"):
        with pytest.raises(Refused, match=why):
            issuer.believes()
    assert len(issuer.fetched) == 1
    issuer.pages = pages
    issuer.at += REFETCH_SECONDS
    assert issuer.believes()


def test_another_issuer_at_this_address_is_refused() -> None:
    issuer = Issuer()
    issuer.pages[f"{ISSUER}/.well-known/openid-configuration"]["issuer"] = "https://evil.example.com"
    with pytest.raises(Refused, match="calls itself https://evil"):
        issuer.believes()


@pytest.mark.parametrize("address", ["http://ci.example.com/keys", "file:///etc/passwd", 7, None])
def test_keys_are_fetched_over_https_alone(address: Any) -> None:
    issuer = Issuer()
    issuer.pages[f"{ISSUER}/.well-known/openid-configuration"]["jwks_uri"] = address
    with pytest.raises(Refused, match="publishes no keys"):
        issuer.believes()
    assert len(issuer.fetched) == 1


@pytest.mark.parametrize("keys", [{}, {"keys": "none"}, {"keys": [{"kty": "?"}]}], ids=str)
def test_keys_that_cant_be_read_are_one_sentence(keys: Any) -> None:
    issuer = Issuer()
    issuer.pages[f"{ISSUER}/keys"] = keys
    with pytest.raises(Refused, match=r"publishes no keys|can't be trusted"):
        issuer.believes()


def test_an_issuer_that_is_slow_holds_up_nobody_but_those_who_need_its_keys() -> None:
    """Anybody can send a token that names it."""
    slow = "https://slow.example.com"
    issuer, asked, gate = Issuer(), threading.Event(), threading.Event()

    def fetch(address: str) -> Any:
        if not address.startswith(slow):
            return issuer.pages[address]
        asked.set()
        gate.wait()
        raise Refused("It is down.")

    rules = [RULE, RULE.model_copy(update={"issuer": slow})]
    verifier = WorkloadIssuers(rules, fetch=fetch, now=lambda: float(NOW), patience=0)
    token = jwt.encode({"alg": "RS256", "kid": KEY.kid}, {**CLAIMS, "iss": slow}, KEY)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(verifier.verified, token)
        try:
            asked.wait()
            assert verifier.verified(jwt.encode({"alg": "RS256", "kid": KEY.kid}, CLAIMS, KEY))[0] == (RULE,)
            with pytest.raises(Refused, match=f"{slow} is slow to answer"):
                verifier.verified(token)
        finally:
            gate.set()
        with pytest.raises(Refused, match="It is down"):
            first.result()
    with pytest.raises(Refused, match="couldn't be read a moment ago"):
        verifier.verified(token)


NESTED = b"[" * 12_000


@pytest.mark.parametrize("claims", [NESTED, b'{"iss":"\\ud800"}', b'{"iss":' + b"9" * 5_000 + b"}", b'{"iss":"a\\nb"}'])
def test_claims_that_break_readers_are_refused_and_nobody_is_asked(claims: bytes) -> None:
    issuer = Issuer()
    with pytest.raises(Refused) as refused:
        issuer.verifier.verified(f"{b64(b'{}')}.{b64(claims)}.{b64(b'no')}")
    assert str(refused.value).encode().decode().isprintable(), "it can be an answer"
    assert issuer.fetched == []


@pytest.mark.parametrize(
    "head",
    [
        NESTED,
        b"[]",
        b"7",
        b"null",
        b'{"alg":[]}',
        b'{"alg":{}}',
        b'{"alg":"RS256","kid":[]}',
        b'{"alg":"RS256","kid":"\\ud800"}',
        b'{"alg":"RS256","kid":"one","crit":7}',
        b'{"alg":"RS256","kid":"one","crit":["b64"],"b64":[]}',
        b'{"alg":"RS256","kid":{}}',
        b'{"alg":"RS256","kid":"one","jwk":7}',
        b'{"alg":"RS256","kid":"one","typ":7}',
        b"\xff",
    ],
)
def test_a_header_that_breaks_readers_is_refused(head: bytes) -> None:
    with pytest.raises(Refused):
        Issuer().verifier.verified(f"{b64(head)}.{b64(json.dumps(CLAIMS).encode())}.{b64(b'no')}")
