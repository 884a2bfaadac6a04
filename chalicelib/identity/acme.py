"""A certificate authority that speaks ACME (RFC 8555), such as Let's Encrypt, through the library `acme`.

Each call is one step that first fetches the order's state, so it may be repeated. Failures are translated into errors
that say whether to try again, to wait, or to give up.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chalicelib.domain.instants import SECOND, retry_after
from chalicelib.engine.certificate_authority import (
    AuthorityAccount,
    OrderState,
    PlacedOrder,
    SignedCertificate,
    Unregistered,
)
from chalicelib.errors import Gone, InvalidCredentials, Throttled, Transient, Unfit

if TYPE_CHECKING:
    from acme.client import ClientV2

TIMEOUT = 30  # seconds for each request
LONGEST = 100_000  # characters of a chain
WAIT = 60.0  # seconds, where an authority says to wait, but not how long
_NO_ACCOUNT = frozenset({"externalAccountRequired", "badPublicKey", "badSignatureAlgorithm"})


@dataclass(frozen=True)
class Acme:
    directory: str
    ca: str = field(default="", repr=False)  # PEM certificates to trust for the authority, besides the public ones
    kid: str = ""  # with `hmac_key`: binds to an existing account at the authority (RFC 8555, 7.3.4)
    hmac_key: str = field(default="", repr=False)

    def new_key(self) -> str:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        plain = serialization.NoEncryption()
        form = serialization.PrivateFormat.PKCS8
        return ec.generate_private_key(ec.SECP256R1()).private_bytes(serialization.Encoding.PEM, form, plain).decode()

    def register(self, key: str) -> str:
        from acme import errors, messages

        with self._client(AuthorityAccount(key)) as client:
            bound = None
            if self.kid:
                bound = messages.ExternalAccountBinding.from_data(
                    client.net.key.public_key(), self.kid, self.hmac_key, client.directory
                )
            new = messages.NewRegistration(terms_of_service_agreed=True, external_account_binding=bound)
            try:
                return str(client.new_account(new).uri)
            except errors.ConflictError as there:
                return str(there.location)

    def order(self, account: AuthorityAccount, host: str, key: str) -> PlacedOrder:
        from acme import messages

        with self._client(account) as client:
            placed = client.new_order(_request(key, host))
            (authorization,) = placed.authorizations
            if authorization.body.status == messages.STATUS_VALID:
                return PlacedOrder(placed.uri)
            found = _http(authorization.body)
            answer = found.chall.validation(client.net.key)
            return PlacedOrder(placed.uri, found.uri, found.chall.encode("token"), answer)

    def answer(self, account: AuthorityAccount, order: str) -> OrderState:
        from acme import messages

        with self._client(account) as client:
            body = self._order(client, order)
            if body.status == messages.STATUS_PENDING:
                found = _http(self._authorization(client, body))
                if found.status == messages.STATUS_PENDING:
                    client.answer_challenge(found, found.chall.response(client.net.key))
            return self._state_of(client, body)

    def check(self, account: AuthorityAccount, order: str) -> OrderState:
        with self._client(account) as client:
            return self._state_of(client, self._order(client, order))

    def collect(self, account: AuthorityAccount, order: str, host: str, key: str) -> OrderState | SignedCertificate:
        from acme import messages

        with self._client(account) as client:
            body = self._order(client, order)
            if body.status == messages.STATUS_READY:
                csr = _request(key, host)
                placed = client.begin_finalization(messages.OrderResource(body=body, uri=order, csr_pem=csr))
                return self._state_of(client, placed.body)
            if body.status != messages.STATUS_VALID:
                return self._state_of(client, body)
            return _signed(self._post(client, body.certificate).text, key, host)

    # --- the protocol ------------------------------------------------------------------------------------------------

    @contextmanager
    def _client(self, account: AuthorityAccount) -> Iterator[ClientV2]:
        import josepy
        import requests
        from acme import errors, messages
        from acme.client import ClientNetwork, ClientV2
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        key = josepy.JWKEC(key=load_pem_private_key(account.key.encode(), None))
        net = ClientNetwork(key, alg=josepy.ES256, user_agent="dstack-serverless", timeout=TIMEOUT)
        if account.url:
            net.account = messages.RegistrationResource(uri=account.url, body=messages.Registration())
        if self.ca:
            net.session.mount("https://", _trusting(self.ca))
        responses: list[Any] = []
        net.session.hooks["response"].append(lambda response, **_: responses.append(response))
        try:
            yield ClientV2(ClientV2.get_directory(self.directory, net), net)
        except messages.Error as error:
            raise self._translated(error, responses[-1]) from error
        except (requests.RequestException, errors.Error, josepy.errors.Error, KeyError, ValueError) as error:
            text = str(error)[:300] or type(error).__name__
            if responses and responses[-1].status_code == 404:
                raise Gone(f"The certificate authority {self.directory} doesn't know {responses[-1].url}.") from error
            raise Transient(
                f"The certificate authority {self.directory} doesn't answer as it should: {text}."
            ) from error
        finally:
            net.session.close()

    def _translated(self, error: Any, answer: Any) -> Exception:
        text = f"The certificate authority {self.directory} refuses: {_text_of(error)}"
        if error.code == "rateLimited":
            return Throttled(text, retry_after=_retry_after(answer.headers) or WAIT)
        if error.code in ("serverInternal", "badNonce"):
            return Transient(text)
        if error.code == "accountDoesNotExist":
            return Unregistered(text)
        if error.code in _NO_ACCOUNT or (error.code == "unauthorized" and not self.kid):
            return InvalidCredentials(f"{text} Set DSTACK_ACME_EAB_KID and DSTACK_ACME_EAB_HMAC_KEY if it wants them.")
        if answer.status_code == 404:
            return Gone(text)
        return Unfit(text)

    def _post(self, client: ClientV2, url: str) -> Any:
        return client.net.post(url, None, new_nonce_url=client.directory["newNonce"])

    def _order(self, client: ClientV2, url: str) -> Any:
        from acme import messages

        return messages.Order.from_json(self._post(client, url).json())

    def _authorization(self, client: ClientV2, order: Any) -> Any:
        from acme import messages

        (url,) = order.authorizations
        return messages.Authorization.from_json(self._post(client, url).json())

    def _state_of(self, client: ClientV2, order: Any) -> OrderState:
        from acme import messages

        if order.status != messages.STATUS_INVALID:
            return OrderState(order.status.name)
        challenges = self._authorization(client, order).challenges
        errors = [order.error, *(each.error for each in challenges)]
        return OrderState(
            order.status.name, next((_text_of(each) for each in reversed(errors) if each is not None), "")
        )


def _http(authorization: Any) -> Any:
    """The challenge that is answered by a file at the host."""
    from acme import challenges

    found = next((each for each in authorization.challenges if isinstance(each.chall, challenges.HTTP01)), None)
    if found is None:
        raise Unfit(f"The certificate authority doesn't certify {authorization.identifier.value} by http-01.")
    return found


def _request(key: str, host: str) -> bytes:
    from acme.crypto_util import make_csr

    csr: bytes = make_csr(key.encode(), [host])
    return csr


def _signed(chain: str, key: str, host: str) -> SignedCertificate:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if len(chain) > LONGEST:
        raise Unfit(f"The certificate authority's chain for {host} is too long: {len(chain):,} characters.")
    own = x509.load_pem_x509_certificates(chain.encode())[0]
    if own.public_key() != load_pem_private_key(key.encode(), None).public_key():
        raise Gone(f"The certificate authority's certificate for {host} is for another key than the one that was sent.")
    since, until = (round(at.timestamp()) * SECOND for at in (own.not_valid_before_utc, own.not_valid_after_utc))
    return SignedCertificate(chain, since, until)


def _text_of(error: Any) -> str:
    text = str(error.detail or error.title or error.typ).strip()
    return text if text.endswith(".") else text + "."


def _retry_after(headers: Any) -> float:
    """The seconds in a `Retry-After` header; 0 if there is no readable one."""
    return retry_after(headers.get("Retry-After", ""), round(time.time() * SECOND)) / SECOND


def _trusting(ca: str) -> Any:
    from requests.adapters import HTTPAdapter

    context = ssl.create_default_context()
    context.load_verify_locations(cadata=ca)

    class Trusting(HTTPAdapter):
        def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
            super().init_poolmanager(*args, **kwargs, ssl_context=context)

    return Trusting()
