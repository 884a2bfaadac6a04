"""Who an agent is. A bootstrap token buys one random credential; the store keeps the hash of it.

The token travels through user data, which others may read, so it is good once. A lost reply may be repeated for a
minute, by the same agent process only; each repeat makes a new credential, because the old one can't be read back.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from chalicelib.domain.instances import Instance, Presence
from chalicelib.domain.instants import MINUTE, Micros
from chalicelib.domain.tenants import hash_token
from chalicelib.engine.bootstrap import bootstrap_token
from chalicelib.errors import Forbidden
from chalicelib.store import keys, nouns
from chalicelib.usecases.context import Plane

REPEATABLE: Micros = MINUTE
_REFUSED = "This credential is not the one of this instance"


@dataclass(frozen=True)
class Entry:
    """An agent let in. `credential` is the new one, where a bootstrap token was swapped."""

    presence: Presence
    credential: str | None = None


def admit(plane: Plane, instance: Instance | None, presence: Presence | None, credential: str, boot: str) -> Entry:
    """Let the agent in, or raise Forbidden, which tells nothing of what is there."""
    if instance is None or not credential:
        raise Forbidden(_REFUSED)
    given = hash_token(credential)
    if presence is not None and presence.credential_hash and hmac.compare_digest(given, presence.credential_hash):
        return Entry(presence)
    expected = bootstrap_token(plane.install_key, instance.id, instance.epoch)
    if not hmac.compare_digest(given, hash_token(expected)):
        raise Forbidden(_REFUSED)
    now = plane.clock.now()
    if presence is None or not presence.credential_hash:
        known = presence or Presence(instance_id=instance.id, project_id=instance.project_id)
        known = known.with_(previous_hash=given, previous_until=now + REPEATABLE)
    elif presence.boot == boot and presence.previous_hash == given and now < presence.previous_until:
        known = presence
    else:
        raise Forbidden("This bootstrap token was used already")
    fresh = f"{instance.id}.{plane.random_token()}"
    return Entry(known.with_(credential_hash=hash_token(fresh)), fresh)


def readmit(plane: Plane, instance_id: str) -> None:
    """Forget the credential, so that the bootstrap token is good once more: for a host whose agent lost its data."""
    presence = nouns.find(plane.store, Presence, keys.presence(instance_id))
    if presence is not None and presence.credential_hash:
        plane.store.commit([nouns.put(presence.with_(credential_hash="", previous_hash="", previous_until=0))])


def instance_of(credential: str) -> str:
    """The instance that a credential says it belongs to; only `admit` tells whether that is true."""
    return credential.partition(".")[0]
