"""What a company's directory says by SCIM about its people and groups, and the tokens with which it calls.

A directory's call is no user's: it may whatever SCIM can do, and nothing else. What it says is kept beside users, so
that a user is the same whether a person, a sign-on or a directory made it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from chalicelib.domain import keys
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun, Value
from chalicelib.domain.tenants import ProjectRole

if TYPE_CHECKING:
    from chalicelib.domain.specs.sign_on import SignOnGroup

DIRECTORY_TOKEN = "dstack-scim_"  # noqa: S105 - begins the text of one, for scanners of secrets
TOKEN_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
MOST_TOKENS = 20
MOST_MEMBERS = 5_000  # of a group: their ids are in its record
GIVEN_BY = "(scim)"  # of a role: no provider of accounts can have this name
CALLER = "(scim)"  # as a directory is named in the history: no user can have this name
_NAME_MOST = 56  # characters, so that a number fits behind it
_RANKS = (ProjectRole.user, ProjectRole.manager, ProjectRole.admin)


class DirectoryToken(Noun):
    """A token that is good for `/scim` alone. It doesn't expire: a directory can't renew it."""

    kind: ClassVar[str] = "scim-token"

    id: str
    name: str
    token_hash: str
    created_at: Micros
    created_by: str  # the name of the admin

    def place(self) -> keys.Place:
        return keys.Place(keys.directory_token(self.token_hash))


class Person(Value):
    """What a directory says about somebody. Only the address and whether they are active mean something here."""

    user_name: str  # as the directory writes it: often an e-mail address
    external_id: str = ""
    given_name: str = ""
    family_name: str = ""
    display_name: str = ""
    email: str = ""
    active: bool = True


class DirectoryUser(Noun):
    """The part of it that isn't the user's own."""

    user_id: str
    user_name: str
    external_id: str = ""
    given_name: str = ""
    family_name: str = ""
    display_name: str = ""

    def place(self) -> keys.Place:
        return keys.Place(keys.directory_user(self.user_id))


class DirectoryGroup(Noun):
    id: str
    name: str
    external_id: str = ""
    members: tuple[str, ...] = ()  # ids of users
    created_at: Micros

    def place(self) -> keys.Place:
        return keys.Place(keys.directory_group(self.id))


def name_from(written: str) -> str:
    """The name of a user from what a directory or a provider calls them; empty if nothing of it can be one."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", written.partition("@")[0]).strip("-")[:_NAME_MOST]


def roles_given(
    groups: Iterable[DirectoryGroup], rules: Collection[SignOnGroup], project: str
) -> Mapping[str, ProjectRole]:
    """The roles in a project by the user's id: the strongest that one of their groups gives."""
    found: dict[str, ProjectRole] = {}
    given = [(rule.name, each.role) for rule in rules for each in rule.projects if each.name == project]
    for group in groups:
        for role in (role for name, role in given if name == group.name):
            for user_id in group.members:
                found[user_id] = max(found.get(user_id, role), role, key=_RANKS.index)
    return found


def admins_given(groups: Iterable[DirectoryGroup], rules: Collection[SignOnGroup]) -> frozenset[str]:
    """The ids of those whom one of their groups makes a global admin."""
    names = {rule.name for rule in rules if rule.admin}
    return frozenset(user_id for group in groups if group.name in names for user_id in group.members)
