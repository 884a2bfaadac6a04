"""Acting once for each `Idempotency-Key`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from chalicelib.domain import keys
from chalicelib.domain.keyed_requests import KeyedRequest, SentKey, earlier
from chalicelib.domain.tenants import User
from chalicelib.errors import DstackError
from chalicelib.store import nouns
from chalicelib.store.port import Change, Delete, Put, Store
from chalicelib.usecases.context import Plane

T = TypeVar("T")
Act = Callable[[Plane, str], T]
"""An action, on the plane that it must commit with; the id is that of what it makes, if it makes anything."""


@dataclass(frozen=True)
class Acted(Generic[T]):
    subject_id: str  # of what was made
    result: T | None  # of the action; None if the request was repeated
    repeated: bool = False
    created: bool = False  # was there nothing at its address before?


@dataclass(frozen=True)
class Address:
    """What a request says about its address, for repetitions of it: the project, and whether there is nothing yet."""

    project_id: str = ""
    empty: bool = False


class _RecordingStore:
    """`Store`: the first commit also has the record."""

    def __init__(self, below: Store, record: Put) -> None:
        self.waiting: tuple[Change, ...] = (record,)
        self._below = below
        self.get, self.get_many, self.query, self.scan = below.get, below.get_many, below.query, below.scan
        self.due, self.next_due, self.close = below.due, below.next_due, below.close

    def commit(self, changes: Sequence[Change]) -> None:
        self._below.commit([*changes, *self.waiting])
        self.waiting = ()


def once(
    plane: Plane,
    user: User,
    sent: SentKey | None,
    act: Act[T],
    *,
    by_store: bool = False,
    address: Address = Address(),
) -> Acted[T]:
    """Act, unless the same request with the same key has acted already. `act` must commit its effect in one commit:
    with the plane's committer, where what it commits before and after must be harmless if repeated; or, `by_store`,
    with the plane's store, where its first commit must be the effect."""
    if sent is None:
        subject_id = plane.random_id()
        return Acted(subject_id, act(plane, subject_id), created=address.empty)
    stored = nouns.find(plane.store, KeyedRequest, keys.keyed_request(user.id, sent.key_hash))
    if known := earlier(stored, sent, plane.clock.now()):
        return Acted(known.subject_id, None, repeated=True, created=known.created)
    record = _record(plane, user, sent, address, 0 if stored is None else stored.version)
    try:
        result = (_by_store if by_store else _by_committer)(plane, record, act)
    except DstackError:  # perhaps because the same request was faster
        stored = nouns.find(plane.store, KeyedRequest, keys.keyed_request(user.id, sent.key_hash))
        known = earlier(stored, sent, plane.clock.now())
        if known is None or known.subject_id == record.subject_id:
            raise
        return Acted(known.subject_id, None, repeated=True, created=known.created)
    return Acted(record.subject_id, result, created=address.empty)


def _record(plane: Plane, user: User, sent: SentKey, address: Address, version: int) -> KeyedRequest:
    return KeyedRequest(
        user_id=user.id,
        key_hash=sent.key_hash,
        digest=sent.digest,
        subject_id=plane.random_id(),
        at=plane.clock.now(),
        created=address.empty,
        project_id=address.project_id,
        version=version,
    )


def _by_committer(plane: Plane, record: KeyedRequest, act: Act[T]) -> T:
    recording = replace(plane, along=(*plane.along, nouns.put(record)))
    result = act(recording, record.subject_id)
    if recording.committer.along:  # there was nothing to change
        plane.store.commit(recording.committer.along)
    return result


def _by_store(plane: Plane, record: KeyedRequest, act: Act[T]) -> T:
    store = _RecordingStore(plane.store, nouns.put(record))
    try:
        result = act(replace(plane, store=store), record.subject_id)
    except DstackError:
        if not store.waiting:  # it was refused after its first commit, which it has taken back
            plane.store.commit([Delete(nouns.key_of(record))])
        raise
    if store.waiting:  # likewise
        plane.store.commit(store.waiting)
    return result
