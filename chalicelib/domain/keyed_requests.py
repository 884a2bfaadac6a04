"""Requests with an `Idempotency-Key`: a request that is repeated with its key takes effect once.

The record of a request is written in the same commit as its effect, so there is never one without the other, wherever
a call ends. It has the id of what the request makes, chosen before, and no answer: the answer to a repetition is made
again of what that id is now. So the table holds no second copy of an answer, which could show what is sealed elsewhere.

A refused request has no effect and leaves no record: repeated, it is decided anew.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, SECOND, Micros
from chalicelib.domain.noun import Noun
from chalicelib.errors import Invalid, KeyReused

KEY = "idempotency-key"  # the header
DIGEST = "keyed-request"  # what the installation's key is derived for
LASTS = DAY
LONGEST_KEY = 200  # characters


class KeyedRequest(Noun):
    """A request that had its effect."""

    user_id: str
    key_hash: str
    digest: str  # of the request, which nobody without the installation's key can guess a secret from
    subject_id: str  # of what it made
    at: Micros
    created: bool = False  # was there nothing at its address before?
    project_id: str = ""  # of the project in its path

    @property
    def ends_at(self) -> Micros:
        return self.at + LASTS

    def place(self) -> keys.Place:
        return keys.Place(keys.keyed_request(self.user_id, self.key_hash), expires_at=self.ends_at // SECOND)


@dataclass(frozen=True)
class SentKey:
    """A key as it was sent, and the digest of the request that came with it."""

    key_hash: str
    digest: str


def sent_key(secret: bytes, key: str, *request: bytes) -> SentKey:
    """`secret`: derived for `DIGEST`; `request`: its parts. Raises Invalid for a key that is empty or too long."""
    if not 0 < len(key) <= LONGEST_KEY or not key.isprintable():
        raise Invalid(
            f"`Idempotency-Key` should have 1 to {LONGEST_KEY} printable characters.",
            hint="A UUID will do, a new one for each thing to be done.",
        )
    digest = hmac.new(secret, digestmod=hashlib.sha256)
    for part in request:
        digest.update(b"%d:" % len(part) + part)  # with its length, so that no part can pass for the end of another
    return SentKey(key_hash(key), digest.hexdigest())


def key_hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def earlier(stored: KeyedRequest | None, sent: SentKey, now: Micros) -> KeyedRequest | None:
    """The request that `sent` repeats, if it does. A record is valid for a day, also where the store keeps it longer.
    Raises KeyReused if the key came with another request."""
    if stored is None or now >= stored.ends_at:
        return None
    if stored.digest != sent.digest:
        raise KeyReused(
            "This `Idempotency-Key` was used in the last 24 hours, for another request.",
            hint="Send a new key, or exactly the request that the key was for.",
        )
    return stored
