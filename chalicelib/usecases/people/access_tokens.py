"""A user's access tokens: making one, which shows its text this once, listing them, and revoking one.

Revoking deletes the record, so the next call with the token is refused, and ends what is open under it. A new token of
the user's own doesn't touch their access tokens: they are other credentials, in other programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from chalicelib.domain import keys
from chalicelib.domain.access_tokens import (
    LEAST,
    MOST,
    MOST_PROJECTS,
    MOST_TOKENS,
    NAME,
    SIGNING,
    USUAL,
    AccessToken,
    ScopedProject,
    TokenClaims,
    Verb,
    text_of,
    with_read,
)
from chalicelib.domain.events import EVERYWHERE, EventType
from chalicelib.domain.instants import SECOND, Micros, iso
from chalicelib.domain.spending import DailyLimit
from chalicelib.domain.tenants import GlobalRole, User, hash_token
from chalicelib.engine.bootstrap_tokens import keyed
from chalicelib.errors import AlreadyExists, Invalid, NotFound, Problem, Refused
from chalicelib.store import nouns
from chalicelib.store.port import Change, Delete, Put, Record
from chalicelib.usecases.audit_events import audit_event, user_target
from chalicelib.usecases.people import rights_revision
from chalicelib.usecases.people.users import own_or_admin
from chalicelib.usecases.people.visible_projects import projects_seen
from chalicelib.usecases.ports import AccountPorts, CredentialPorts, RecordPorts


class TokenPorts(AccountPorts, CredentialPorts, Protocol):
    """The ports for making a token."""


@dataclass(frozen=True)
class TokenRequest:
    name: str
    verbs: Sequence[Verb]
    projects: Sequence[str] = ()  # names; empty: all of the user's
    seconds: int = USUAL // SECOND  # how long it is valid
    dollars: float | None = None  # what its runs may cost a day
    counts_as: str = ""  # what shares these dollars with other tokens; empty: nothing does


def create(
    plane: TokenPorts, user: User, wanted: TokenRequest, used: str, *, usual: bool = False
) -> tuple[AccessToken, str]:
    """A new token and its text, of which only the hash is stored. `used`: the hash of the caller's token. If that is of
    a sign-on, the new one ends with it, even if it is ended early: otherwise an account that the provider has closed
    would go on working. `usual`: nobody chose how long it is valid."""
    now = plane.clock.now()
    signed_on = rights_revision.signed_on(plane.store, user, used, now)
    most = MOST if signed_on is None else (signed_on.ends_at - now) // SECOND * SECOND
    if usual:
        wanted = replace(wanted, seconds=min(wanted.seconds, most // SECOND))
    _check(user, wanted, None if signed_on is None else signed_on.ends_at, most)
    entry, text = make(plane, user, wanted)
    if signed_on is not None:
        entry = entry.with_(signed_on_at=signed_on.created_at)
    name = named(entry, _free(plane, user, wanted.name))
    plane.store.commit([nouns.put(entry), name, token_event(plane, EventType.token_created, entry, user, user)])
    return entry, text


def make(plane: TokenPorts, user: User, wanted: TokenRequest) -> tuple[AccessToken, str]:
    """A new token and its text. It is valid once its record and its name are stored."""
    projects, now = _projects(plane, user, wanted.projects), plane.clock.now()
    expires_at = now // SECOND * SECOND + wanted.seconds * SECOND
    verbs = with_read(wanted.verbs)
    claims = TokenClaims(user.id, expires_at, frozenset(verbs), frozenset(project.name for project in projects))
    text = text_of(keyed(plane.install_key, SIGNING), claims, plane.random_token())
    token_id = plane.random_id()
    entry = AccessToken(
        id=token_id,
        user_id=user.id,
        name=wanted.name,
        token_hash=hash_token(text),
        created_at=now,
        expires_at=expires_at,
        verbs=verbs,
        projects=projects,
        limit=_limit(wanted, token_id),
    )
    return entry, text


def _limit(wanted: TokenRequest, token_id: str) -> DailyLimit | None:
    if wanted.dollars is None:
        return None
    return DailyLimit(id=wanted.counts_as or token_id, token=wanted.name.partition("/")[0], dollars=wanted.dollars)


def named(entry: AccessToken, version: int = 0) -> Put:
    """The record of the token's name, by which it is listed. `version`: of an earlier one of that name."""
    pointer = nouns.pointer(keys.access_token_name(entry.user_id, entry.name), entry.token_hash, version=version)
    record = pointer.record
    expiring = Record(record.key, record.version, record.body, expires_at=entry.expires_at // SECOND)
    return Put(expiring, expect=pointer.expect)


def list_tokens(plane: AccountPorts, actor: User, username: str | None = None) -> list[AccessToken]:
    """The valid tokens of the caller or, for a global admin, of another user; newest first."""
    user = actor if username is None else own_or_admin(plane, actor, username)
    return sorted(valid_tokens(plane, user), key=lambda entry: (entry.created_at, entry.id), reverse=True)


def spent_today(plane: RecordPorts, entries: Sequence[AccessToken]) -> dict[str, float]:
    """The dollars that the runs of each of these tokens have cost today, by the id of its limit."""
    limits = [entry.limit for entry in entries if entry.limit is not None]
    if not limits:
        return {}
    from chalicelib.engine.quotas import token_usage  # it loads jobs and machines, which other calls don't need

    return {id: usage.money for id, usage in token_usage(plane.read, limits, plane.clock.now()).items()}


def revoke(plane: AccountPorts, actor: User, name: str, username: str | None = None) -> None:
    """Revoke a token of the caller or, as a global admin, of another user."""
    user = actor if username is None else own_or_admin(plane, actor, username)
    place = keys.access_token_name(user.id, name)
    found = nouns.find_target(plane.store, place)
    entry = None if found is None else nouns.find(plane.store, AccessToken, keys.access_token(found[0]))
    if found is None or entry is None:
        raise NotFound(f"{user.name} has no access token {name[:60]!r}.", hint="See them with `dstack token list`.")
    _end(plane, actor, user, entry, Delete(place, found[1]))


def revoke_own(plane: AccountPorts, actor: User, token: AccessToken | None) -> None:
    """Revoke the token of this call. `token`: that, if it is an access token."""
    if token is None:
        raise Refused("You call with no access token, but your own.", hint="Replace that one: `dstack user token`.")
    if token.run_id:
        raise Refused("The token of a run's jobs ends with the run.", hint="Stop the run: `dstack stop NAME`.")
    _end(plane, actor, actor, token, Delete(keys.access_token_name(actor.id, token.name)))


def _end(plane: AccountPorts, actor: User, user: User, entry: AccessToken, name: Delete) -> None:
    event = token_event(plane, EventType.token_revoked, entry, user, actor)
    plane.store.commit([Delete(nouns.key_of(entry), entry.version), name, event])
    plane.rights()


# --- making one -------------------------------------------------------------------------------------------------------


def _check(user: User, wanted: TokenRequest, ends_at: Micros | None, most: Micros) -> None:
    """`ends_at`, `most`: when the caller's sign-on ends, if it is one, and how long the token may be valid then."""
    found = []
    if not NAME.fullmatch(wanted.name):
        found.append(Problem("a name has 1 to 60 letters, digits, - and _", path="name"))
    if not LEAST <= wanted.seconds * SECOND <= MOST:
        found.append(Problem("a token is valid for a minute to a year", path="expires_in", hint="for example 30d"))
    elif ends_at is not None and wanted.seconds * SECOND > most:
        text = f"your sign-on ends at {iso(ends_at)}, and so must a token that you make with it"
        found.append(Problem(text, path="expires_in", hint="choose less, or ask an admin for a token of your own"))
    if len(set(wanted.projects)) > MOST_PROJECTS:
        found.append(Problem(f"a token is for at most {MOST_PROJECTS} projects, or for all of yours", path="projects"))
    if wanted.dollars is not None and Verb.run not in wanted.verbs:
        text = "dollars a day are what its runs may cost, and it may submit none"
        found.append(Problem(text, path="dollars_a_day", hint="add the verb `run`, or leave it out"))
    if Verb.server in wanted.verbs and user.role is not GlobalRole.admin:
        found.append(Problem("`server` is for global admins, and you aren't one", path="verbs"))
    elif Verb.server in wanted.verbs and wanted.projects:
        found.append(Problem("`server` is about no project, and this token is only for some", path="verbs"))
    if found:
        raise Invalid(found)


def _projects(plane: AccountPorts, user: User, names: Sequence[str]) -> tuple[ScopedProject, ...]:
    if not names:
        return ()
    found = {project.name: project.id for project in projects_seen(plane.store, user, tuple(names))}
    for name in names:
        if name not in found:
            raise Invalid([Problem(f"there is no project {name[:80]}, or you aren't a member of it", path="projects")])
    return tuple(ScopedProject(id=found[name], name=name) for name in dict.fromkeys(names))


def valid_tokens(plane: AccountPorts, user: User) -> list[AccessToken]:
    found = rights_revision.access_tokens_of(plane.store, user, after=plane.clock.now())
    valid = [entry for entry in found if not entry.signed_off(user.signed_off_at)]
    return [entry for entry in valid if rights_revision.lasts(plane.store, user, entry)]


def _free(plane: AccountPorts, user: User, name: str) -> int:
    """The version of the record of a free name. That of a token that has ended is free, whether or not its record is
    still there."""
    valid = valid_tokens(plane, user)
    if any(each.name == name for each in valid):
        raise AlreadyExists(
            f"You have an access token {name!r} already.",
            hint=f"Choose another name, or revoke that one: dstack token revoke {name}",
        )
    if len([each for each in valid if NAME.fullmatch(each.name)]) >= MOST_TOKENS:
        raise Refused(f"You have {MOST_TOKENS} access tokens, as many as one user may.", hint="Revoke one first.")
    taken = nouns.find_target(plane.store, keys.access_token_name(user.id, name))
    return 0 if taken is None else taken[1]


def token_event(plane: AccountPorts, type: EventType, entry: AccessToken, user: User, actor: User) -> Change:
    projects = ", ".join(project.name for project in entry.projects) or "all projects"
    dollars = f"; ${entry.limit.dollars:g} a day" if entry.limit else ""
    detail = f"{entry.name} ({', '.join(entry.verbs)}; {projects}{dollars}; until {iso(entry.expires_at)})"
    at, target = plane.clock.now(), user_target(user)
    return nouns.put(audit_event(type, at, target, project_id=EVERYWHERE, seed=entry.id, actor=actor, detail=detail))
