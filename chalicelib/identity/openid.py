"""An OpenID Connect provider. Authlib speaks OAuth and checks the claims; joserfc checks the signatures.

These parts of the standards are used: discovery; the authorisation code with PKCE (RFC 7636) and a nonce; the device
code (RFC 8628); the provider's user info, because many leave names and groups out of their ID tokens. The published
configuration is cached for an hour, and the keys are fetched again when a token is signed with an unknown one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from chalicelib.domain.instants import SECOND
from chalicelib.domain.sign_on import listed, together
from chalicelib.domain.specs.sign_on import SignOnProvider
from chalicelib.engine.ports import Clock
from chalicelib.errors import Refused
from chalicelib.usecases.context import DeviceCode, SignsOn

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT = 10.0  # seconds for each call
CACHE_SECONDS = 3600.0  # for the configuration that a provider publishes
LEEWAY = 60  # seconds that the provider's clock may be off
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_SIGNATURES = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
_WAITING = ("authorization_pending", "slow_down")


class OpenId:
    def __init__(self, rules: SignOnProvider, *, now: Callable[[], float]) -> None:
        """`now`: seconds since 1970."""
        self.rules, self._now = rules, now
        self._lock = threading.Lock()
        self._published: tuple[float, Mapping[str, Any]] | None = None
        self._keys: Any = None

    # --- signing on --------------------------------------------------------------------------------------------------

    def address(self, redirect: str, state: str, nonce: str, verifier: str) -> str:
        with self._clear(), self._session(redirect_uri=redirect, code_challenge_method="S256") as session:
            endpoint = self._endpoint("authorization_endpoint", "browsers")
            url, _ = session.create_authorization_url(endpoint, state=state, nonce=nonce, code_verifier=verifier)
            return str(url)

    def account(self, code: str, redirect: str, nonce: str, verifier: str) -> Mapping[str, Any]:
        with self._clear(), self._session(redirect_uri=redirect) as session:
            endpoint = self._endpoint("token_endpoint", "sign-ons")
            token = session.fetch_token(endpoint, code=code, code_verifier=verifier, timeout=TIMEOUT)
            return self._account(session, token, nonce)

    def device(self) -> DeviceCode:
        with self._clear(), self._session() as session:
            endpoint = self._endpoint("device_authorization_endpoint", "codes typed elsewhere")
            fields = {"client_id": self.rules.client_id, "scope": " ".join(self.rules.scopes)}
            answer = session.post(endpoint, data=fields, withhold_token=True, timeout=TIMEOUT)
            body = self._json(answer)
            return DeviceCode(
                device_code=str(body["device_code"]),
                user_code=str(body["user_code"]),
                address=str(body["verification_uri"]),
                filled_address=str(body.get("verification_uri_complete") or ""),
                interval=int(body.get("interval", 5)),
                expires_in=int(body["expires_in"]),
            )

    def device_account(self, device_code: str) -> Mapping[str, Any] | None:
        from authlib.integrations.base_client.errors import OAuthError

        with self._clear(), self._session() as session:
            endpoint = self._endpoint("token_endpoint", "sign-ons")
            try:
                token = session.fetch_token(endpoint, grant_type=DEVICE_GRANT, device_code=device_code, timeout=TIMEOUT)
            except OAuthError as error:
                if error.error in _WAITING:
                    return None
                raise
            return self._account(session, token, None)

    # --- checking an account -----------------------------------------------------------------------------------------

    def _account(self, session: Any, token: Mapping[str, Any], nonce: str | None) -> Mapping[str, Any]:
        if "id_token" not in token:
            raise Refused(f"The provider {self.rules.name} sent no ID token.", hint="Its client needs OpenID Connect.")
        claims = self._checked(str(token["id_token"]), str(token["access_token"]), nonce)
        endpoint = self._discovered().get("userinfo_endpoint")
        if not endpoint:
            return claims
        body = self._json(session.get(endpoint, timeout=TIMEOUT))
        if body.get("sub") != claims["sub"]:
            raise Refused(f"The provider {self.rules.name} describes another account than the one that signed on.")
        return together(claims, body)

    def _checked(self, id_token: str, access_token: str, nonce: str | None) -> Mapping[str, Any]:
        from authlib.oidc.core import CodeIDToken
        from joserfc import jwt
        from joserfc.errors import ClaimError, InvalidKeyIdError

        offered = self._discovered().get("id_token_signing_alg_values_supported") or ["RS256"]
        algorithms = sorted(_SIGNATURES.intersection(offered))
        try:
            token = jwt.decode(id_token, self._key_set(), algorithms=algorithms)
        except (InvalidKeyIdError, ValueError):  # it signs with a new key
            token = jwt.decode(id_token, self._key_set(refresh=True), algorithms=algorithms)
        expected = {
            "iss": {"essential": True, "value": self._discovered()["issuer"]},
            "aud": {"essential": True, "value": self.rules.client_id},
        }
        params = {"client_id": self.rules.client_id, "access_token": access_token, "nonce": nonce}
        claims = CodeIDToken(token.claims, token.header, expected, params)
        try:
            claims.validate(now=int(self._now()), leeway=LEEWAY)
        except ClaimError as error:
            name, sent = error.claim, dict(claims)
            has = f"is `{str(sent[name])[:200]}`" if name in sent else f"is missing; it sent {listed(sent)}"
            raise self._untrusted(f"its `{name}` {has}") from error
        return dict(claims)

    # --- the provider's configuration --------------------------------------------------------------------------------

    def _endpoint(self, name: str, what: str) -> str:
        found = self._discovered().get(name)
        if not found:
            raise Refused(f"The provider {self.rules.name} has no way to sign on with {what}.")
        return str(found)

    def _discovered(self) -> Mapping[str, Any]:
        with self._lock:
            if self._published is None or self._published[0] + CACHE_SECONDS < self._now():
                found = self._fetched(f"{self.rules.issuer.rstrip('/')}/.well-known/openid-configuration")
                if str(found.get("issuer", "")).rstrip("/") != self.rules.issuer.rstrip("/"):
                    raise Refused(
                        f"The provider at {self.rules.issuer} calls itself {str(found.get('issuer'))[:200]}.",
                        hint="Write that as `issuer` in the server's configuration, if it is meant.",
                    )
                self._published, self._keys = (self._now(), found), None
            return self._published[1]

    def _key_set(self, *, refresh: bool = False) -> Any:
        from joserfc.jwk import KeySet

        address = str(self._discovered()["jwks_uri"])
        with self._lock:
            if self._keys is None or refresh:
                self._keys = KeySet.import_key_set(self._fetched(address))
            return self._keys

    def _fetched(self, address: str) -> Any:
        import requests

        return self._json(requests.get(address, timeout=TIMEOUT))

    def _json(self, answer: Any) -> Any:
        found: Any = None
        if answer.headers.get("Content-Type", "").partition(";")[0].endswith("json"):
            found = answer.json()
        if not answer.ok or not isinstance(found, dict):
            body = _text_of(found) if isinstance(found, dict) else ""
            kind = answer.headers.get("Content-Type") or "nothing"
            what = body or (answer.reason if not answer.ok else f"with {kind[:60]} in place of JSON")
            raise Refused(f"The provider {self.rules.name} answered {answer.status_code} {what} to {answer.url}.")
        return found

    @contextmanager
    def _session(self, **more: Any) -> Iterator[Any]:
        from authlib.integrations.requests_client import OAuth2Session

        method = "client_secret_basic" if self.rules.client_secret else "none"
        with OAuth2Session(
            self.rules.client_id,
            self.rules.client_secret,
            token_endpoint_auth_method=method,
            scope=" ".join(self.rules.scopes),
            **more,
        ) as session:
            yield session

    @contextmanager
    def _clear(self) -> Iterator[None]:
        """Translates the libraries' errors into readable ones. None of them contains a token."""
        import requests
        from authlib.integrations.base_client.errors import OAuthError
        from joserfc.errors import JoseError

        name = self.rules.name
        try:
            yield
        except requests.RequestException as error:
            kind = type(error).__name__
            raise Refused(f"The provider {name} can't be reached ({kind}).", hint="Try again later.") from error
        except OAuthError as error:
            body = _text_of({"error": error.error, "error_description": error.description})
            raise Refused(f"The provider {name} didn't let you sign on: {body}.", hint="Begin again.") from error
        except (JoseError, KeyError, ValueError) as error:
            raise self._untrusted(f"{type(error).__name__}: {error}") from error

    def _untrusted(self, why: str) -> Refused:
        return Refused(
            f"What the provider {self.rules.name} says about you can't be trusted: {why}.",
            hint="Check that both clocks are right, and the `issuer` and `client_id` in the configuration.",
        )


def _text_of(error: Mapping[str, Any]) -> str:
    """A provider's error (RFC 6749): its code, for looking it up, and its description, if any."""
    return ": ".join(str(error[name])[:500] for name in ("error", "error_description") if error.get(name))


def providers_of_accounts(rules: Iterable[SignOnProvider], clock: Clock) -> dict[str, SignsOn]:
    """An installation's sign-on providers, by name."""
    return {each.name: OpenId(each, now=lambda: clock.now() / SECOND) for each in rules}
