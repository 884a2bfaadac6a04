"""Projects and members: who sees, who manages, and that access ends with the membership."""

from __future__ import annotations

import pytest

from chalicelib.domain.tenants import ProjectRole
from tests.api.rig import Rig, fleet, submit, task

KEYS = {"project_id", "project_name", "owner", "created_at", "backends", "members", "is_public", "templates_repo"}


def roles(project: dict) -> dict[str, str]:
    return {member["user"]["username"]: member["project_role"] for member in project["members"]}


def test_a_project_as_clients_read_it(rig: Rig) -> None:
    project = rig.ok("/api/projects/main/get")
    assert project.keys() == KEYS
    assert (project["project_id"], project["owner"]["username"]) == (rig.project.id, "admin")
    assert project["backends"] == [{"name": "vultr", "config": {"type": "vultr", "regions": []}}]
    (member,) = project["members"]
    assert member["permissions"] == {"can_manage_ssh_fleets": True, "can_manage_secrets": True}


def test_an_unknown_project_is_a_404_and_a_foreign_one_a_403(rig: Rig) -> None:
    token = rig.user("ann")
    assert rig.call("/api/projects/nope/get").status == 404
    assert rig.call("/api/projects/main/get", token=token).status == 403


def test_lists_show_what_the_caller_may_see(rig: Rig) -> None:
    token = rig.user("ann")
    rig.ok("/api/projects/create", {"project_name": "open", "is_public": True})
    rig.ok("/api/projects/create", {"project_name": "hers"}, token=token)
    names = {project["project_name"] for project in rig.ok("/api/projects/list", token=token)}
    assert names == {"open", "hers"}
    joined = rig.ok("/api/projects/list", {"include_not_joined": False}, token=token)
    assert [project["project_name"] for project in joined] == ["hers"]
    assert {project["project_name"] for project in rig.ok("/api/projects/list")} == {"main", "open", "hers"}
    counted = rig.ok("/api/projects/list", {"return_total_count": True, "limit": 1})
    assert counted["total_count"] == 3 and len(counted["projects"]) == 1


@pytest.mark.parametrize("name", ["", "with space", "x" * 51, "ü"])
def test_a_bad_name_is_refused(rig: Rig, name: str) -> None:
    assert "1 to 50" in rig.refused("/api/projects/create", {"project_name": name})


def test_a_name_is_taken_once(rig: Rig) -> None:
    assert "already" in rig.refused("/api/projects/create", {"project_name": "main"})


def test_a_user_owns_ten_projects_at_most(rig: Rig) -> None:
    token = rig.user("ann")
    for number in range(10):
        rig.ok("/api/projects/create", {"project_name": f"p{number}"}, token=token)
    assert "own 10" in rig.refused("/api/projects/create", {"project_name": "one-more"}, token=token)


def test_a_project_in_use_is_not_deleted(rig: Rig) -> None:
    rig.ok("P/fleets/apply", {"plan": {"spec": fleet()}, "force": False})
    assert "has fleets" in rig.refused("/api/projects/delete", {"projects_names": ["main"]})
    submit(rig, task())
    assert "active runs" in rig.refused("/api/projects/delete", {"projects_names": ["main"]})
    assert [p["project_name"] for p in rig.ok("/api/projects/list_only_no_fleets")] == []


def test_a_deleted_project_is_gone_and_its_name_free(rig: Rig) -> None:
    first = rig.ok("/api/projects/create", {"project_name": "other"})
    rig.ok("/api/projects/delete", {"projects_names": ["other"]})
    assert rig.call("/api/projects/other/get").status == 404
    assert rig.ok("/api/projects/create", {"project_name": "other"})["project_id"] != first["project_id"]


def test_only_its_admin_deletes_a_project(rig: Rig) -> None:
    token = rig.user("ann", ProjectRole.manager)
    assert rig.call("/api/projects/delete", {"projects_names": ["main"]}, token=token).status == 403


def test_members_come_and_go_and_so_does_their_access(rig: Rig) -> None:
    token = rig.user("ann")
    added = rig.ok("/api/projects/main/add_members", {"members": [{"username": "ann", "project_role": "user"}]})
    assert roles(added) == {"admin": "admin", "ann": "user"}
    assert rig.ok("/api/projects/main/get", token=token)["project_name"] == "main"
    removed = rig.ok("/api/projects/main/remove_members", {"usernames": ["ann"]})
    assert roles(removed) == {"admin": "admin"}
    assert rig.call("/api/projects/main/get", token=token).status == 403


def test_a_manager_manages_users_but_not_admins(rig: Rig) -> None:
    token = rig.user("boss", ProjectRole.manager)
    rig.user("ann")
    add = "/api/projects/main/add_members"
    rig.ok(add, {"members": [{"username": "ann", "project_role": "manager"}]}, token=token)
    assert rig.call(add, {"members": [{"username": "ann", "project_role": "admin"}]}, token=token).status == 403
    assert rig.call(add, {"members": [{"username": "admin", "project_role": "user"}]}, token=token).status == 403
    assert rig.call("/api/projects/main/remove_members", {"usernames": ["admin"]}, token=token).status == 403
    assert rig.call("/api/projects/main/set_members", {"members": []}, token=token).status == 403


def test_a_user_can_leave_but_not_send_others_away(rig: Rig) -> None:
    token = rig.user("ann", ProjectRole.user)
    rig.user("bob", ProjectRole.user)
    assert rig.call("/api/projects/main/remove_members", {"usernames": ["bob"]}, token=token).status == 403
    rig.ok("/api/projects/main/remove_members", {"usernames": ["ann"]}, token=token)
    assert rig.call("/api/projects/main/get", token=token).status == 403


def test_the_last_admin_stays(rig: Rig) -> None:
    assert "no admin" in rig.refused("/api/projects/main/remove_members", {"usernames": ["admin"]})
    assert "no admin" in rig.refused("/api/projects/main/set_members", {"members": []})


def test_members_can_be_set_as_a_whole(rig: Rig) -> None:
    rig.user("ann", ProjectRole.user)
    rig.user("bob")
    wanted = [{"username": "bob", "project_role": "manager"}, {"username": "admin", "project_role": "admin"}]
    after = rig.ok("/api/projects/main/set_members", {"members": wanted})
    assert list(roles(after).items()) == [("bob", "manager"), ("admin", "admin")]
    assert "twice" in rig.refused("/api/projects/main/set_members", {"members": wanted * 2})
    unknown = {"members": [{"username": "nobody", "project_role": "user"}]}
    assert "nobody" in rig.refused("/api/projects/main/add_members", unknown)


def test_anybody_may_look_at_and_join_a_public_project_as_a_user_only(rig: Rig) -> None:
    token = rig.user("ann")
    add = "/api/projects/main/add_members"
    join = {"members": [{"username": "ann", "project_role": "user"}]}
    assert rig.call(add, join, token=token).status == 403
    assert rig.ok("/api/projects/main/update", {"is_public": True})["is_public"] is True
    assert rig.ok("/api/projects/main/get", token=token)["project_name"] == "main"
    assert rig.call(add, {"members": [{"username": "ann", "project_role": "manager"}]}, token=token).status == 403
    assert roles(rig.ok(add, join, token=token))["ann"] == "user"
    rig.ok("/api/projects/main/update", {"is_public": False})


def test_templates_are_refused_by_name(rig: Rig) -> None:
    assert "templates_repo" in rig.refused("/api/projects/main/update", {"templates_repo": "https://example.org/x"})
