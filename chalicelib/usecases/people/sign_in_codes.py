"""Signing a browser on with a code: `dstack console` makes one, and the page exchanges it for an access token.

The page may no more than who opened it: with an access token for one project, it is one for that project. It ends by
itself, or with the credential that it came from.
"""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.domain import keys
from chalicelib.domain.access_tokens import LEAST, SIGNING, AccessToken, TokenClaims, Verb, text_of, with_read
from chalicelib.domain.events import EventType
from chalicelib.domain.instants import SECOND, Micros, iso
from chalicelib.domain.sign_in_codes import MOST_PAGES, PREFIX, SIGNED_IN, SignInCode
from chalicelib.domain.tenants import GlobalRole, User, hash_token
from chalicelib.engine.bootstrap_tokens import keyed
from chalicelib.errors import Conflict, Refused
from chalicelib.store import nouns
from chalicelib.store.port import Change, Delete
from chalicelib.usecases.people import rights_revision
from chalicelib.usecases.people.access_tokens import TokenPorts, named, token_event, valid_tokens

AGAIN = "Run `dstack console` again: a code works once, within a minute."


def create(plane: TokenPorts, user: User, used: str, token: AccessToken | None) -> tuple[SignInCode, str]:
    """A new code and its text. `used`: the hash of the caller's token; `token`: that, if it is an access token."""
    if token is not None and (token.run_id or token.name.startswith(PREFIX)):
        whose = "a run's jobs" if token.run_id else "a page of the console"
        raise Refused(f"The token of {whose} makes no codes to sign in.", hint="Use your own: `dstack console`.")
    now, text = plane.clock.now(), plane.random_token()
    signed_on = None if token is not None else rights_revision.signed_on(plane.store, user, used, now)
    ends_at = _ends_at(now, token, None if signed_on is None else signed_on.ends_at)
    code = SignInCode(
        code_hash=hash_token(text),
        user_id=user.id,
        made_with=used,
        created_at=now,
        token_ends_at=ends_at,
        verbs=_all_of(user) if token is None else token.verbs,
        projects=() if token is None else token.projects,
        signed_on_at=signed_on.created_at if signed_on else token.signed_on_at if token else None,
    )
    plane.store.commit([nouns.put(code)])
    return code, text


def exchange(plane: TokenPorts, text: str) -> tuple[User, AccessToken, str]:
    """The user of a code, the new access token, and its text. The code is deleted in the same commit, so of two who
    exchange it at once only one gets a token."""
    code = nouns.find(plane.store, SignInCode, keys.sign_in_code(hash_token(text)))
    if code is None:
        raise Refused("This code was used already, or isn't one of this server.", hint=AGAIN)
    if plane.clock.now() >= code.ends_at:
        raise Refused(f"This code was valid until {iso(code.ends_at)}.", hint=AGAIN)
    user, parent = _maker(plane, code)
    entry, token = _token(plane, user, code, parent)
    added = token_event(plane, EventType.token_created, entry, user, user)
    changes: list[Change] = [Delete(nouns.key_of(code), code.version), nouns.put(entry), named(entry), added]
    try:
        plane.store.commit([*changes, *_oldest(plane, user)])
    except Conflict:
        raise Refused("This code was used at the same time by somebody else.", hint=AGAIN) from None
    return user, entry, token


def _all_of(user: User) -> tuple[Verb, ...]:
    return tuple(verb for verb in Verb if verb is not Verb.server or user.role is GlobalRole.admin)


def _ends_at(now: Micros, token: AccessToken | None, sign_on_ends_at: Micros | None) -> Micros:
    """When the page's token will expire: in whole seconds, as the text of a token has it."""
    ends = [now + SIGNED_IN]
    if token is not None:
        ends.append(token.expires_at)
    if sign_on_ends_at is not None:
        ends.append(sign_on_ends_at)
    end = min(ends) // SECOND * SECOND
    if end - now < LEAST:
        raise Refused(f"The token that you call with ends at {iso(end)}, too soon to sign in.", hint="Make a new one.")
    return end


def _maker(plane: TokenPorts, code: SignInCode) -> tuple[User, AccessToken | None]:
    """The code's user and, if it was made with an access token, that. Raises Refused if its maker couldn't call now."""
    user, now = nouns.find(plane.store, User, keys.user(code.user_id)), plane.clock.now()
    if user is None or not user.active:
        raise Refused("The user of this code is deactivated or deleted.", hint="Ask an admin of this control plane.")
    parent = rights_revision.access_token(plane.store, user, code.made_with, now)
    if parent is None and not rights_revision.good(plane.store, user, code.made_with, now):
        raise Refused("The token with which this code was made is no longer valid.", hint=AGAIN)
    return user, parent


def _token(plane: TokenPorts, user: User, code: SignInCode, parent: AccessToken | None) -> tuple[AccessToken, str]:
    """`parent`: the access token with which the code was made."""
    names = frozenset(project.name for project in code.projects)
    claims = TokenClaims(user.id, code.token_ends_at, frozenset(with_read(code.verbs)), names)
    text, id_ = text_of(keyed(plane.install_key, SIGNING), claims, plane.random_token()), plane.random_id()
    entry = AccessToken(
        id=id_,
        user_id=user.id,
        name=f"{PREFIX}{id_[:8]}",
        token_hash=hash_token(text),
        created_at=plane.clock.now(),
        expires_at=code.token_ends_at,
        verbs=with_read(code.verbs),
        projects=code.projects,
        signed_on_at=code.signed_on_at,
        made_with="" if code.signed_on_at is not None and parent is None else code.made_with,
        limit=None if parent is None else parent.limit,
    )
    return entry, text


def _oldest(plane: TokenPorts, user: User) -> Sequence[Change]:
    """Ends the user's oldest page, if there are as many as there may be."""
    pages = [entry for entry in valid_tokens(plane, user) if entry.name.startswith(PREFIX)]
    if len(pages) < MOST_PAGES:
        return ()
    oldest = min(pages, key=lambda entry: (entry.created_at, entry.id))
    return (Delete(nouns.key_of(oldest)), Delete(keys.access_token_name(user.id, oldest.name)))
