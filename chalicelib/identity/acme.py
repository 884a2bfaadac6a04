"""An authority that certifies hosts over ACME (RFC 8555), such as Let's Encrypt. The library `acme` speaks it.

Each call is one step that first asks how far the order has come, so it may be repeated. Failures are translated into
what they mean: not reached, wait, or refused.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chalicelib.domain.instants import SECOND, retry_after
from chalicelib.engine.authority import OrderState, Placed, Registered, Signed, Unregistered
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
    ca: str = field(default="", repr=False)  # PEM: whom to trust about the authority, besides those whom all trust
    kid: str = ""  # with the key: of an account that the authority knows already (RFC 8555, 7.3.4)
    hmac_key: str = field(default="", repr=False)

    def new_key(self) -> str:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        plain = serialization.NoEncryption()
        form = serialization.PrivateFormat.PKCS8
        return ec.generate_private_key(ec.SECP256R1()).private_bytes(serialization.Encoding.PEM, form, plain).decode()

    def register(self, key: str) -> str:
        from acme import errors, messages

        with self._client(Registered(key)) as client:
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

    def order(self, account: Registered, host: str, key: str) -> Placed:
        from acme import messages

        with self._client(account) as client:
            made = client.new_order(_request(key, host))
            (authorization,) = made.authorizations
            if authorization.body.status == messages.STATUS_VALID:
                return Placed(made.uri)
            found = _http(authorization.body)
            answer = found.chall.validation(client.net.key)
            return Placed(made.uri, found.uri, found.chall.encode("token"), answer)

    def answer(self, account: Registered, order: str) -> OrderState:
        from acme import messages

        with self._client(account) as client:
            body = self._order(client, order)
            if body.status == messages.STATUS_PENDING:
                found = _http(self._authorization(client, body))
                if found.status == messages.STATUS_PENDING:
                    client.answer_challenge(found, found.chall.response(client.net.key))
            return self._seen(client, body)

    def look(self, account: Registered, order: str) -> OrderState:
        with self._client(account) as client:
            return self._seen(client, self._order(client, order))

    def collect(self, account: Registered, order: str, host: str, key: str) -> OrderState | Signed:
        from acme import messages

        with self._client(account) as client:
            body = self._order(client, order)
            if body.status == messages.STATUS_READY:
                csr = _request(key, host)
                made = client.begin_finalization(messages.OrderResource(body=body, uri=order, csr_pem=csr))
                return self._seen(client, made.body)
            if body.status != messages.STATUS_VALID:
                return self._seen(client, body)
            return _signed(self._post(client, body.certificate).text, key, host)

    # --- how it is said ----------------------------------------------------------------------------------------------

    @contextmanager
    def _client(self, account: Registered) -> Iterator[ClientV2]:
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
        answers: list[Any] = []
        net.session.hooks["response"].append(lambda response, **_: answers.append(response))
        try:
            yield ClientV2(ClientV2.get_directory(self.directory, net), net)
        except messages.Error as error:
            raise self._meant(error, answers[-1]) from error
        except (requests.RequestException, errors.Error, josepy.errors.Error, KeyError, ValueError) as error:
            said = str(error)[:300] or type(error).__name__
            if answers and answers[-1].status_code == 404:
                raise Gone(f"The certificate authority {self.directory} doesn't know {answers[-1].url}.") from error
            raise Transient(
                f"The certificate authority {self.directory} doesn't answer as it should: {said}."
            ) from error
        finally:
            net.session.close()

    def _meant(self, error: Any, answer: Any) -> Exception:
        said = f"The certificate authority {self.directory} refuses: {_said(error)}"
        if error.code == "rateLimited":
            return Throttled(said, retry_after=_asked(answer.headers) or WAIT)
        if error.code in ("serverInternal", "badNonce"):
            return Transient(said)
        if error.code == "accountDoesNotExist":
            return Unregistered(said)
        if error.code in _NO_ACCOUNT or (error.code == "unauthorized" and not self.kid):
            return InvalidCredentials(f"{said} Set DSTACK_ACME_EAB_KID and DSTACK_ACME_EAB_HMAC_KEY if it wants them.")
        if answer.status_code == 404:
            return Gone(said)
        return Unfit(said)

    def _post(self, client: ClientV2, url: str) -> Any:
        return client.net.post(url, None, new_nonce_url=client.directory["newNonce"])

    def _order(self, client: ClientV2, url: str) -> Any:
        from acme import messages

        return messages.Order.from_json(self._post(client, url).json())

    def _authorization(self, client: ClientV2, order: Any) -> Any:
        from acme import messages

        (url,) = order.authorizations
        return messages.Authorization.from_json(self._post(client, url).json())

    def _seen(self, client: ClientV2, order: Any) -> OrderState:
        from acme import messages

        if order.status != messages.STATUS_INVALID:
            return OrderState(order.status.name)
        challenges = self._authorization(client, order).challenges
        errors = [order.error, *(each.error for each in challenges)]
        return OrderState(order.status.name, next((_said(each) for each in reversed(errors) if each is not None), ""))


def _http(authorization: Any) -> Any:
    """Its challenge that a file at the host answers."""
    from acme import challenges

    found = next((each for each in authorization.challenges if isinstance(each.chall, challenges.HTTP01)), None)
    if found is None:
        raise Unfit(f"The certificate authority doesn't certify {authorization.identifier.value} by http-01.")
    return found


def _request(key: str, host: str) -> bytes:
    from acme.crypto_util import make_csr

    csr: bytes = make_csr(key.encode(), [host])
    return csr


def _signed(chain: str, key: str, host: str) -> Signed:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if len(chain) > LONGEST:
        raise Unfit(f"The certificate authority's chain for {host} is too long: {len(chain):,} characters.")
    own = x509.load_pem_x509_certificates(chain.encode())[0]
    if own.public_key() != load_pem_private_key(key.encode(), None).public_key():
        raise Gone(f"The certificate authority's certificate for {host} is for another key than the one that was sent.")
    since, until = (round(at.timestamp()) * SECOND for at in (own.not_valid_before_utc, own.not_valid_after_utc))
    return Signed(chain, since, until)


def _said(error: Any) -> str:
    text = str(error.detail or error.title or error.typ).strip()
    return text if text.endswith(".") else text + "."


def _asked(headers: Any) -> float:
    """The seconds in a `Retry-After`; 0: there is none that can be read."""
    return retry_after(headers.get("Retry-After", ""), round(time.time() * SECOND)) / SECOND


def _trusting(ca: str) -> Any:
    from requests.adapters import HTTPAdapter

    context = ssl.create_default_context()
    context.load_verify_locations(cadata=ca)

    class Trusting(HTTPAdapter):
        def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
            super().init_poolmanager(*args, **kwargs, ssl_context=context)

    return Trusting()
