"""Access tokens over HTTP: what they may do, for how long, and how little is read to find that out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from chalicelib.api.auth import Caller, authorise
from chalicelib.api.route import Access, Route
from chalicelib.api.routes import BUILT, ROUTES
from chalicelib.domain.access_tokens import MOST_TOKENS, Verb
from chalicelib.domain.instants import DAY
from chalicelib.domain.tenants import ProjectRole, hash_token
from chalicelib.errors import Forbidden
from chalicelib.store.cache import Lru
from chalicelib.usecases.runs.jobs import newest_job
from chalicelib.usecases.runs.streams import still_may
from tests.api.rig import ADMIN, Rig, task
from tests.api.test_name_hints import Counting
from tests.api.v1.rest import Client

SUBMIT = {"plan": {"run_spec": task("one"), "current_resource": None}, "force": False}
HOSTS = {"type": "fleet", "name": "hosts", "env": {"KEY": "hush-hush"}, "nodes": 0}
CREATE, LIST, REVOKE = (f"/api/users/access_tokens/{act}" for act in ("create", "list", "revoke"))


def made(rig: Rig, *verbs: str, token: str = ADMIN, name: str = "ci", **more: Any) -> str:
    return str(rig.ok(CREATE, {"name": name, "verbs": verbs or ("read",), **more}, token=token)["token"])


def forbidden(rig: Rig, path: str, body: Any = None, *, token: str) -> str:
    reply = rig.call(path.replace("P/", f"/api/project/{rig.project.name}/", 1), body, token=token)
    assert reply.status == 403, (reply.status, reply.body)
    return reply.body.decode()


# --- their life -------------------------------------------------------------------------------------------------------


def test_a_token_is_shown_once_listed_without_its_text_and_revoked(rig: Rig) -> None:
    answer = rig.ok(CREATE, {"name": "ci", "verbs": ["run"], "projects": ["main"]})
    text = answer.pop("token")
    assert text.startswith("dstack_") and answer["verbs"] == ["read", "run"] and answer["projects"] == ["main"]
    assert rig.ok(LIST) == [answer]
    assert rig.ok("P/runs/get_plan", {"run_spec": task()}, token=text)
    assert rig.ok(REVOKE, {"name": "ci"}) is None and rig.ok(LIST) == []
    assert "was revoked" in forbidden(rig, "P/runs/get_plan", {"run_spec": task()}, token=text)
    assert "no access token 'ci'" in rig.refused(REVOKE, {"name": "ci"})


def test_nothing_that_is_stored_lets_anybody_in(rig: Rig) -> None:
    text = made(rig, "run")
    found = [record for record in rig.world.store.query("main", f"user/{rig.project.owner_id}").records]
    assert found and all(text not in record.body.decode() for record in found)


def test_it_ends_by_itself_and_its_name_is_free_again(rig: Rig) -> None:
    text = made(rig, expires_in=60)
    rig.world.clock.pass_(59)
    assert rig.ok("/api/users/get_my_user", token=text)["username"] == "admin"
    rig.world.clock.pass_(2)
    assert "expired at" in forbidden(rig, "/api/users/get_my_user", token=text) and rig.ok(LIST) == []
    assert rig.ok("/api/users/get_my_user", token=made(rig))


def test_a_new_token_of_the_same_name_doesnt_revive_the_revoked_one(rig: Rig) -> None:
    first = made(rig)
    rig.ok(REVOKE, {"name": "ci"})
    second = made(rig)
    assert rig.ok("/api/users/get_my_user", token=second)
    assert "was revoked" in forbidden(rig, "/api/users/get_my_user", token=first)


def test_it_outlives_a_new_token_of_its_user_and_ends_with_the_user(rig: Rig) -> None:
    ann = rig.ok("/api/users/create", {"username": "ann", "global_role": "user"})["creds"]["token"]
    text = made(rig, token=ann)
    rig.ok("/api/users/refresh_token", {"username": "ann"})
    assert rig.ok("/api/users/get_my_user", token=text)["username"] == "ann"
    rig.ok("/api/users/update", {"username": "ann", "global_role": "user", "active": False})
    assert "deactivated" in forbidden(rig, "/api/users/get_my_user", token=text)
    rig.ok("/api/users/update", {"username": "ann", "global_role": "user", "active": True})
    assert rig.ok("/api/users/get_my_user", token=text)["username"] == "ann", "it was only suspended"
    rig.ok("/api/users/delete", {"users": ["ann"]})
    assert "was revoked" in forbidden(rig, "/api/users/get_my_user", token=text)


def test_admins_see_and_revoke_those_of_others_and_nobody_else_does(rig: Rig) -> None:
    ann, bob = rig.user("ann"), rig.user("bob")
    text = made(rig, token=ann)
    assert [one["name"] for one in rig.ok(LIST, {"username": "ann"})] == ["ci"]
    assert "Only an admin" in forbidden(rig, LIST, {"username": "ann"}, token=bob)
    assert "Only an admin" in forbidden(rig, REVOKE, {"username": "ann", "name": "ci"}, token=bob)
    rig.ok(REVOKE, {"username": "ann", "name": "ci"})
    assert "was revoked" in forbidden(rig, "/api/users/get_my_user", token=text)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"name": "a/b"}, "name: a name has 1 to 60"),
        ({"expires_in": 59}, "expires_in: a token is valid for a minute to a year"),
        ({"expires_in": 366 * DAY // 1_000_000}, "expires_in: a token is valid for a minute to a year"),
        ({"projects": ["other"]}, "projects: there is no project other, or you aren't a member of it"),
        ({"projects": [f"p{number}" for number in range(11)]}, "at most 10 projects"),
        ({"verbs": ["server"]}, "`server` is for global admins"),
        ({"verbs": ["fly"]}, "verbs"),
        ({"verbs": []}, "verbs"),
        ({"dollars_a_day": 5}, "dollars_a_day: dollars a day are what its runs may cost"),
        ({"verbs": ["run"], "dollars_a_day": 0}, "dollars_a_day"),
        ({"verbs": ["run"], "dollars_a_week": 5}, "dollars_a_week"),
    ],
)
def test_what_no_token_can_be_is_refused_with_what_it_can_be(rig: Rig, wanted: dict[str, Any], why: str) -> None:
    ann = rig.user("ann", ProjectRole.admin)
    rig.another_project("other")
    assert why in rig.refused(CREATE, {"name": "ci", "verbs": ["read"], **wanted}, token=ann)
    assert rig.ok(LIST, token=ann) == []


@pytest.mark.slow
def test_a_name_twice_and_too_many_are_refused(rig: Rig) -> None:
    made(rig)
    assert "You have an access token 'ci' already" in rig.refused(CREATE, {"name": "ci", "verbs": ["read"]})
    for number in range(MOST_TOKENS - 1):
        made(rig, name=f"ci-{number}")
    assert "Revoke one first" in rig.refused(CREATE, {"name": "more", "verbs": ["read"]})


# --- what they may do -------------------------------------------------------------------------------------------------


def test_every_route_has_a_verb_unless_its_answer_would_outlive_the_token() -> None:
    without = {f"{route.path}" for route in BUILT if route.verb is None}
    called = {route.path for route in BUILT if route.access not in (Access.public, Access.agent, Access.directory)}
    assert without & called == {
        "/api/users/create",
        "/api/users/update",
        *("/api/v1/users", "/api/v1/users/{user_name}"),  # to create one, and to change one
        "/api/users/refresh_token",
        "/api/users/refresh_ssh_key",
        *(f"/api/users/public_keys/{act}" for act in ("list", "add", "delete")),
        *(f"/api/users/access_tokens/{act}" for act in ("create", "list", "revoke")),
        *(f"/api/scim/tokens/{act}" for act in ("create", "list", "revoke")),
        "/api/project/{project_name}/services/create_token",
    }
    assert not {route.path for route in BUILT if route.verb is not None} - called


class Door:
    """One process, which remembers names, and whose reads are counted."""

    def __init__(self, rig: Rig) -> None:
        self.store, self.name_hints = Counting(rig.world.plane.store), Lru[str](10)
        changes: Any = {"store": self.store, "name_hints": self.name_hints}
        self.plane = replace(rig.world.plane, **changes)

    def admits(self, token: str, route: Route, project: str | None = "main") -> Caller:
        self.store.reads.clear()
        named = project if "{project_name}" in route.path else None
        return authorise(self.plane, route, {"authorization": f"Bearer {token}"}, named)


@pytest.mark.parametrize("verb", list(Verb))
def test_a_global_admins_token_opens_the_routes_of_its_verbs_and_no_others(rig: Rig, verb: Verb) -> None:
    token, door = made(rig, verb), Door(rig)
    for route in ROUTES:
        if route.access in (Access.public, Access.agent, Access.directory):
            continue
        if route.verb in (verb, Verb.read):
            assert door.admits(token, route).token is not None, route.path
            continue
        with pytest.raises(Forbidden, match=r"lacks the verb|No access token may"):
            door.admits(token, route)
        assert door.store.reads == [], "nothing is read"


def test_a_token_for_a_project_opens_only_what_is_about_it_or_narrowed_to_it(rig: Rig) -> None:
    rig.another_project("other")
    token, door = made(rig, "run", "fleets", "project", projects=["main"]), Door(rig)
    for route in ROUTES:
        if route.access in (Access.public, Access.agent, Access.directory) or route.verb in (None, Verb.server):
            continue
        of_project = "{project_name}" in route.path
        if of_project or route.narrowed:
            door.admits(token, route)
        if of_project or not route.narrowed:
            with pytest.raises(Forbidden, match="only for project main"):
                door.admits(token, route, "other")
            assert door.store.reads == [], "nothing is read"


def test_no_token_may_more_than_its_user(rig: Rig) -> None:
    ann = rig.user("ann", ProjectRole.user)
    text = made(rig, "run", "project", token=ann)
    assert rig.ok("P/runs/get_plan", {"run_spec": task()}, token=text)
    assert "your role in this project" in forbidden(rig, "P/backends/list", token=text)
    rig.another_project("other")
    assert "There is no project other" in forbidden(rig, "/api/project/other/runs/get", {"run_name": "x"}, token=text)


def test_lists_show_a_token_only_its_projects(rig: Rig) -> None:
    rig.another_project("other")
    for project in ("main", "other"):
        rig.ok(f"/api/project/{project}/runs/apply", SUBMIT)
    text = made(rig, projects=["main"])
    assert [run["project_name"] for run in rig.ok("/api/runs/list", {}, token=text)] == ["main"]
    assert rig.ok("/api/runs/list", {"project_name": "other"}, token=text) == []
    seen = rig.ok("/api/projects/list", {"include_not_joined": True}, token=text)
    assert [project["project_name"] for project in seen] == ["main"]
    everything = made(rig, name="all")
    assert len(rig.ok("/api/runs/list", {}, token=everything)) == 2
    assert len(rig.ok("/api/projects/list", {"include_not_joined": True}, token=everything)) == 2


def test_resources_are_narrowed_too_and_tell_a_bad_token_from_one_that_is_too_little(rig: Rig) -> None:
    rig.another_project("other")
    for project in ("main", "other"):
        rig.ok(f"/api/project/{project}/runs/apply", SUBMIT)
    api = Client.of(rig, token=made(rig, projects=["main"]))
    assert [run["project"] for run in api.ok("GET", "/api/v1/runs")["items"]] == ["main"]
    assert len(Client.of(rig).ok("GET", "/api/v1/runs")["items"]) == 2
    assert api.refused("POST", f"{api.runs}/one/stop")[0] == 403
    assert replace(api, project="other").refused("GET", "/api/v1/projects/other/runs")[0] == 403
    rig.ok(REVOKE, {"name": "ci"})
    assert api.refused("GET", "/api/v1/runs")[0] == 401


def test_events_and_users_are_narrowed_to_the_projects_of_a_token(rig: Rig) -> None:
    other = rig.another_project("other")
    rig.user("ann", ProjectRole.user)
    rig.user("bob", ProjectRole.user, other)
    for project in ("main", "other"):
        rig.ok(f"/api/project/{project}/runs/apply", SUBMIT)
    text = made(rig, projects=["main"])

    def where(token: str, **wanted: Any) -> set[str | None]:
        found = rig.ok("/api/events/list", wanted, token=token)
        return {event["targets"][0]["project_name"] for event in found}

    assert where(ADMIN) == {"main", "other", None} and where(text) == {"main"}
    run = rig.ok("/api/project/other/runs/get", {"run_name": "one"})
    assert where(ADMIN, within_runs=[run["id"]]) == {"other"}
    for wanted in ({"within_runs": [run["id"]]}, {"target_runs": [run["id"]]}, {"within_projects": [other.id]}):
        assert where(text, **wanted) == set()
    assert {user["username"] for user in rig.ok("/api/users/list", {}, token=text)} == {"admin", "ann"}
    assert {user["username"] for user in rig.ok("/api/users/list", {})} == {"admin", "ann", "bob"}


def test_what_was_done_with_a_token_says_so(rig: Rig) -> None:
    text = made(rig, "run", projects=["main"])
    rig.ok("P/runs/apply", SUBMIT, token=text)
    rig.ok("P/runs/stop", {"runs_names": ["one"], "abort": False})
    said = {event["message"]: event for event in rig.ok("/api/events/list", {"include_target_types": ["run"]})}
    submitted, stopped = said["submitted"], next(said[each] for each in said if "terminating" in each)
    assert (submitted["actor_user"], submitted["actor_token"]) == ("admin", "ci")
    assert (stopped["actor_user"], stopped["actor_token"]) == ("admin", None)
    changes = rig.ok("P/events/changes", {"prev_recorded_at": "2020-01-01T00:00:00Z"}, token=text)
    assert {(one["actor"]["name"], one["actor_token"]) for one in changes if one["message"] == "submitted"} == {
        ("admin", "ci")
    }


def test_values_of_environment_variables_are_for_tokens_that_could_set_them(rig: Rig) -> None:
    secretive = task("one") | {}
    secretive["configuration"] = {**secretive["configuration"], "env": {"KEY": "hush-hush"}}
    rig.ok("P/runs/apply", {"plan": {"run_spec": secretive, "current_resource": None}, "force": False})
    rig.ok("P/fleets/apply", {"plan": {"spec": {"configuration": HOSTS}}, "force": False})
    reads, runs, buys = made(rig), made(rig, "run", name="runs"), made(rig, "fleets", name="buys")
    calls: tuple[tuple[str, Any], ...] = (("P/runs/get", {"run_name": "one"}), ("/api/runs/list", {}))

    def shown(path: str, body: Any, token: str) -> bool:
        return b"hush-hush" in orjson.dumps(rig.ok(path, body, token=token))

    for path, body in calls:
        assert [shown(path, body, token) for token in (ADMIN, reads, runs, buys)] == [True, False, True, False], path
    page = [Client.of(rig, token=token).call("GET", "/api/v1/projects/main/runs/one") for token in (ADMIN, reads)]
    assert [b"hush-hush" in reply.body for reply in page] == [True, False]
    fleet = ("P/fleets/get", {"name": "hosts"})
    assert [shown(*fleet, token) for token in (ADMIN, reads, runs, buys)] == [True, False, False, True]


def test_a_later_project_of_the_same_name_is_another_one(rig: Rig) -> None:
    rig.another_project("lab")
    text = made(rig, projects=["lab"])
    assert rig.ok("/api/projects/lab/get", token=text)
    rig.ok("/api/projects/delete", {"projects_names": ["lab"]})
    rig.another_project("lab")
    assert "earlier project lab" in forbidden(rig, "/api/projects/lab/get", token=text)


def test_no_token_gets_what_outlives_it(rig: Rig) -> None:
    text = made(rig, *Verb)
    mine = rig.ok("/api/users/get_my_user", token=text)
    assert mine["ssh_private_key"] is None and mine["creds"]["token"] == text
    assert rig.ok("/api/users/get_user", {"username": "admin"}, token=text)["ssh_private_key"] is None
    assert rig.ok("/api/users/get_my_user")["ssh_private_key"]
    assert "No access token may" in forbidden(rig, CREATE, {"name": "more", "verbs": ["read"]}, token=text)
    assert "No access token may" in forbidden(rig, "/api/users/refresh_token", {"username": "admin"}, token=text)


def test_a_stream_that_was_opened_with_it_ends_with_it(rig: Rig) -> None:
    plane = rig.world.plane
    rig.ok("P/runs/apply", SUBMIT)
    rig.another_project("other")
    job = newest_job(plane.read, rig.project, "one", 0, 0)

    def may(text: str) -> bool:
        return still_may(plane, rig.project.owner_id, hash_token(text), rig.project, job, "logs")

    text, short = made(rig, "run", projects=["main"]), made(rig, "run", name="short", expires_in=60)
    assert may(text) and may(short) and not may(made(rig, "run", name="other", projects=["other"]))
    rig.world.clock.pass_(60)
    assert may(text) and not may(short)
    rig.ok(REVOKE, {"name": "ci"})
    assert not may(text)


# --- what is read -----------------------------------------------------------------------------------------------------


def test_a_warm_call_reads_as_often_as_with_the_users_own_token(rig: Rig) -> None:
    route = next(route for route in ROUTES if route.path.endswith("/runs/get"))
    text, door = made(rig, "read"), Door(rig)
    first = door.admits(text, route)
    assert len(door.store.reads) == 2
    assert door.admits(text, route) == first
    assert len(door.store.reads) == 1 and len(door.store.reads[0]) == 4, "the token, and the three records as ever"


def test_a_forged_token_is_refused_before_anything_is_read(rig: Rig) -> None:
    route = next(route for route in ROUTES if route.path.endswith("/runs/get"))
    text, door = made(rig, "read"), Door(rig)
    forged = text[:-1] + ("A" if text[-1] != "A" else "B")
    with pytest.raises(Forbidden, match="Invalid token"):
        door.admits(forged, route)
    assert door.store.reads == []


def test_making_and_revoking_one_is_in_the_history(rig: Rig) -> None:
    made(rig, "run", projects=["main"])
    rig.ok(REVOKE, {"name": "ci"})
    said = [event["message"] for event in rig.ok("/api/events/list", {"limit": 20})]
    assert any("access token created: ci (read, run; main; until " in each for each in said), said
    assert any("access token revoked: ci (" in each for each in said), said


def test_runs_are_submitted_with_it_in_its_users_name(rig: Rig) -> None:
    ann = rig.user("ann", ProjectRole.user)
    text = made(rig, "run", token=ann)
    assert rig.ok("P/runs/apply", SUBMIT, token=text)["user"] == "ann"
