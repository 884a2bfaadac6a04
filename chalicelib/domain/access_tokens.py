"""Access tokens: a program acts in its user's name, with less than the user's rights, until a given time.

What a call may do is what both the token and its user may do at that moment, so a user's demotion demotes their tokens.
The text of a token has its claims in it, and a signature that only this installation can make: a token that doesn't
suffice for a call is refused before anything is read. Claims prove no more than that. The stored record, found by the
hash of the whole text, says that the token isn't revoked, and which projects are meant by its names.

    dstack_<claims: user, end in seconds, verbs, names of projects, a run if it is its jobs'>.<secret>.<signature>

The secret is random, so that not even the installation's key is enough to make the text of a stored token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

import orjson

from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, SECOND, Micros, iso
from chalicelib.domain.noun import Noun, Value
from chalicelib.domain.spending import DailyLimit

PREFIX = "dstack_"
FORM = re.compile(r"dstack_[A-Za-z0-9_-]{8,1300}\.[A-Za-z0-9_-]{16,86}\.[A-Za-z0-9_-]{43}")  # for secret scanners, too
SIGNING = "access-token"  # what the installation's key is derived for
NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
MOST_PROJECTS = 10  # of one token: their names are in its text, which travels in a header
MOST_TOKENS = 100  # of one user, beside those that programs get by themselves, whose names have a slash
LEAST, USUAL, MOST = 60 * SECOND, 30 * DAY, 365 * DAY  # how long one is valid


class Verb(StrEnum):
    """What a token may do. `read` is part of every token."""

    read = "read"  # list and get, but no secret and no credentials
    run = "run"  # submit, stop and delete runs; upload their code, and attach to their jobs
    fleets = "fleets"  # fleets and their instances, volumes and gateways
    project = "project"  # members, secrets, backends with their credentials, quotas, exports and automations
    server = "server"  # deleting users, and the costs of the whole server: for tokens of global admins


class ScopedProject(Value):
    """A project that a token is for. The name is in the token's text; the id tells it from a later one of that name."""

    id: str
    name: str


class AccessToken(Noun):
    kind: ClassVar[str] = "access-token"

    id: str
    user_id: str
    name: str  # unique among the user's
    token_hash: str
    created_at: Micros
    expires_at: Micros
    verbs: tuple[Verb, ...]
    projects: tuple[ScopedProject, ...] = ()  # empty: all of the user's
    run_id: str = ""  # of a run whose jobs have it: it ends with the run
    sealed: str = ""  # then its text, for the machines of the run
    signed_on_at: Micros | None = None  # when the sign-on began with which it was made, and with which it ends
    made_with: str = ""  # the hash of its user's token with which it was made, and with which it ends
    limit: DailyLimit | None = None  # what its runs may cost a day

    def place(self) -> keys.Place:
        if self.run_id:
            return keys.Place(keys.run_access(self.run_id))  # erased with the run
        return keys.Place(keys.access_token(self.token_hash), expires_at=self.expires_at // SECOND)

    def signed_off(self, at: Micros) -> bool:
        """Did it end when its user's sign-ons from before this time were ended?"""
        return self.signed_on_at is not None and at > self.signed_on_at

    def includes(self, project_id: str) -> bool:
        return not self.projects or any(project.id == project_id for project in self.projects)


# --- the text ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenClaims:
    """What the text of a token says about it."""

    user_id: str
    expires_at: Micros  # whole seconds
    verbs: frozenset[Verb]
    projects: frozenset[str] = frozenset()  # names; empty: all of the user's
    run_id: str = ""  # of a run whose jobs have it


def with_read(verbs: Iterable[Verb]) -> tuple[Verb, ...]:
    """These verbs and `read`, in the order of the list."""
    wanted = {*verbs, Verb.read}
    return tuple(verb for verb in Verb if verb in wanted)


def text_of(key: bytes, claims: TokenClaims, secret: str) -> str:
    """The text of a token. `key`: derived for `SIGNING`; `secret`: random."""
    written: list[Any] = [claims.user_id, claims.expires_at // SECOND, sorted(claims.verbs), sorted(claims.projects)]
    if claims.run_id:
        written.append(claims.run_id)
    signed = f"{PREFIX}{_base64(orjson.dumps(written))}.{secret}"
    return f"{signed}.{_signature(key, signed)}"


def claims_of(key: bytes, text: str) -> TokenClaims | None:
    """The claims of a token that this installation signed; None for any other text."""
    if not FORM.fullmatch(text):
        return None
    signed, _, signature = text.rpartition(".")
    if not hmac.compare_digest(signature, _signature(key, signed)):
        return None
    claims = signed.removeprefix(PREFIX).partition(".")[0]
    user_id, ends, verbs, projects, *run = orjson.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    known = frozenset(verb for verb in Verb if verb in verbs)  # a newer version may have signed others
    return TokenClaims(user_id, ends * SECOND, known, frozenset(projects), *run[:1])


def _signature(key: bytes, signed: str) -> str:
    return _base64(hmac.new(key, signed.encode(), hashlib.sha256).digest())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


# --- what it is enough for --------------------------------------------------------------------------------------------


def ended(claims: TokenClaims, now: Micros) -> str:
    """That a token with these claims is no longer valid; empty if it is."""
    if now < claims.expires_at:
        return ""
    return f"This access token expired at {iso(claims.expires_at)}. Make another: dstack token create NAME"


def refusal(claims: TokenClaims, verb: Verb | None, project: str | None, *, narrowed: bool = False) -> str:
    """Why a valid token with these claims isn't enough for a call; empty if it is.

    `verb`: what the call needs; None: the user's own token. `project`: the name of the one that the call is about.
    `narrowed`: a call about no project shows only the token's own.
    """
    if verb is None:
        return "No access token may do this: use your own token, or sign on with `dstack login`"
    if verb not in claims.verbs:
        return (
            f"This access token may not do this: it lacks the verb `{verb}` and has {_listed(claims.verbs)}. "
            f"Make one that has it: dstack token create NAME --verb {verb}"
        )
    if not claims.projects or project in claims.projects or (project is None and narrowed):
        return ""
    only = f"This access token is only for {'projects' if len(claims.projects) > 1 else 'project'} "
    only += ", ".join(sorted(claims.projects))
    if project is None:
        return f"{only}, and this call isn't about one project. Make one for all: dstack token create NAME"
    return f"{only}, not for {project[:80]}. Make one for it: dstack token create NAME --for {project[:80]}"


def _listed(verbs: Collection[Verb]) -> str:
    return ", ".join(f"`{verb}`" for verb in Verb if verb in verbs) or "none"
