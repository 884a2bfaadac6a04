"""A service account's access tokens: it signs who it is with its key, and Nebius returns a token for some hours."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from chalicelib.backends.kit.tokens import read_secret
from chalicelib.backends.nebius.config import NebiusServiceAccountCreds
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.errors import InvalidCredentials

AUDIENCE = "token-service.iam.new.nebiuscloud.net"
SIGNED_FOR = 300  # seconds that a signature is good for
USED_FOR = 0.9  # of a token's life
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
    return read_secret(name, f"The file {name} of the credentials for Nebius")


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


def access_token(answer: Mapping[str, Any]) -> tuple[str, Micros]:
    """The token in the answer to the request, and for how long it may be used."""
    if answer.get("token_type", "Bearer") != "Bearer" or not answer.get("access_token"):
        raise InvalidCredentials("Nebius returned no access token for the service account.")
    return str(answer["access_token"]), round(float(answer.get("expires_in", 0)) * USED_FOR * SECOND)
