"""Runs under `/api/v1`."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from chalicelib.domain import keys
from chalicelib.domain.ids import derive
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.domain.tenants import Project, ProjectRole
from chalicelib.store import nouns
from chalicelib.usecases.runs import runs
from tests.api.rig import Rig
from tests.api.test_runs import job_of
from tests.api.v1.rest import TASK, Client
from tests.world.ports import RecordedStore


def finish(rig: Rig, run_id: str) -> None:
    run = nouns.find(rig.world.plane.store, Run, keys.run(run_id))
    assert run is not None
    rig.save(run.with_(status=RunStatus.done, finished_at=rig.world.clock.now()))


def test_a_run_is_submitted_read_stopped_and_deleted(rig: Rig) -> None:
    api = Client.of(rig)
    reply = api.call("POST", api.runs, {**TASK, "name": "first"})
    assert (reply.status, reply.headers["Location"]) == (201, f"{api.runs}/first")
    run = api.ok("GET", f"{api.runs}/first")
    assert (run["status"], run["project"], run["revision"]) == ("submitted", api.project, 0)
    assert run["spec"]["commands"] == TASK["commands"] and [job["node"] for job in run["jobs"]] == [0]
    assert api.ok("POST", f"{api.runs}/first/stop", status=202)["status"] == "terminating"
    assert api.refused("DELETE", f"{api.runs}/first")[:2] == (409, "refused")
    finish(rig, run["id"])
    assert api.call("DELETE", f"{api.runs}/first").status == 204
    assert api.refused("GET", f"{api.runs}/first")[:2] == (404, "not-found")


def test_a_live_run_keeps_its_name(rig: Rig) -> None:
    api = Client.of(rig)
    api.ok("POST", api.runs, {**TASK, "name": "one"}, status=201)
    for url in (api.runs, f"{api.runs}?dry_run=true"):
        assert api.refused("POST", url, {**TASK, "name": "one", "priority": 3})[:2] == (409, "already-exists")
    assert api.ok("GET", f"{api.runs}/one")["revision"] == 0


def test_mistakes_are_shown_with_their_places(rig: Rig) -> None:
    api = Client.of(rig)
    status, code, problem = api.refused("POST", api.runs, {**TASK, "resources": {"cpu": -1}, "comands": []})
    assert (status, code) == (422, "invalid")
    assert {"/comands"} < {part["pointer"] for part in problem["errors"]}
    assert api.refused("GET", f"{api.runs}?colour=red")[:2] == (422, "invalid")
    assert api.refused("GET", "/api/v1/users/me?x=1")[2]["errors"][0]["parameter"] == "x"
    for query in ("status=asleep", "limit=0", "cursor=x"):
        status, _, problem = api.refused("GET", f"{api.runs}?{query}")
        (part,) = problem["errors"]
        assert (status, part["parameter"], part["pointer"]) == (422, query.partition("=")[0], "")


def test_pages_follow_each_other_without_a_gap(rig: Rig) -> None:
    api = Client.of(rig)
    for number in range(5):
        api.ok("POST", api.runs, {**TASK, "name": f"r{number}"}, status=201)
        rig.world.clock.pass_(1)
    names, url = [], f"{api.runs}?limit=2"
    while url:
        reply = api.call("GET", url)
        page = api.ok("GET", url)
        names.append([run["name"] for run in page["items"]])
        link = reply.headers.get("Link", "")
        assert bool(link) is (page["next"] is not None)
        url = link.partition(">")[0].removeprefix("<")
    assert names == [["r4", "r3"], ["r2", "r1"], ["r0"]]
    first = api.ok("GET", f"{api.runs}?limit=2")
    assert api.refused("GET", f"{api.runs}?user=x&cursor={first['next']}")[0] == 422
    assert [run["name"] for run in api.ok("GET", "/api/v1/runs?status=done,failed")["items"]] == []


def followed(api: Client, url: str) -> tuple[list[str], int]:
    """The names of the runs on all pages, and how many pages there are."""
    names, pages = [], 0
    while url:
        reply = api.call("GET", url)
        names += [run["name"] for run in orjson.loads(reply.body)["items"]]
        url, pages = reply.headers.get("Link", "").partition(">")[0].removeprefix("<"), pages + 1
    return names, pages


def copies(rig: Rig, name: str, project: Project, count: int) -> None:
    """As many later runs of another user."""
    plane = rig.world.plane
    first = runs.named(plane.store, project, name)
    assert first is not None
    later = [
        first.with_(id=derive(first.id, "copy", n), submitted_at=first.submitted_at + n, user_name="ann", version=0)
        for n in range(1, count + 1)
    ]
    body = plane.read.run_body(first.id, 0)
    made = [nouns.put(noun) for run in later for noun in (run, body.with_(run_id=run.id, version=0))]
    for start in range(0, len(made), 50):
        plane.store.commit(made[start : start + 50])


@pytest.mark.slow
def test_a_page_of_a_filtered_list_reads_no_more_than_so_many_runs(rig: Rig) -> None:
    """The newest runs are another user's: in one of two projects more of them than are read for a page."""
    api, plane = Client.of(rig), rig.world.plane
    for project, count in ((rig.project, 550), (rig.another_project("lab"), 40)):
        name = f"in-{project.name}"
        api.ok("POST", f"/api/v1/projects/{project.name}/runs", {**TASK, "name": name}, status=201)
        copies(rig, name, project, count)
    store = RecordedStore(plane.store)
    reply = replace(api, plane=replace(plane, store=store)).call("GET", "/api/v1/runs?user=admin&limit=1")
    assert len([name for name, _ in store.calls if name == "query"]) < 20
    assert orjson.loads(reply.body)["items"] == [] and "Link" in reply.headers
    for query in ("user=admin&limit=1", "user=admin", "status=submitted&user=admin"):
        assert sorted(followed(api, f"/api/v1/runs?{query}")[0]) == ["in-lab", "in-main"], query
    assert followed(api, f"{api.runs}?user=admin") == (["in-main"], 2)
    assert len(followed(api, "/api/v1/runs?user=ann&limit=100")[0]) == 590


def test_values_of_environment_variables_are_for_the_runs_user(rig: Rig) -> None:
    api, other = Client.of(rig), Client.of(rig, token=rig.user("ann", ProjectRole.user))
    api.ok("POST", api.runs, {**TASK, "name": "one", "env": {"KEY": "hunter2"}}, status=201)
    assert b"hunter2" in api.call("GET", f"{api.runs}/one").body
    assert b"hunter2" not in other.call("GET", f"{api.runs}/one").body


def test_who_has_it_already_gets_nothing(rig: Rig) -> None:
    api = Client.of(rig)
    api.ok("POST", api.runs, {**TASK, "name": "one"}, status=201)
    tag = api.call("GET", f"{api.runs}/one").headers["ETag"]
    again = api.call("GET", f"{api.runs}/one", if_none_match=tag)
    assert (again.status, again.body) == (304, b"") and "Content-Type" not in again.headers
    api.ok("POST", f"{api.runs}/one/stop", status=202)
    assert api.call("GET", f"{api.runs}/one", if_none_match=tag).status == 200


@pytest.mark.parametrize("token", [None, "forged"])
def test_nobody_gets_401(rig: Rig, token: str | None) -> None:
    api = Client.of(rig, token=token)
    assert api.refused("GET", "/api/v1/runs")[:2] == (401, "unauthenticated")
    assert api.call("GET", "/api/v1/runs").headers["WWW-Authenticate"] == "Bearer"


def test_paths_and_methods_that_arent_there(rig: Rig) -> None:
    api = Client.of(rig)
    assert api.refused("GET", "/api/v1/nothing")[:2] == (404, "no-such-path")
    assert api.refused("PATCH", api.runs)[:2] == (405, "wrong-method")
    assert api.call("PATCH", api.runs).headers["Allow"] == "GET, HEAD, POST"


def test_head_is_answered_like_get(rig: Rig) -> None:
    """Whoever sends the answer leaves out its body: `test_resources_real.py`."""
    api = Client.of(rig)
    api.ok("POST", api.runs, {**TASK, "name": "one"}, status=201)
    for path in (api.runs, f"{api.runs}/one", f"{api.runs}/none", "/api/v1/nothing"):
        got, head = api.call("GET", path), api.call("HEAD", path)
        assert (head.status, head.headers) == (got.status, got.headers)
    assert api.call("HEAD", f"{api.runs}/one/stop").status == 405


def test_the_jobs_of_a_run_are_listed_with_their_earlier_attempts(rig: Rig) -> None:
    api = Client.of(rig)
    run = api.ok("POST", api.runs, {**TASK, "name": "one"}, status=201)
    first = job_of(rig, run["id"])
    later = first.with_(id=derive(run["id"], "again"), submission_num=1, submitted_at=first.submitted_at + 1, version=0)
    rig.save(later)
    jobs = f"{api.runs}/one/jobs"
    listed = api.ok("GET", jobs)
    assert [(job["id"], job["attempt"]) for job in listed["items"]] == [(later.id, 1), (first.id, 0)]
    assert listed["next"] is None
    assert [job["id"] for job in api.ok("GET", f"{jobs}?latest=true")["items"]] == [later.id]
    page = api.ok("GET", f"{jobs}?limit=1")
    assert [job["id"] for job in api.ok("GET", f"{jobs}?limit=1&cursor={page['next']}")["items"]] == [first.id]
    assert api.ok("GET", f"{api.runs}/one")["jobs"] == listed["items"][:1]
    assert api.refused("GET", f"{api.runs}/none/jobs")[:2] == (404, "not-found")


@pytest.mark.parametrize(
    ("method", "path", "action"),
    [("POST", "?dry_run=true", "create"), ("POST", "/seen/stop?dry_run=true", "stop"),
     ("POST", "/seen/stop?dry_run=true&abort=true", "abort"), ("DELETE", "/ended?dry_run=true", "delete"),
     ("POST", "/ended/stop?dry_run=true", "none")],
)  # fmt: skip
def test_a_dry_run_changes_nothing(rig: Rig, method: str, path: str, action: str) -> None:
    api, store = Client.of(rig), rig.world.plane.store
    api.ok("POST", api.runs, {**TASK, "name": "seen"}, status=201)
    finish(rig, api.ok("POST", api.runs, {**TASK, "name": "ended"}, status=201)["id"])
    before = store.scan(limit=1000)
    body = {**TASK, "name": "fresh"} if action == "create" else None
    assert api.ok(method, api.runs + path, body, idempotency_key="k")["action"] == action
    assert store.scan(limit=1000) == before


def test_a_run_remembers_its_specs_and_goes_back_to_one(rig: Rig) -> None:
    """With the values that it had, which an answer shows to nobody else."""
    api = Client.of(rig)
    service = {"type": "service", "name": "chat", "port": 80, "commands": ["serve"], "env": {"KEY": "hunter2"}}
    api.ok("POST", api.runs, service, status=201)
    rig.world.clock.at += 60_000_000
    api.ok("PUT", f"{api.runs}/chat/spec", {**service, "commands": ["serve better"], "env": {"KEY": "other"}})
    two = api.ok("GET", f"{api.runs}/chat/revisions")["items"]
    assert [(each["revision"], each["current"], each["applied_by"]) for each in two] == [
        (1, True, "admin"),
        (0, False, "admin"),
    ]
    assert [each["spec"]["commands"] for each in two] == [["serve better"], ["serve"]]
    assert two[0]["applied_at"] > two[1]["applied_at"] == api.ok("GET", f"{api.runs}/chat")["submitted_at"]
    plan = api.ok("POST", f"{api.runs}/chat/roll-back?dry_run=true", {"revision": 0})
    assert plan["action"] == "change" and plan["spec"]["commands"] == ["serve"]
    back = api.ok("POST", f"{api.runs}/chat/roll-back", {"revision": 0})
    assert (back["commands"], back["env"]) == (["serve"], {"KEY": "hunter2"})
    assert api.ok("GET", f"{api.runs}/chat")["revision"] == 2
    assert api.ok("POST", f"{api.runs}/chat/roll-back?dry_run=true", {"revision": 0})["action"] == "none"
    assert api.refused("POST", f"{api.runs}/chat/roll-back", {"revision": 9})[:2] == (404, "not-found")
    other = Client.of(rig, token=rig.user("ann", ProjectRole.user))
    assert b"hunter2" not in other.call("GET", f"{api.runs}/chat/revisions").body
    dry = other.call("POST", f"{api.runs}/chat/roll-back?dry_run=true", {"revision": 1})
    assert dry.status == 200 and b"other" not in dry.body
    assert b"other" not in other.call("POST", f"{api.runs}/chat/roll-back", {"revision": 1}).body
    assert api.ok("GET", f"{api.runs}/chat")["spec"]["env"] == {"KEY": "other"}


def test_ended_runs_of_a_name_are_its_earlier_ones(rig: Rig) -> None:
    api = Client.of(rig)
    first = api.ok("POST", api.runs, {**TASK, "name": "one", "priority": 1}, status=201)
    finish(rig, first["id"])
    assert api.refused("POST", f"{api.runs}/one/roll-back", {"revision": 0})[0] == 409
    rig.world.clock.at += 60_000_000
    second = api.ok("POST", api.runs, {**TASK, "name": "one", "priority": 2}, status=201)
    found = api.ok("GET", f"{api.runs}/one/revisions?earlier=true")["items"]
    assert [(each["run_id"], each["spec"]["priority"]) for each in found] == [(second["id"], 2), (first["id"], 1)]
    assert len(api.ok("GET", f"{api.runs}/one/revisions")["items"]) == 1
