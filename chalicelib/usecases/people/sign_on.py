"""Signing on with an account at a provider: by redirecting a browser, or with a code typed on another device.

Nothing is stored until the user is known: the state of a sign-on travels sealed in the `state` parameter, which only
this installation can open, for ten minutes. A sign-on creates a token beside the user's other ones. An account always
belongs to the same user; the user's name is taken from it only once.

Rule 1: a browser returns to an address that the operator chose, or to its own machine. A caller who could name another
address would get the codes of everybody who follows the link. Rule 2: the one who finishes must be the one who began,
or somebody could be signed on to another's account without noticing. A browser proves it with a cookie; a program on
its machine compares the returned `state` with the one that it was given; the state of a device code is given to nobody
else.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hmac import compare_digest
from typing import Any, Protocol
from urllib.parse import urlsplit

import orjson

from chalicelib.domain import keys
from chalicelib.domain.directory import DirectoryUser
from chalicelib.domain.events import EVERYWHERE, EventType
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.sign_on import Claims, SignOn, check, claims_of, group_rights
from chalicelib.domain.tenants import GlobalRole, Project, ProjectRole, User, hash_token
from chalicelib.errors import Conflict, Contended, NotFound, Refused
from chalicelib.loopback import is_loopback
from chalicelib.store import nouns
from chalicelib.store.listing import every
from chalicelib.usecases.audit_events import audit_event, user_target
from chalicelib.usecases.context import DeviceCode, SignsOn
from chalicelib.usecases.people import rights_revision
from chalicelib.usecases.people.projects import give_role
from chalicelib.usecases.people.users import free_name, make_user, memberships, sign_on, with_email
from chalicelib.usecases.ports import AccountPorts, RecordPorts, SealedPorts

log = logging.getLogger(__name__)

PATIENCE = 10 * MINUTE  # for a user to sign on
TRIES = 20  # commits under contention
_SEALED_FOR = "sign-on"
_RESTART = "Begin again with `dstack login`."


class SignOnPorts(AccountPorts, Protocol):
    """The ports for signing on."""

    @property
    def sign_on(self) -> Mapping[str, SignsOn]: ...

    @property
    def people_url(self) -> str: ...


@dataclass(frozen=True)
class _State:
    """The state of a sign-on in progress."""

    provider: str
    until: int
    redirect: str = ""
    local_port: int | None = None
    nonce: str = ""
    verifier: str = ""
    device_code: str = ""
    browser: str = ""  # the hash of the secret of the browser that began; empty: no browser began


@dataclass(frozen=True)
class Begun:
    address: str  # at which a browser signs on
    proof: str = ""  # the browser's secret, if a browser began


def begin(plane: SignOnPorts, name: str, local_port: int | None, base_url: str | None) -> Begun:
    """Begin a sign-on after which the provider sends the browser to a port of its own machine, or to a console."""
    provider = _provider(plane, name)
    redirect = provider.rules.redirect_url
    if redirect is None and local_port is not None:
        redirect = f"http://localhost:{local_port}/auth/callback"
    elif redirect is None and base_url:
        _check_base(plane, name, base_url)
        redirect = f"{base_url.rstrip('/')}/auth/{name}/callback"
    if redirect is None:
        raise Refused(
            "The address to which the browser should return is missing.", hint="Give `local_port` or `base_url`."
        )
    nonce, verifier = plane.random_token(), plane.random_token() + plane.random_token()
    proof = plane.random_token() if local_port is None else ""
    state = _State(
        name,
        plane.clock.now() + PATIENCE,
        redirect,
        local_port,
        nonce,
        verifier,
        browser=hash_token(proof) if proof else "",
    )
    return Begun(provider.address(redirect, _sealed(plane, state), nonce, verifier), proof)


def _check_base(plane: SignOnPorts, name: str, base_url: str) -> None:
    if is_loopback(base_url) or _origin(base_url) == _origin(plane.people_url):
        return
    raise Refused(
        f"{base_url[:200]} isn't an address of this control plane, so no browser is sent there.",
        hint=f"If a console is there, set `redirect_url: {base_url.rstrip('/')[:200]}/auth/{name}/callback` of the "
        "provider in the server's configuration.",
    )


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()


def onward(plane: SealedPorts, state: str) -> int | None:
    """The port to which the browser must be forwarded if the provider supports only one address."""
    return _opened(plane, state).local_port


def finish(plane: SignOnPorts, name: str, code: str, state: str, proof: str = "") -> tuple[User, str]:
    """The user and a new token. `proof`: the browser's secret."""
    known = _opened(plane, state)
    if known.provider != name or not known.verifier:
        raise Refused("This sign-on was begun with another provider.", hint=_RESTART)
    if known.browser and not compare_digest(known.browser, hash_token(proof)):
        raise Refused("This sign-on was begun in another browser.", hint="Begin again in this one.")
    provider = _provider(plane, name)
    return _enter(plane, provider, provider.account(code, known.redirect, known.nonce, known.verifier))


def begin_device(plane: SignOnPorts, name: str) -> tuple[DeviceCode, str]:
    """The code to type on another device, and the state with which to poll."""
    code = _provider(plane, name).device()
    until = plane.clock.now() + code.expires_in * SECOND
    return code, _sealed(plane, _State(name, until, device_code=code.device_code))


def finish_device(plane: SignOnPorts, name: str, state: str) -> tuple[User, str] | None:
    """The user and a new token; None while nobody has signed on with the code."""
    known = _opened(plane, state)
    if known.provider != name or not known.device_code:
        raise Refused("This sign-on was begun with another provider.", hint=_RESTART)
    provider = _provider(plane, name)
    account = provider.device_account(known.device_code)
    return None if account is None else _enter(plane, provider, account)


def _provider(plane: SignOnPorts, name: str) -> SignsOn:
    found = plane.sign_on.get(name)
    if found is None:
        known = (
            f"Providers here: {', '.join(plane.sign_on)}."
            if plane.sign_on
            else "Use `dstack project add` with a token."
        )
        raise NotFound(f"Nobody can sign on with {name[:60]!r} here.", hint=known)
    return found


def _sealed(plane: SealedPorts, state: _State) -> str:
    return plane.seal.seal(orjson.dumps(asdict(state)).decode(), context=_SEALED_FOR)


def _opened(plane: SealedPorts, sealed: str) -> _State:
    try:
        known = _State(**orjson.loads(plane.seal.open(sealed, context=_SEALED_FOR)))
    except Refused:
        raise Refused("This sign-on didn't begin here.", hint=_RESTART) from None
    if known.until < plane.clock.now():
        raise Refused("This sign-on has taken too long.", hint=_RESTART)
    return known


# --- who it is --------------------------------------------------------------------------------------------------------


def _enter(plane: AccountPorts, provider: SignsOn, account: Mapping[str, Any]) -> tuple[User, str]:
    rules = provider.rules
    claims = claims_of(account, rules)
    check(claims, rules)
    given = group_rights(claims, rules)
    for _ in range(TRIES):
        try:
            user = _user(plane, provider, claims, GlobalRole.admin if given.admin else GlobalRole.user)
            if not user.active:
                raise Refused(f"The user {user.name} is deactivated.", hint="Ask an admin of this control plane.")
            _give(plane, user, rules.name, given.projects)
            return _signed_on(plane, provider, _promoted(plane, rules.name, user, given.admin))
        except Conflict:
            continue  # the account is signing on twice, or its user is being changed
    raise Contended("The user keeps changing.", hint="Try again.")


def _user(plane: AccountPorts, provider: SignsOn, claims: Claims, role: GlobalRole) -> User:
    """The account's user, who is created with the first sign-on. Raises Conflict if another call is faster."""
    identity = hashlib.sha256(f"{provider.rules.issuer}\n{claims.subject}".encode()).hexdigest()
    target = nouns.find_target(plane.store, keys.identity(identity))
    found = None if target is None else nouns.find(plane.store, User, keys.user(target[0]))
    if found is not None:
        return found
    same = _in_directory(plane, claims.external_id) or _with_email(plane, provider, claims.email)
    if same is not None:
        known = same.with_(identities=(*same.identities, identity))
        plane.store.commit([nouns.put(known), nouns.pointer(keys.identity(identity), same.id)])
        return known.with_(version=same.version + 1)
    created, (_, *beside) = make_user(
        plane.seal,
        plane.random_id(),
        free_name(plane.store, claims.username),
        role,
        token=plane.random_token(),  # never shown
        now=plane.clock.now(),
        email=claims.email or None,
    )
    given = provider.rules.name if role is GlobalRole.admin else ""
    user = created.with_(identities=(identity,), admin_by=given)
    changes = [nouns.put(user), *beside, nouns.pointer(keys.identity(identity), user.id)]
    if admins := rights_revision.admins_after(plane.store, user):
        rights_revision.commit(plane, [*changes, *admins])
    else:
        plane.store.commit(changes)  # in no project yet, so no job's keys change
    return user.with_(version=1)


def _in_directory(plane: RecordPorts, external_id: str) -> User | None:
    """The user whom a directory knows by this id."""
    if not external_id:
        return None
    said = (nouns.read(DirectoryUser, record) for record in every(plane.store, keys.DIRECTORY, "user/"))
    found = [each.user_id for each in said if each.external_id == external_id]
    if len(found) > 1:
        raise Refused("Several users here have the `externalId` of your account.", hint="An admin has to mend that.")
    return nouns.find(plane.store, User, keys.user(found[0])) if found else None


def _with_email(plane: RecordPorts, provider: SignsOn, email: str) -> User | None:
    """The user with this verified address, if it may take them over: as the rules say, and always if a directory made
    or adopted them, because then the address is the directory's word."""
    if not email:
        return None
    found = with_email(plane.store, email)
    if provider.rules.existing_users != "email":
        said = plane.store.get_many([keys.directory_user(user.id) for user in found])
        found = [user for user, record in zip(found, said, strict=True) if record is not None]
    if len(found) > 1:
        raise Refused(f"Several users here have the address {email}.", hint="An admin has to give all but one another.")
    return found[0] if found else None


# --- what they get ----------------------------------------------------------------------------------------------------


def _signed_on(plane: AccountPorts, provider: SignsOn, user: User) -> tuple[User, str]:
    token, now, rules = plane.random_token(), plane.clock.now(), provider.rules
    hashed, ends_at = hash_token(token), now + rules.session * SECOND
    entry = SignOn(user_id=user.id, token_hash=hashed, provider=rules.name, created_at=now, ends_at=ends_at)
    event = audit_event(
        EventType.signed_on,
        now,
        user_target(user),
        project_id=EVERYWHERE,
        seed=hashed,
        actor=user,
        detail=rules.name,
    )
    plane.store.commit([*sign_on(entry), nouns.put(event)])
    return user, token


def _promoted(plane: AccountPorts, provider: str, user: User, admin: bool | None) -> User:
    """The user with the global role that the account's groups give, if any group decides about it. Groups revoke only
    what groups gave."""
    ends = admin is False and user.admin_by == provider
    role = GlobalRole.admin if admin else GlobalRole.user if ends else user.role
    if role is user.role:
        return user
    changed, detail = user.with_(role=role, admin_by=provider if admin else ""), f"{role}, as groups at {provider} say"
    seed, target = f"{user.id}/{user.version}", user_target(user)
    event = audit_event(
        EventType.changed, plane.clock.now(), target, project_id=EVERYWHERE, seed=seed, actor=user, detail=detail
    )
    try:
        admins = rights_revision.admins_after(plane.store, changed)
    except Refused as refused:  # the last admin
        log.warning("%s stays an admin, although groups at %s don't say so: %s", user.name, provider, refused)
        return user
    rights_revision.commit(plane, [nouns.put(changed), nouns.put(event), *admins])
    return changed.with_(version=user.version + 1)


def _give(plane: AccountPorts, user: User, provider: str, wanted: Mapping[str, ProjectRole]) -> None:
    """Set the user's roles in projects to those that the account's groups give now."""
    roles: dict[str, ProjectRole | None] = {}
    for member in memberships(plane.store, user):
        if member.given_by == provider:
            roles[member.project_id] = None
    for name, role in wanted.items():
        target = nouns.find_target(plane.store, keys.project_name(name))
        if target is None:
            log.warning("groups at %s give a role in the project %s, which doesn't exist", provider, name)
        else:
            roles[target[0]] = role
    for project_id, given in roles.items():
        project = nouns.find(plane.store, Project, keys.project(project_id))
        if project is None or project.deleted:
            continue
        try:
            give_role(plane, user, project, given, provider)
        except Refused as refused:  # its last admin
            log.warning(
                "%s keeps the role in %s that groups at %s gave: %s", user.name, project.name, provider, refused
            )
