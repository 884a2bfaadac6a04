"""Signing on with an account elsewhere: who that is, whether they may, and what they become here.

The provider only says who somebody is. Everything else is decided here, from its claims and the installation's rules,
anew with every sign-on: whoever has left a group loses what it gave, and nothing that a person here gave them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from chalicelib.domain import keys
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.noun import Noun
from chalicelib.domain.specs.sign_on import SignOnProvider
from chalicelib.domain.tenants import ProjectRole
from chalicelib.errors import Refused

_NAME_MOST = 56  # characters, so that a number fits behind it
_RANKS = (ProjectRole.user, ProjectRole.manager, ProjectRole.admin)


class SignOn(Noun):
    """A token that somebody got by signing on. It is the user's like their own, until it expires."""

    kind: ClassVar[str] = "sign-on"

    user_id: str
    token_hash: str
    provider: str
    created_at: Micros
    ends_at: Micros

    def place(self) -> keys.Place:
        listed = (keys.sign_ons_of(self.user_id), self.token_hash)
        return keys.Place(keys.sign_on(self.token_hash), listed, expires_at=self.ends_at // SECOND)


@dataclass(frozen=True)
class Claims:
    """What a provider says about an account."""

    subject: str
    username: str
    email: str = ""  # only if the provider has verified it
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class GroupRights:
    """What an account's groups make of its user."""

    admin: bool | None  # None: no group decides about that
    projects: Mapping[str, ProjectRole]


def together(token: Mapping[str, Any], info: Mapping[str, Any]) -> Mapping[str, Any]:
    """The claims of an ID token with those of the user info, which win. What the one says of an address that it has
    verified isn't true of another address in the other."""
    both = {**token, **info}
    if "email" in info and info["email"] != token.get("email"):
        both["email_verified"] = info.get("email_verified")
    return both


def claims_of(token: Mapping[str, Any], rules: SignOnProvider) -> Claims:
    """Raises Refused for an account whose claims aren't what they must be."""
    listed = token.get(rules.groups_claim) or ()
    if not isinstance(listed, str | list | tuple):
        raise Refused(
            f"The provider {rules.name} doesn't list your groups: `{rules.groups_claim}` is something else.",
            hint="An admin of this control plane can set another `groups_claim`.",
        )
    groups = (listed,) if isinstance(listed, str) else tuple(str(each) for each in listed)
    email = token.get("email") if token.get("email_verified") in (True, "true") else ""
    written = token.get(rules.username_claim) or str(token.get("email") or "").partition("@")[0]
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", str(written).partition("@")[0]).strip("-")[:_NAME_MOST]
    if not name:
        raise Refused(
            f"The provider {rules.name} doesn't say what your user is called: there is no `{rules.username_claim}`.",
            hint="An admin of this control plane can set another `username_claim`.",
        )
    return Claims(str(token["sub"]), name, str(email or ""), groups)


def check(claims: Claims, rules: SignOnProvider) -> None:
    """Raises Refused for an account that may not sign on."""
    domain = claims.email.rpartition("@")[2].lower()
    allowed = [each.lower().removeprefix("@") for each in rules.email_domains]
    if allowed and not domain:
        raise Refused(
            f"The provider {rules.name} doesn't say that your e-mail address is verified.",
            hint=f"Only verified addresses of {', '.join(allowed)} may sign on.",
        )
    if allowed and domain not in allowed:
        raise Refused(f"Accounts of {domain} may not sign on here.", hint=f"Use an account of {' or '.join(allowed)}.")
    if rules.only_groups and not {group.name for group in rules.groups}.intersection(claims.groups):
        listed = ", ".join(group.name for group in rules.groups)
        raise Refused(
            f"Your account at {rules.name} is in none of the groups that may sign on.",
            hint=f"Ask for one of them: {listed}. An admin can also check `groups_claim` and `scopes`.",
        )


def given_by(claims: Claims, rules: SignOnProvider) -> GroupRights:
    """The strongest role wins where several groups give one."""
    own = [group for group in rules.groups if group.name in claims.groups]
    projects: dict[str, ProjectRole] = {}
    for group in own:
        for project in group.projects:
            known = projects.get(project.name, project.role)
            projects[project.name] = max(known, project.role, key=_RANKS.index)
    decides = any(group.admin for group in rules.groups)
    return GroupRights(any(group.admin for group in own) if decides else None, projects)
