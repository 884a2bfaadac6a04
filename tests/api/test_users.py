"""Users: their token, their key pair, and who may see or change whom."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain.tenants import ProjectRole
from tests.api.rig import ADMIN, Rig

KEYS = {"id", "username", "created_at", "global_role", "email", "active", "permissions", "ssh_public_key"}


def made(rig: Rig, name: str, **fields: Any) -> str:
    answer = rig.ok("/api/users/create", {"username": name, "global_role": "user", **fields})
    return str(answer["creds"]["token"])


def test_my_user_has_my_token_and_both_halves_of_the_key(rig: Rig) -> None:
    me = rig.ok("/api/users/get_my_user")
    assert me.keys() == KEYS | {"creds", "ssh_private_key"}
    assert (me["username"], me["global_role"], me["creds"]) == ("admin", "admin", {"token": ADMIN})
    assert me["ssh_public_key"].endswith("\n") and "OPENSSH PRIVATE KEY" in me["ssh_private_key"]


def test_a_new_user_can_log_in_and_sees_only_itself(rig: Rig) -> None:
    token = made(rig, "ann", email="ann@example.org")
    me = rig.ok("/api/users/get_my_user", token=token)
    assert (me["username"], me["email"], me["global_role"]) == ("ann", "ann@example.org", "user")
    assert [user["username"] for user in rig.ok("/api/users/list", token=token)] == ["ann"]
    assert {user["username"] for user in rig.ok("/api/users/list")} == {"admin", "ann"}
    assert rig.call("/api/users/get_user", {"username": "admin"}, token=token).status == 403


def test_users_who_share_a_project_see_each_other(rig: Rig) -> None:
    token = rig.user("ann", ProjectRole.user)
    rig.user("bob", ProjectRole.user)
    rig.user("far")
    assert {user["username"] for user in rig.ok("/api/users/list", token=token)} >= {"ann", "bob"}
    assert "far" not in {user["username"] for user in rig.ok("/api/users/list", token=token)}


def test_the_list_pages_filters_and_counts(rig: Rig) -> None:
    for name in ("ann", "bob", "cid"):
        rig.world.clock.pass_(1)
        made(rig, name)
    newest = rig.ok("/api/users/list", {"limit": 2})
    assert [user["username"] for user in newest] == ["cid", "bob"]
    after = {"prev_created_at": newest[-1]["created_at"], "prev_id": newest[-1]["id"]}
    assert [user["username"] for user in rig.ok("/api/users/list", after)] == ["ann", "admin"]
    oldest = rig.ok("/api/users/list", {**after, "ascending": True})
    assert [user["username"] for user in oldest] == ["cid"]
    counted = rig.ok("/api/users/list", {"name_pattern": "b", "return_total_count": True})
    assert counted["total_count"] == 1 and [user["username"] for user in counted["users"]] == ["bob"]


def test_an_admin_sees_another_user_without_its_credentials(rig: Rig) -> None:
    made(rig, "ann")
    seen = rig.ok("/api/users/get_user", {"username": "ann"})
    assert (seen["creds"], seen["ssh_private_key"]) == ({"token": ""}, None)


@pytest.mark.parametrize("path", ["create", "update", "delete"])
def test_only_admins_manage_users(rig: Rig, path: str) -> None:
    body = {"username": "x", "global_role": "admin", "users": ["admin"]}
    assert rig.call(f"/api/users/{path}", body, token=made(rig, "ann")).status == 403


def test_a_name_that_is_taken_or_no_name_is_refused(rig: Rig) -> None:
    assert "already" in rig.refused("/api/users/create", {"username": "admin", "global_role": "user"})
    assert "letters" in rig.refused("/api/users/create", {"username": "a b", "global_role": "user"})
    assert "`admin`, `user`" in rig.refused("/api/users/create", {"username": "x", "global_role": "root"})


def test_a_new_token_ends_the_old_one_at_once(rig: Rig) -> None:
    old = made(rig, "ann")
    new = rig.ok("/api/users/refresh_token", {"username": "ann"}, token=old)["creds"]["token"]
    assert rig.call("/api/users/get_my_user", token=old).status == 403
    assert rig.ok("/api/users/get_my_user", token=new)["username"] == "ann"
    assert rig.call("/api/users/refresh_token", {"username": "admin"}, token=new).status == 403


def test_a_new_key_pair_replaces_both_halves(rig: Rig) -> None:
    token = made(rig, "ann")
    before = rig.ok("/api/users/get_my_user", token=token)
    after = rig.ok("/api/users/refresh_ssh_key", {"username": "ann"}, token=token)
    assert all(after[half] != before[half] for half in ("ssh_public_key", "ssh_private_key"))
    assert after == rig.ok("/api/users/get_my_user", token=token)


def test_a_deactivated_user_is_out_at_once(rig: Rig) -> None:
    token = made(rig, "ann")
    rig.ok("/api/users/update", {"username": "ann", "global_role": "user", "active": False})
    assert rig.call("/api/users/get_my_user", token=token).status == 403


def test_what_an_admin_makes_of_a_user_is_said(rig: Rig) -> None:
    made(rig, "ann")
    for role, active in (("admin", True), ("user", False), ("user", False)):
        rig.world.clock.pass_(1)
        rig.ok("/api/users/update", {"username": "ann", "global_role": role, "active": active})
    events = rig.ok("/api/events/list", {"include_target_types": ["user"], "ascending": True})
    messages = [event["message"] for event in events if event["targets"][0]["name"] == "ann"]
    assert messages[1:] == ["changed: admin, active", "changed: user, deactivated"]


def test_an_admin_can_not_lock_itself_out(rig: Rig) -> None:
    for less in ({"global_role": "user"}, {"global_role": "admin", "active": False}):
        assert "own rights" in rig.refused("/api/users/update", {"username": "admin", **less})
    rig.ok("/api/users/update", {"username": "admin", "global_role": "admin", "email": "a@example.com"})
    assert "themselves" in rig.refused("/api/users/delete", {"users": ["admin"]})


def test_a_deleted_user_is_gone_with_its_token_and_memberships(rig: Rig) -> None:
    token = rig.user("ann", ProjectRole.user)
    rig.ok("/api/users/delete", {"users": ["ann"]})
    assert rig.call("/api/users/get_my_user", token=token).status == 403
    assert [user["username"] for user in rig.ok("/api/users/list")] == ["admin"]
    members = rig.ok("/api/projects/main/get")["members"]
    assert [member["user"]["username"] for member in members] == ["admin"]
    assert made(rig, "ann") != token


def test_who_owns_a_project_is_not_deleted_and_neither_is_anybody_with_it(rig: Rig) -> None:
    token = made(rig, "ann")
    made(rig, "bob")
    rig.ok("/api/projects/create", {"project_name": "hers"}, token=token)
    assert "owns the project hers" in rig.refused("/api/users/delete", {"users": ["bob", "ann"]})
    assert {user["username"] for user in rig.ok("/api/users/list")} == {"admin", "ann", "bob"}


def test_what_happens_to_users_is_history_for_admins_and_for_themselves(rig: Rig) -> None:
    ann, bob = made(rig, "ann"), made(rig, "bob")
    anns_events = rig.ok("/api/events/list", {}, token=ann)
    assert [event["targets"][0]["name"] for event in anns_events] == ["ann"]
    assert rig.ok("/api/events/list", {}, token=bob)[0]["targets"][0]["name"] == "bob"
    both = rig.ok("/api/events/list", {"include_target_types": ["user"]})
    assert {event["targets"][0]["name"] for event in both} == {"admin", "ann", "bob"}
    assert all(token not in repr(both) for token in (ann, bob, ADMIN))
