"""Codes that sign a browser on: a program that has a token makes one, and the page that is opened with it exchanges it
for an access token of its own.

A code works once, and for a minute: it travels in an address, which programs on the way may keep. Only its hash is
stored.
"""

from __future__ import annotations

from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.access_tokens import ScopedProject, Verb
from chalicelib.domain.instants import HOUR, SECOND, Micros
from chalicelib.domain.noun import Noun

LASTS = 60 * SECOND
SIGNED_IN = 12 * HOUR  # how long a page stays signed in
PREFIX = "console/"  # begins the names of the tokens of pages
MOST_PAGES = 20  # of one user at a time: a further one ends the oldest


class SignInCode(Noun):
    kind: ClassVar[str] = "sign-in-code"

    code_hash: str
    user_id: str
    made_with: str  # the hash of the token with which it was made: its user's own, a sign-on's, or an access token
    created_at: Micros
    token_ends_at: Micros  # when the access token will expire
    verbs: tuple[Verb, ...]
    projects: tuple[ScopedProject, ...] = ()  # empty: all of the user's
    signed_on_at: Micros | None = None  # when the sign-on began with which it was made

    @property
    def ends_at(self) -> Micros:
        return self.created_at + LASTS

    def place(self) -> keys.Place:
        return keys.Place(keys.sign_in_code(self.code_hash), expires_at=self.ends_at // SECOND)
