"""Projects and members: who sees, who manages, and that access ends with the membership."""

from __future__ import annotations

import re

import pytest

from chalicelib.api.route import Route
from chalicelib.api.routes import ROUTES
from chalicelib.domain import keys
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import SECOND
from chalicelib.domain.tenants import ProjectRole
from chalicelib.errors import NotFound
from chalicelib.store import nouns
from chalicelib.store.port import Delete
from chalicelib.usecases.people.projects import set_public, view, visible
from chalicelib.usecases.people.users import named_user
from tests.api.rig import Rig, fleet, submit, task
from tests.harness.rows import each

KEYS = {"project_id", "project_name", "owner", "created_at", "backends", "members", "is_public", "templates_repo"}


def roles(project: dict) -> dict[str, str]:
    return {member["user"]["username"]: member["project_role"] for member in project["members"]}


def test_a_project_as_clients_read_it(rig: Rig) -> None:
    project = rig.ok("/api/projects/main/get")
    assert project.keys() == KEYS | {"quota"}  # which is ours
    assert (project["project_id"], project["owner"]["username"]) == (rig.project.id, "admin")
    assert project["backends"] == [{"name": "vultr", "config": {"type": "vultr", "regions": []}}]
    (member,) = project["members"]
    assert member["permissions"] == {"can_manage_ssh_fleets": True, "can_manage_secrets": True}


def test_an_unknown_project_is_a_404_for_those_who_see_all(rig: Rig) -> None:
    assert rig.call("/api/projects/nope/get").status == 404


WITHIN = [route for route in ROUTES if "{project_name}" in route.path]


@each("route", WITHIN, ids=lambda route: f"{route.method} {route.path}")
@pytest.mark.slow
def test_a_project_of_others_is_answered_as_one_that_doesnt_exist(both: tuple[Rig, str], route: Route) -> None:
    """Or anybody with a token could try out names."""
    rig, token = both

    def answer(name: str) -> tuple[int, bytes]:
        path = re.sub(r"{\w+}", "x", route.path.replace("{project_name}", name))
        reply = rig.call(path, {}, token=token, method=route.method)
        return reply.status, reply.body.replace(name.encode(), b"NAME")

    assert answer("main") == answer("nope") and answer("main")[0] == 403


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Rig, str]:
    """A plane with a project `main`, and the token of somebody who isn't in it."""
    rig = Rig.at(tmp_path_factory.mktemp("both"))
    return rig, rig.user("ann")


def test_deleting_tells_nothing_about_the_projects_of_others(both: tuple[Rig, str]) -> None:
    rig, token = both
    own, nobodys = (
        rig.refused("/api/projects/delete", {"projects_names": [name]}, token=token) for name in ("main", "nope")
    )
    assert own.replace("main", "nope") == nobodys


@pytest.mark.parametrize("role", [None, ProjectRole.user])
@pytest.mark.parametrize("name", ["bob", "nobody-of-that-name"])
def test_who_may_not_change_members_doesnt_learn_who_is_a_user(rig: Rig, role: ProjectRole | None, name: str) -> None:
    token = rig.user("ann", role)
    rig.user("bob")
    rig.ok("/api/projects/main/update", {"is_public": True})
    add = {"members": [{"username": name, "project_role": "user"}]}
    assert rig.call("/api/projects/main/add_members", add, token=token).status == 403
    assert rig.call("/api/projects/main/remove_members", {"usernames": [name]}, token=token).status == 403


def test_what_is_asked_for_by_id_is_looked_for_in_the_project_that_was_named(rig: Rig) -> None:
    """A run and a fleet of another project are answered as ids that nothing has."""
    token = rig.user("ann")
    rig.ok("/api/projects/create", {"project_name": "hers"}, token=token)
    run = submit(rig, task())
    rig.ok("P/fleets/apply", {"plan": {"spec": fleet()}, "force": False})
    made = rig.ok("P/fleets/get", {"name": "pool"})
    job = run["jobs"][0]["job_submissions"][0]["id"]
    nothing = derive("test", "nothing")
    calls: list[tuple[str, dict[str, str], str]] = [
        ("runs/get", {"id": run["id"]}, run["id"]),
        ("fleets/get", {"id": made["id"]}, made["id"]),
        ("logs/poll", {"run_name": "hello", "job_submission_id": job}, job),
    ]
    for path, body, found in calls:
        foreign = rig.refused(f"/api/project/hers/{path}", body, token=token)
        unknown = {name: nothing if value == found else value for name, value in body.items()}
        assert foreign.replace(found, nothing) == rig.refused(f"/api/project/hers/{path}", unknown, token=token)


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


def test_a_list_is_as_long_as_its_projects_are_many(rig: Rig) -> None:
    """Clients of this line ask for the members and backends of one project: a thousand members wouldn't fit."""
    (listed,) = rig.ok("/api/projects/list")
    one = rig.ok("/api/projects/main/get")
    assert one.pop("quota") and one["members"] and one["backends"]
    assert rig.ok("/api/projects/list_only_no_fleets") == [listed] == [{**one, "members": [], "backends": []}]


def test_whoever_isnt_in_it_sees_a_project_while_it_is_public(rig: Rig) -> None:
    token = rig.user("ann")
    seen = lambda: [project["project_name"] for project in rig.ok("/api/projects/list", token=token)]  # noqa: E731
    for public in (False, True, True, False, True):
        rig.ok("/api/projects/main/update", {"is_public": public})
        assert seen() == ["main"] * public
    name = rig.record(keys.project_name("main"))
    rig.world.store.commit([nouns.pointer(name.key, rig.project.id, version=name.version)])
    assert seen() == ["main"], "a name that was written before names said it"
    rig.ok("/api/projects/main/update", {"is_public": False})
    assert seen() == []


def test_without_fleets_are_only_projects_that_one_is_in(rig: Rig) -> None:
    rig.ok("/api/projects/create", {"project_name": "open", "is_public": True}, token=rig.user("ann"))
    assert [p["project_name"] for p in rig.ok("/api/projects/list_only_no_fleets")] == ["main"]


def test_an_owner_who_is_gone_isnt_active(rig: Rig) -> None:
    rig.world.store.commit([Delete(keys.user(rig.project.owner_id))])
    owner = view(rig.world.store, rig.project).owner
    assert (owner.name, owner.active) == ("(deleted)", False)


def test_the_newest_project_is_listed_first(rig: Rig) -> None:
    for name in ("one", "two"):
        rig.world.clock.at += SECOND
        rig.ok("/api/projects/create", {"project_name": name})
    assert [project["project_name"] for project in rig.ok("/api/projects/list")] == ["two", "one", "main"]
    admin = named_user(rig.world.store, "admin")
    assert [each.name for each in visible(rig.world.store, admin, not_joined=True)] == ["two", "one", "main"]


@pytest.mark.parametrize("name", ["", "with space", "x" * 51, "ü"])
def test_a_bad_name_is_refused(rig: Rig, name: str) -> None:
    message = "project_name: a name has 1 to 50 letters, digits, - and _"
    assert rig.refused("/api/projects/create", {"project_name": name}) == message


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


def test_who_is_no_member_cannot_be_removed(rig: Rig) -> None:
    rig.user("ann")
    body = {"usernames": ["admin", "ann"]}
    assert "ann is not a member of the project main" in rig.refused("/api/projects/main/remove_members", body)
    assert roles(rig.ok("/api/projects/main/get")) == {"admin": "admin"}


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


def test_a_project_that_was_just_deleted_becomes_no_public_one(rig: Rig) -> None:
    admin = named_user(rig.world.store, "admin")
    rig.ok("/api/projects/delete", {"projects_names": ["main"]})
    with pytest.raises(NotFound, match="There is no project 'main'"):
        set_public(rig.world.plane, admin, rig.project, is_public=True)


def test_templates_are_refused_by_name(rig: Rig) -> None:
    assert "templates_repo" in rig.refused("/api/projects/main/update", {"templates_repo": "https://example.org/x"})
