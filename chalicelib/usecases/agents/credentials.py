"""Agents' credentials. A bootstrap token is exchanged for one random credential, of which the store keeps the hash.

The token travels through user data, which others may read, so it works once: until a credential that it bought is used.
Before that the response may have been lost, however long the network is down, and the same agent process may repeat the
exchange. Each repeat creates a new credential, because the old one can't be read back, and the old one stays valid: the
process may hold either, since the network itself may repeat a request.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from chalicelib.domain import keys
from chalicelib.domain.instances import Instance, Presence
from chalicelib.domain.tenants import hash_token
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.errors import Forbidden
from chalicelib.store import nouns
from chalicelib.usecases.ports import CredentialPorts, RecordPorts

REPEATS = 8
_REFUSED = "This credential doesn't belong to this instance"


@dataclass(frozen=True)
class Admission:
    """An admitted agent. `credential` is the new one, if a bootstrap token was exchanged."""

    presence: Presence
    credential: str | None = None


def admit(
    plane: CredentialPorts, instance: Instance | None, presence: Presence | None, credential: str, boot: str
) -> Admission:
    """Admits the agent, or raises Forbidden, which reveals nothing about what exists."""
    if instance is None or not credential:
        raise Forbidden(_REFUSED)
    given = hash_token(credential)
    if presence is not None and holds(presence, credential):
        return Admission(presence.with_(previous_hash=""))
    expected = bootstrap_token(plane.install_key, instance.id, instance.epoch)
    if not hmac.compare_digest(given, hash_token(expected)):
        raise Forbidden(_REFUSED)
    if presence is None or not presence.credential_hash:
        instance_holding = presence or Presence(instance_id=instance.id, project_id=instance.project_id)
        instance_holding = instance_holding.with_(previous_hash=given)
    elif presence.boot == boot and presence.previous_hash == given:
        instance_holding = presence.with_(earlier_hashes=(presence.credential_hash, *presence.earlier_hashes)[:REPEATS])
    else:
        raise Forbidden("This bootstrap token was already used")
    fresh = f"{instance.id}.{plane.random_token()}"
    return Admission(instance_holding.with_(credential_hash=hash_token(fresh)), fresh)


def outlived(plane: CredentialPorts, instance_id: str, credential: str) -> bool:
    """Is this the token of an instance whose record was erased? An agent that was offline for that long falls back to
    its token, and must still learn that it has to end. A record is always written before its token is handed out."""
    token = bootstrap_token(plane.install_key, instance_id, 0)
    return hmac.compare_digest(hash_token(credential), hash_token(token))


def holds(presence: Presence, credential: str) -> bool:
    """Is it one of the agent's credentials?"""
    given = hash_token(credential)
    hashes = (presence.credential_hash, *presence.earlier_hashes)
    return any(hmac.compare_digest(given, one) for one in hashes if one)


def instance_holding(plane: RecordPorts, credential: str) -> Instance:
    """The instance whose agent holds this credential. Raises Forbidden."""
    instance_id = instance_of(credential)
    keyed = [keys.instance(instance_id), keys.presence(instance_id)]
    found = plane.store.get_many(keyed) if instance_id else [None, None]
    presence = None if found[1] is None else nouns.read(Presence, found[1])
    if found[0] is None or presence is None or not holds(presence, credential):
        raise Forbidden("This credential doesn't belong to an instance")
    return nouns.read(Instance, found[0])


def readmit(plane: RecordPorts, instance_id: str) -> None:
    """Deletes the credential, so that the bootstrap token works once more: for a host whose agent lost its data."""
    presence = nouns.find(plane.store, Presence, keys.presence(instance_id))
    if presence is not None and presence.credential_hash:
        forgotten = presence.with_(credential_hash="", earlier_hashes=(), previous_hash="")
        plane.store.commit([nouns.put(forgotten)])


def instance_of(credential: str) -> str:
    """The instance that a credential claims to belong to; only `admit` verifies it."""
    return credential.partition(".")[0]
