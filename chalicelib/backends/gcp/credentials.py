"""How the control plane logs in to Google: with a service account's key, as its own tools would, or, in AWS, as itself.

Google's library would follow addresses and run programs that a key's text names. Texts are given by whoever adds a
backend, so only the parts of a key that identify it are read, and the addresses are Google's own.
"""

from __future__ import annotations

from typing import Any

import orjson

from chalicelib.backends.gcp.config import GCPServiceAccountCreds, GCPWorkloadIdentityCreds
from chalicelib.backends.kit.bodies import filled
from chalicelib.backends.kit.tables import table
from chalicelib.backends.kit.tokens import read_secret
from chalicelib.domain.specs.credentials import DefaultCreds
from chalicelib.errors import InvalidCredentials

SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
TOKENS = "https://oauth2.googleapis.com/token"
_OF_AWS = table("gcp/workload_identity.toml")
_NEEDED = ("client_email", "private_key", "private_key_id")


def credentials(creds: GCPServiceAccountCreds | DefaultCreds | GCPWorkloadIdentityCreds) -> Any:
    """The library's credentials. Raises InvalidCredentials."""
    if isinstance(creds, GCPWorkloadIdentityCreds):
        return _of_aws(creds)
    if isinstance(creds, DefaultCreds):
        return _default()
    from google.oauth2 import service_account

    key = _key(creds)
    try:
        return service_account.Credentials.from_service_account_info(
            {**key, "token_uri": TOKENS}, scopes=SCOPES, always_use_jwt_access=True
        )
    except ValueError as error:  # its text may have a part of the key
        raise InvalidCredentials(
            f"The service account's key can't be used: its `private_key` isn't one ({type(error).__name__}).",
            hint="Give the whole file that Google made.",
        ) from None


def _default() -> Any:
    import google.auth
    from google.auth.exceptions import GoogleAuthError

    try:
        found, _ = google.auth.default(scopes=SCOPES)
    except GoogleAuthError as error:
        raise InvalidCredentials(f"There are no credentials for Google: {error}") from error
    return found


def _key(creds: GCPServiceAccountCreds) -> dict[str, str]:
    text = creds.data
    if text is None:
        hint = "Correct `creds.filename`, or give its text as `creds.data`."
        text = read_secret(str(creds.filename), f"The file {creds.filename} with the service account's key", hint)
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise InvalidCredentials(
            "The service account's key isn't JSON.", hint="Give the text of the file that Google made as `creds.data`."
        ) from None
    if not isinstance(found, dict) or found.get("type") != "service_account":
        kind = found.get("type") if isinstance(found, dict) else None
        raise InvalidCredentials(
            f"This isn't a service account's key: its type is {str(kind)[:40]!r}.",
            hint="Make a key of a service account, or use `creds: {type: workload_identity}`.",
        )
    if lacking := [name for name in _NEEDED if not isinstance(found.get(name), str)]:
        raise InvalidCredentials(f"The service account's key lacks `{lacking[0]}`.")
    return {name: found[name] for name in _NEEDED}


def _of_aws(creds: GCPWorkloadIdentityCreds) -> Any:
    from google.auth import aws

    account = filled(_OF_AWS, {"audience": creds.audience, "account": creds.service_account, "region": "{region}"})
    return aws.Credentials.from_info(account, scopes=SCOPES)
