"""The targets of names are cached as hints and verified with each call: a warm function authorises with one read, and
revoked rights end with the next call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.api.auth import Caller, authorise
from chalicelib.api.route import Access, Route
from chalicelib.domain.keys import Key
from chalicelib.domain.tenants import ProjectRole
from chalicelib.errors import Forbidden
from chalicelib.store.cache import Lru
from chalicelib.store.port import Record, Store
from tests.api.rig import Rig


class Counting:
    """The reads of a store by key, as the keys of each."""

    def __init__(self, store: Store) -> None:
        self.store, self.reads = store, list[Sequence[Key]]()

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        self.reads.append(keys)
        return self.store.get_many(keys)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class Door:
    """One process, which remembers."""

    def __init__(self, rig: Rig) -> None:
        self.plane, self.store, self.name_hints = rig.world.plane, Counting(rig.world.plane.store), Lru[str](10)

    def admits(self, token: str, project: str | None = "main", access: Access = Access.member) -> Caller:
        plane: Any = replace(self.plane, store=self.store, name_hints=self.name_hints)
        route = Route("POST", "/api/x", access, lambda call: None)
        return authorise(plane, route, {"authorization": f"Bearer {token}"}, project)


def test_whoever_called_before_is_known_with_one_read(rig: Rig) -> None:
    token, door = rig.user("ann", ProjectRole.user), Door(rig)
    first = door.admits(token)
    assert len(door.store.reads) == 2
    assert door.admits(token) == first
    assert len(door.store.reads) == 3 and len(door.store.reads[2]) == 3, "the user, the project and the membership"


def test_a_token_that_was_replaced_is_refused_by_who_remembers_it(rig: Rig) -> None:
    made = rig.ok("/api/users/create", {"username": "ann", "global_role": "admin"})
    token, door = made["creds"]["token"], Door(rig)
    door.admits(token)
    new = rig.ok("/api/users/refresh_token", {"username": "ann"}, token=token)["creds"]["token"]
    with pytest.raises(Forbidden, match="Invalid token"):
        door.admits(token)
    user = door.admits(new).user
    assert user is not None and user.name == "ann"


def test_a_member_who_was_removed_and_a_user_who_was_deleted_are_refused(rig: Rig) -> None:
    token, door = rig.user("ann", ProjectRole.user), Door(rig)
    door.admits(token)
    rig.ok("/api/projects/main/remove_members", {"usernames": ["ann"]})
    with pytest.raises(Forbidden, match="aren't a member"):
        door.admits(token)
    assert door.admits(token, None, Access.user).user is not None
    rig.ok("/api/users/delete", {"users": ["ann"]})
    with pytest.raises(Forbidden, match="Invalid token"):
        door.admits(token, None, Access.user)


def test_a_name_that_another_project_has_by_now_means_that_one(rig: Rig) -> None:
    token, door = rig.user("ann"), Door(rig)
    found = []
    for _ in range(2):
        found.append(rig.ok("/api/projects/create", {"project_name": "lab"}, token=token)["project_id"])
        for _ in range(2):
            caller = door.admits(token, "lab")
            assert caller.project is not None and caller.project.id == found[-1]
        rig.ok("/api/projects/delete", {"projects_names": ["lab"]}, token=token)
        with pytest.raises(Forbidden, match="There is no project lab"):
            door.admits(token, "lab")
    assert found[0] != found[1]
