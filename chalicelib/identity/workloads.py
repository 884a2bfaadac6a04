"""The signatures of tokens with which programs sign on: of a CI job, for example. joserfc checks them.

Only issuers that a rule names are asked for their keys. These are cached for an hour; an unknown key has them fetched
again, but at most once a minute, because anybody can send a token that names one.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib.domain.instants import SECOND
from chalicelib.domain.specs.workload_rules import Workload
from chalicelib.domain.workload_identity import of_issuer
from chalicelib.engine.ports import Clock
from chalicelib.errors import Refused
from chalicelib.usecases.context import NoWorkloads, VerifiesWorkloads

TIMEOUT = 10.0  # seconds for each call
PATIENCE = 2.0  # seconds to wait for keys that another call is fetching
CACHE_SECONDS, REFETCH_SECONDS = 3600.0, 60.0
LONGEST = 16_384  # characters of a token
LARGEST = 2**20  # bytes of an issuer's page
_SIGNATURES = ("ES256", "ES384", "ES512", "EdDSA", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512")
_HINT = "Show the token as the issuer made it."


@dataclass(frozen=True)
class _Keys:
    fetched_at: float
    keys: Any  # joserfc's KeySet


class WorkloadIssuers:
    def __init__(
        self,
        rules: Sequence[Workload],
        *,
        fetch: Callable[[str], Any],
        now: Callable[[], float],
        patience: float = PATIENCE,
    ) -> None:
        """`fetch`: the JSON object at an address, or Refused; `now`: seconds since 1970."""
        self._rules, self._fetch, self._now, self._patience = tuple(rules), fetch, now, patience
        self._locks = {rule.issuer: threading.Lock() for rule in rules}  # of those that fetch the issuer's keys
        self._known: dict[str, _Keys] = {}
        self._asked: dict[str, float] = {}  # when each issuer was last asked, successfully or not

    def verified(self, token: str) -> tuple[tuple[Workload, ...], Mapping[str, Any]]:
        """The rules for the token's issuer, and its claims, whose signature is good. Raises Refused. Whether they are
        for this control plane, and valid now, remains to be checked."""
        issuer = _issuer_of(token)
        rules = of_issuer(self._rules, issuer)
        claims = self._decoded(token, rules[0].issuer)
        if claims.get("iss") != issuer:  # the signature covers what was read before it was checked
            raise _untrusted("it names two issuers")
        return rules, claims

    def _decoded(self, token: str, issuer: str) -> Mapping[str, Any]:
        from joserfc import jwt
        from joserfc.errors import InvalidKeyIdError, JoseError

        keys = self._keys(issuer, older_than=CACHE_SECONDS)
        try:
            try:
                return dict(jwt.decode(token, keys.keys, algorithms=list(_SIGNATURES)).claims)
            except InvalidKeyIdError:
                newer = self._keys(issuer, older_than=REFETCH_SECONDS)
                return dict(jwt.decode(token, newer.keys, algorithms=list(_SIGNATURES)).claims)
        except (JoseError, TypeError, ValueError, RecursionError) as error:
            raise _untrusted(f"{type(error).__name__}: {str(error)[:200]}") from error

    def _keys(self, issuer: str, *, older_than: float) -> _Keys:
        """The issuer's keys, fetched now if those that are known are older than this. An issuer that is slow to answer
        holds up nobody but those who ask for its own keys, and these not for long."""
        if (known := self._newer(issuer, older_than)) is not None:
            return known
        lock = self._locks[issuer]
        if not lock.acquire(timeout=self._patience):
            raise Refused(f"{issuer} is slow to answer with its keys.", hint="Try again in a minute.")
        try:
            return self._newer(issuer, older_than) or self._fetched(issuer)
        finally:
            lock.release()

    def _newer(self, issuer: str, older_than: float) -> _Keys | None:
        known = self._known.get(issuer)
        return known if known is not None and self._now() - known.fetched_at < older_than else None

    def _fetched(self, issuer: str) -> _Keys:
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        now = self._now()
        if now - self._asked.get(issuer, 0.0) < REFETCH_SECONDS:
            raise Refused(f"The keys of {issuer} couldn't be read a moment ago.", hint="Try again in a minute.")
        self._asked[issuer] = now
        published = self._fetch(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if str(published.get("issuer", "")).rstrip("/") != issuer.rstrip("/"):
            raise Refused(f"The issuer at {issuer} calls itself {str(published.get('issuer'))[:200]}.")
        try:
            keys = KeySet.import_key_set(self._fetch(_page(issuer, published["jwks_uri"])))
        except (JoseError, KeyError, TypeError, ValueError) as error:
            raise Refused(f"The issuer {issuer} publishes no keys that can be read.") from error
        self._known[issuer] = _Keys(now, keys)
        return self._known[issuer]


def _page(issuer: str, address: Any) -> str:
    """The address of the issuer's keys. Raises ValueError for one that others on the way could answer for."""
    if not isinstance(address, str) or not (address.startswith("https://") or issuer.startswith("http://")):
        raise ValueError("not an https address")
    return address


def _issuer_of(token: str) -> str:
    """The issuer that a token names, before anything in it is checked."""
    parts = token.split(".")
    if len(parts) != 3 or len(token) > LONGEST:
        raise Refused("This isn't an ID token, which has three parts with dots between them.", hint=_HINT)
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):  # the latter for brackets in brackets
        raise Refused("This ID token can't be read.", hint=_HINT) from None
    issuer = claims.get("iss") if isinstance(claims, dict) else None
    if not isinstance(issuer, str) or not issuer.isprintable():  # half of a surrogate pair isn't, either
        raise Refused("This ID token doesn't say who made it.", hint=_HINT)
    return issuer


def _untrusted(why: str) -> Refused:
    return Refused(f"This ID token can't be trusted: {why}.", hint=_HINT)


def fetch(address: str) -> Any:
    """The JSON object at an address of an issuer. Raises Refused."""
    import requests
    from urllib3.exceptions import HTTPError

    try:
        with requests.get(address, timeout=TIMEOUT, allow_redirects=False, stream=True) as answer:
            body = answer.raw.read(LARGEST + 1, decode_content=True)
            found = json.loads(body) if answer.status_code == 200 and len(body) <= LARGEST else None
    except (requests.RequestException, HTTPError, ValueError) as error:
        raise Refused(f"{address} can't be read ({type(error).__name__}).", hint="Try again later.") from error
    if not isinstance(found, dict):
        raise Refused(f"{address} answered {answer.status_code}, and no JSON object.", hint="Try again later.")
    return found


def issuers_of_workloads(rules: Sequence[Workload], clock: Clock) -> VerifiesWorkloads:
    if not rules:
        return NoWorkloads()
    return WorkloadIssuers(rules, fetch=fetch, now=lambda: clock.now() / SECOND)
