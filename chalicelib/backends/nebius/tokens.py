"""A service account's access tokens: it signs who it is with its key, and Nebius returns a token for some hours."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chalicelib.backends.nebius.config import NebiusServiceAccountCreds
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.errors import BackendError, InvalidCredentials

AUDIENCE = "token-service.iam.new.nebiuscloud.net"
SIGNED_FOR = 300  # seconds that a signature is good for
RENEWED_AFTER = 0.9  # of a token's life
_TYPE = "urn:ietf:params:oauth:token-type:"


@dataclass(frozen=True)
class ServiceAccount:
    id: str
    key_id: str
    private_key: str = field(repr=False)


def read_account(creds: NebiusServiceAccountCreds) -> ServiceAccount:
    """Reads the files that the credentials name. Raises InvalidCredentials."""
    if creds.filename is not None:
        return _from_file(creds.filename)
    key = creds.private_key_content or _text(creds.private_key_file or "")
    return ServiceAccount(creds.service_account_id or "", creds.public_key_id or "", key)


def _from_file(name: str) -> ServiceAccount:
    """A file as Nebius's command line writes it."""
    try:
        found = json.loads(_text(name))["subject-credentials"]
        account = ServiceAccount(found["sub"], found["kid"], found["private-key"])
        fits = found.get("alg", "RS256") == "RS256" and found.get("iss", account.id) == account.id
    except (ValueError, KeyError, TypeError):
        fits = False
    if not fits:
        raise InvalidCredentials(
            f"{name} isn't a service account's credentials file.",
            hint="Make one with `nebius iam auth-public-key generate`: a JSON file with `subject-credentials`.",
        )
    return account


def _text(name: str) -> str:
    try:
        return Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it isn't text"
        raise InvalidCredentials(f"The file {name} of the credentials for Nebius can't be read: {why}.") from None


def exchange(account: ServiceAccount, now: Micros) -> dict[str, str]:
    """The request that turns the account's signature into a token."""
    return {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": f"{_TYPE}access_token",
        "subject_token": signed(account, now),
        "subject_token_type": f"{_TYPE}jwt",
    }


def signed(account: ServiceAccount, now: Micros) -> str:
    """A JSON web token, signed with RS256."""
    at = now // SECOND
    head = {"alg": "RS256", "typ": "JWT", "kid": account.key_id}
    claims = {"aud": AUDIENCE, "iss": account.id, "sub": account.id, "iat": at, "exp": at + SIGNED_FOR}
    text = b".".join(_encoded(json.dumps(each).encode()) for each in (head, claims))
    return (text + b"." + _encoded(_signature(account.private_key, text))).decode()


def _encoded(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def _signature(private_key: str, text: bytes) -> bytes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(private_key.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, RSAPrivateKey):
        raise InvalidCredentials(
            "The private key of the service account isn't an RSA key in PEM form.",
            hint="Give the whole file, from `-----BEGIN PRIVATE KEY-----`, without a passphrase.",
        )
    return key.sign(text, PKCS1v15(), SHA256())


class Tokens:
    """The account's token, which is exchanged once and kept until shortly before it ends."""

    def __init__(
        self,
        creds: NebiusServiceAccountCreds,
        now: Callable[[], Micros],
        exchanged: Callable[[dict[str, str]], Mapping[str, Any]],
    ) -> None:
        self._creds, self._now, self._exchanged = creds, now, exchanged
        self._lock = threading.Lock()
        self._token, self._good_until = "", 0
        self.attempts = 0  # that have ended
        self._failure: BackendError | None = None  # of the last one

    def get(self) -> str:
        """Raises what the exchange raises: it is one attempt, and who waits for it shares its outcome."""
        return self.after(self.attempts)

    def after(self, attempts: int) -> str:
        """For who asked when so many had ended."""
        with self._lock:
            if self._token and self._now() < self._good_until:
                return self._token
            if self._failure is not None and self.attempts > attempts:
                raise copy(self._failure)
            self._failure = None
            try:
                self._exchange()
            except BackendError as error:
                self._failure = error
                raise
            finally:
                self.attempts += 1
            return self._token

    def _exchange(self) -> None:
        now = self._now()
        answer = self._exchanged(exchange(read_account(self._creds), now))
        if answer.get("token_type", "Bearer") != "Bearer" or not answer.get("access_token"):
            raise InvalidCredentials("Nebius returned no access token for the service account.")
        self._token = str(answer["access_token"])
        self._good_until = now + round(float(answer.get("expires_in", 0)) * RENEWED_AFTER * SECOND)

    def forget(self, token: str) -> None:
        """After a call that refused it."""
        with self._lock:
            if self._token == token:
                self._token = ""
