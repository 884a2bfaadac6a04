"""Acting once for each `Idempotency-Key`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from chalicelib.domain import keys
from chalicelib.domain.keyed_requests import KeyedRequest, SentKey, earlier
from chalicelib.domain.tenants import User
from chalicelib.errors import Conflict, Contended
from chalicelib.store import nouns
from chalicelib.usecases.context import Plane

Act = Callable[[Plane, str], None]
"""An action, on the plane that it must commit with; the id is that of what it makes, if it makes anything."""


@dataclass(frozen=True)
class Acted:
    subject_id: str  # of what was made
    repeated: bool = False


def once(plane: Plane, user: User, sent: SentKey | None, act: Act) -> Acted:
    """Act, unless the same request with the same key has acted already. `act` must commit its effect in one commit,
    with the plane's committer; what it commits before and after must be harmless if repeated."""
    if sent is None:
        return _act(plane, act)
    stored = nouns.find(plane.store, KeyedRequest, keys.keyed_request(user.id, sent.key_hash))
    if known := earlier(stored, sent, plane.clock.now()):
        return Acted(known.subject_id, repeated=True)
    try:
        return _act_and_record(plane, user, sent, 0 if stored is None else stored.version, act)
    except (Conflict, Contended):  # perhaps because the same request was faster
        stored = nouns.find(plane.store, KeyedRequest, keys.keyed_request(user.id, sent.key_hash))
        if known := earlier(stored, sent, plane.clock.now()):
            return Acted(known.subject_id, repeated=True)
        raise


def _act(plane: Plane, act: Act) -> Acted:
    subject_id = plane.random_id()
    act(plane, subject_id)
    return Acted(subject_id)


def _act_and_record(plane: Plane, user: User, sent: SentKey, version: int, act: Act) -> Acted:
    subject_id = plane.random_id()
    record = KeyedRequest(
        user_id=user.id,
        key_hash=sent.key_hash,
        digest=sent.digest,
        subject_id=subject_id,
        at=plane.clock.now(),
        version=version,
    )
    recording = replace(plane, along=(*plane.along, nouns.put(record)))
    act(recording, subject_id)
    if recording.committer.along:  # there was nothing to change
        plane.store.commit(recording.committer.along)
    return Acted(subject_id)
