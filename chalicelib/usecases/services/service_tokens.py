"""Tokens that are valid only for calling a project's services: callers send them to a gateway, whose machine can read
all that passes through it.

A token contains its claims and a signature; nothing is stored. The signature's key is derived from the installation's
key and the hash of the user's own token, so a new token of the user invalidates these, too. Rights are looked up for
each verdict. A gateway sends the claims and the hash of the whole token, so not even such a token leaves its machine.

    dstack-service.<claims: user, project, run or nothing, end in seconds>.<signature>
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass, field

import orjson

from chalicelib.domain import keys
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.tenants import Project, User, hash_token
from chalicelib.engine.bootstrap_tokens import keyed
from chalicelib.errors import NotFound
from chalicelib.store import nouns
from chalicelib.usecases.ports import CredentialPorts

PREFIX = "dstack-service."  # as in agent/gateway/plane.py and lua/access.lua
LEAST_SECONDS, MOST_SECONDS = 60, 86_400
LONGEST = 1024  # characters of claims


@dataclass(frozen=True)
class ServiceToken:
    token: str = field(repr=False)
    ends_at: Micros
    run_name: str  # empty: all services of the project


@dataclass(frozen=True)
class Bearer:
    user: User
    ends_at: Micros | None = None  # the token's end; None: when it is replaced


@dataclass(frozen=True)
class ServiceClaims:
    user_id: str
    project_id: str
    run_name: str
    ends_at: Micros


def issue(plane: CredentialPorts, user: User, project: Project, run_name: str, seconds: int) -> ServiceToken:
    if run_name and nouns.find_target(plane.store, keys.run_name(project.id, run_name)) is None:
        raise NotFound(f"There is no run {run_name} in project {project.name}.")
    ends = plane.clock.now() // SECOND + seconds
    written = base64.urlsafe_b64encode(orjson.dumps([user.id, project.id, run_name, ends])).rstrip(b"=")
    claims = PREFIX + written.decode()
    return ServiceToken(_signed(plane, user, claims), ends * SECOND, run_name)


def claims_of(token: str) -> str:
    """The claims of a service token, which aren't secret; empty for a token of another kind."""
    return token.rpartition(".")[0] if token.startswith(PREFIX) else ""


def bearer_of(plane: CredentialPorts, claims: str, token_hash: str, project_id: str, run_name: str) -> Bearer | None:
    """The token's bearer if it is valid for this service now; empty `run_name`: for all services of the project."""
    claimed = _read(claims)
    if claimed is None or claimed.project_id != project_id or plane.clock.now() >= claimed.ends_at:
        return None
    if claimed.run_name and claimed.run_name != run_name:
        return None
    user = nouns.find(plane.store, User, keys.user(claimed.user_id))
    if user is None or not hmac.compare_digest(hash_token(_signed(plane, user, claims)), token_hash):
        return None
    return Bearer(user, claimed.ends_at)


def _signed(plane: CredentialPorts, user: User, claims: str) -> str:
    key = keyed(plane.install_key, f"service-token/{user.token_hash}")
    signature = hmac.new(key, claims.encode(), hashlib.sha256).digest()
    return f"{claims}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def _read(claims: str) -> ServiceClaims | None:
    written = claims.removeprefix(PREFIX)
    if written == claims or len(claims) > LONGEST:
        return None
    try:
        claimed = orjson.loads(base64.b64decode(written + "=" * (-len(written) % 4), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error):
        return None
    kinds = [type(each) for each in claimed] if isinstance(claimed, list) else []
    return (
        ServiceClaims(claimed[0], claimed[1], claimed[2], claimed[3] * SECOND)
        if kinds == [str, str, str, int]
        else None
    )
