"""Signing on with an account at an OpenID Connect provider: who it is, whether they may, and which rights they get.

The provider only identifies the account. Everything else is decided here from its claims and the installation's rules,
anew at every sign-on: a user who has left a group loses the rights that it gave, but none that an admin here gave.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from chalicelib.domain import keys
from chalicelib.domain.directory import name_from
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.noun import Noun
from chalicelib.domain.specs.sign_on import SignOnProvider
from chalicelib.domain.tenants import ProjectRole
from chalicelib.errors import Refused

_SHOWN_MOST = 300  # characters
_RANKS = (ProjectRole.user, ProjectRole.manager, ProjectRole.admin)


class SignOn(Noun):
    """A token from a sign-on. Until it expires, it is as good as the user's own."""

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
    """A provider's claims about an account."""

    subject: str
    username: str
    email: str = ""  # only if the provider has verified it
    groups: tuple[str, ...] = ()
    unverified: str = ""  # the e-mail address if the provider hasn't verified it
    sent: tuple[str, ...] = ()  # the names of all claims
    external_id: str = ""  # by which a directory knows the account


@dataclass(frozen=True)
class GroupRights:
    """The rights that an account gets from its groups."""

    admin: bool | None  # None: no group decides about that
    projects: Mapping[str, ProjectRole]


def together(token: Mapping[str, Any], info: Mapping[str, Any]) -> Mapping[str, Any]:
    """The claims of an ID token merged with those of the user info, which win. `email_verified` counts only for the
    address beside which it was sent."""
    both = {**token, **info}
    if "email" in info and info["email"] != token.get("email"):
        both["email_verified"] = info.get("email_verified")
    return both


def claims_of(token: Mapping[str, Any], rules: SignOnProvider) -> Claims:
    """The claims of an account. Raises Refused if they don't have the expected form."""
    written_groups = token.get(rules.groups_claim) or ()
    if not isinstance(written_groups, str | list | tuple):
        raise Refused(
            f"The provider {rules.name} doesn't list your groups: `{rules.groups_claim}` is {_shown(written_groups)}.",
            hint="An admin of this control plane can set another `groups_claim`.",
        )
    groups = (written_groups,) if isinstance(written_groups, str) else tuple(map(str, written_groups))
    email = token.get("email") if token.get("email_verified") in (True, "true") else ""
    written = token.get(rules.username_claim) or str(token.get("email") or "").partition("@")[0]
    name = name_from(str(written))
    if not name:
        claim = rules.username_claim
        lacks = f"`{claim}` is {_shown(token[claim])}" if token.get(claim) else f"there is no `{claim}`"
        raise Refused(
            f"The provider {rules.name} doesn't say what your user is called: {lacks}. It sent {listed(token)}.",
            hint="An admin of this control plane can set another `username_claim`.",
        )
    unverified = "" if email else str(token.get("email") or "")
    known = str(token.get(rules.external_id_claim) or "") if rules.external_id_claim else ""
    return Claims(str(token["sub"]), name, str(email or ""), groups, unverified, tuple(token), known)


def check(claims: Claims, rules: SignOnProvider) -> None:
    """Raises Refused if the account may not sign on."""
    domain = claims.email.rpartition("@")[2].lower()
    allowed = [each.lower().removeprefix("@") for each in rules.email_domains]
    if allowed and not domain:
        raise Refused(
            f"The provider {rules.name} doesn't say that your e-mail address{_named(claims.unverified)} is verified. "
            f"It sent {listed(claims.sent)}.",
            hint=f"Only verified addresses of {', '.join(allowed)} may sign on.",
        )
    if allowed and domain not in allowed:
        raise Refused(f"Accounts of {domain} may not sign on here.", hint=f"Use an account of {' or '.join(allowed)}.")
    if rules.only_groups and not {group.name for group in rules.groups}.intersection(claims.groups):
        known = ", ".join(group.name for group in rules.groups)
        has = f"the groups {_shown(claims.groups)}" if claims.groups else f"no `{rules.groups_claim}`"
        others = "" if claims.groups else f", but {listed(claims.sent)}"
        raise Refused(
            f"Your account at {rules.name} is in none of the groups that may sign on: it sent {has}{others}.",
            hint=f"Ask for one of them: {known}. An admin can also check `groups_claim` and `scopes`.",
        )


def _named(address: str) -> str:
    return f" {address[:200]}" if address else ""


def _shown(value: Any) -> str:
    """A claim's value for a message to admins, shortened."""
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else f"`{value}`"
    return text if len(text) <= _SHOWN_MOST else f"{text[:_SHOWN_MOST]}…"


def listed(claims: Iterable[str]) -> str:
    """The names of claims for a message; most values are private."""
    names = sorted(claims)
    return ", ".join(f"`{name[:60]}`" for name in names[:20]) or "no claims"


def group_rights(claims: Claims, rules: SignOnProvider) -> GroupRights:
    """The rights from an account's groups. If several groups give a role in a project, the strongest wins."""
    own = [group for group in rules.groups if group.name in claims.groups]
    projects: dict[str, ProjectRole] = {}
    for group in own:
        for project in group.projects:
            known = projects.get(project.name, project.role)
            projects[project.name] = max(known, project.role, key=_RANKS.index)
    decides = any(group.admin for group in rules.groups)
    return GroupRights(any(group.admin for group in own) if decides else None, projects)
