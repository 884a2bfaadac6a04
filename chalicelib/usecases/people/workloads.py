"""Signing on as a program: the token of the place where it runs is exchanged, once, for an access token that ends soon.

The program acts in the name of the user of the rule that lets it in, with no more than the rule and that user's rights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from chalicelib.domain import keys
from chalicelib.domain.access_tokens import AccessToken
from chalicelib.domain.events import EVERYWHERE, EventType
from chalicelib.domain.instants import SECOND
from chalicelib.domain.specs.workload_rules import Workload
from chalicelib.domain.tenants import User, hash_token
from chalicelib.domain.workload_identity import LEEWAY, rule_for
from chalicelib.errors import NotFound, Refused
from chalicelib.store import nouns
from chalicelib.store.port import Change, Put, Record
from chalicelib.usecases.audit_events import audit_event, user_target
from chalicelib.usecases.context import VerifiesWorkloads
from chalicelib.usecases.people.access_tokens import TokenPorts, TokenRequest, make, named
from chalicelib.usecases.people.users import named_user

_SHOWN = 200  # characters of a subject in the history


class WorkloadPorts(TokenPorts, Protocol):
    """The ports for signing on as a program."""

    @property
    def workloads(self) -> VerifiesWorkloads: ...


def exchange(plane: WorkloadPorts, id_token: str) -> tuple[User, AccessToken, str]:
    """The user in whose name the program acts, the new access token, and its text. Raises Refused for an ID token that
    no rule accepts, or that was used."""
    rules, claims = plane.workloads.verified(id_token)
    rule = rule_for(rules, claims, plane.clock.now() / SECOND)
    user = _user(plane, rule)
    once = keys.workload_token(hash_token(id_token.rpartition(".")[0]))  # a signature may have other forms
    if plane.store.get(once) is not None:
        raise Refused("This ID token was used already.", hint="Ask the issuer for a new one for each sign-on.")
    name = f"{rule.name}/{plane.random_id()}"
    shared = f"workload/{rule.name}"
    wanted = TokenRequest(name, rule.verbs, rule.projects, rule.lifetime, rule.dollars_a_day, counts_as=shared)
    entry, text = make(plane, user, wanted)
    pointer = nouns.pointer(once, entry.id).record
    ends = int(claims["exp"]) + LEEWAY + 1
    used = Put(Record(pointer.key, pointer.version, pointer.body, expires_at=ends), expect=0)
    plane.store.commit([nouns.put(entry), named(entry), used, _event(plane, user, rule, entry, claims)])
    return user, entry, text


def _user(plane: WorkloadPorts, rule: Workload) -> User:
    try:
        user = named_user(plane.store, rule.user)
    except NotFound:
        raise Refused(
            f"The rule {rule.name} is for the user {rule.user}, who doesn't exist.",
            hint=f"An admin can create one: dstack user create {rule.user}",
        ) from None
    if not user.active:
        raise Refused(f"The user {user.name} is deactivated.", hint="Ask an admin of this control plane.")
    return user


def _event(plane: WorkloadPorts, user: User, rule: Workload, entry: AccessToken, claims: Mapping[str, Any]) -> Change:
    detail = f"the rule {rule.name}, as {str(claims.get('sub'))[:_SHOWN]}; access token {entry.name}"
    at, target = plane.clock.now(), user_target(user)
    event = audit_event(
        EventType.signed_on, at, target, project_id=EVERYWHERE, seed=entry.id, actor=user, detail=detail
    )
    return nouns.put(event)
