"""Whatever a user does over the API is in the history, with the user: each route that writes, by two callers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from chalicelib.api.route import Access, Route
from chalicelib.api.routes import ROUTES
from chalicelib.domain.access_tokens import Verb
from chalicelib.domain.events import Event
from chalicelib.domain.keys import EVENTS
from chalicelib.domain.tenants import ProjectRole
from chalicelib.errors import Refused
from chalicelib.store import nouns
from chalicelib.store.port import Change, Put
from chalicelib.store.sqlite import SqliteStore
from tests.api.rig import Rig, submit, task
from tests.api.test_access import PRIVATE, request
from tests.fuzz.tenants import Town
from tests.harness.rows import each

BESIDE = {  # what is written without an event, and why
    "/api/files/get_archive_by_hash": "when an archive was last asked for",
    "/api/files/upload_archive": "a file is nothing until a run has it",
    "/api/project/{project_name}/repos/upload_code": "nor is code",
    "/api/project/{project_name}/repos/init": "nor is what a checkout is",
    "/api/project/{project_name}/repos/delete": "nor that it isn't any more",
    "/api/users/sign_in_codes/create": "a code is nothing until a page has it",
    "/api/project/{project_name}/logs/poll": "that somebody reads",
    "/api/v1/projects/{project_name}/runs/{run_name}/logs": "nor is that",
    "/api/project/{project_name}/runs/get_plan": "when an archive was last asked for",
}
WRITING = [route for route in ROUTES if route.access not in (Access.public, Access.agent)]


class Watched(SqliteStore):
    """Keeps what is written, and refuses it, so that all calls meet the same records."""

    tried: Sequence[Change] = ()

    def commit(self, changes: Sequence[Change]) -> None:
        if changes:
            self.tried = changes
            raise Refused("nothing is written here")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder = Path(tmp_path_factory.mktemp("attribution"))
    made = Town.at(folder)
    for name in (f"{PRIVATE}admin", "root"):
        with_token(made, name)
    watched = Watched(folder / "plane.db", now=made.rig.world.clock.seconds)
    made.rig.world.plane = replace(made.rig.world.plane, store=watched)
    yield made
    watched.close()
    made.close()


def with_token(town: Town, name: str) -> None:
    """A caller more, who calls in the name of this one with an access token that may whatever one may."""
    whose = next(caller for caller in town.callers if caller.name == name)
    verbs = [verb for verb in Verb if verb is not Verb.server or name == "root"]
    body = {"name": "ci", "verbs": verbs}
    answer: dict[str, str] = town.rig.ok("/api/users/access_tokens/create", body, token=whose.token or "")
    town.callers.append(replace(whose, name=f"{name}'s token", token=answer["token"]))


def written(town: Town, route: Route, name: str) -> tuple[Sequence[Change], list[Event]]:
    store = town.rig.world.plane.store
    assert isinstance(store, Watched)
    store.tried = ()
    caller = next(caller for caller in town.callers if caller.name == name)
    town.send(request(route, town, PRIVATE, caller.token))
    puts = [change.record for change in store.tried if isinstance(change, Put)]
    return store.tried, [nouns.read(Event, record) for record in puts if record.key.pk.startswith(EVENTS)]


@each("route", WRITING, ids=lambda route: f"{route.method} {route.path}")
@each("name", [f"{PRIVATE}admin", "root"])
@pytest.mark.slow
def test_what_is_written_is_told_with_who_did_it(town: Town, route: Route, name: str) -> None:
    changes, events = written(town, route, name)
    if changes and route.path not in BESIDE:
        assert events, changes
    who = {"root": "admin"}.get(name, name)
    assert {event.actor_name for event in events} <= {who}, [event.message for event in events]


@each("route", [route for route in WRITING if route.verb], ids=lambda route: f"{route.method} {route.path}")
@each("name", [f"{PRIVATE}admin", "root"])
@pytest.mark.slow
def test_what_is_written_with_an_access_token_is_told_with_its_name(town: Town, route: Route, name: str) -> None:
    _, own = written(town, route, name)
    _, events = written(town, route, f"{name}'s token")
    assert len(events) == len(own) or route.path.endswith("/revoke_own")  # only an access token revokes itself
    who = {"root": "admin"}.get(name, name)
    assert {(event.actor_name, event.actor_token) for event in events} <= {(who, "ci")}
    assert all(event.actor_token is None for event in own)


@pytest.mark.slow
def test_nothing_is_excused_that_tells(town: Town) -> None:
    paths = {route.path: route for route in WRITING}
    assert BESIDE.keys() <= paths.keys()
    assert [path for path in BESIDE if written(town, paths[path], "root")[1]] == []


def test_a_run_says_who_applied_changed_and_stopped_it(rig: Rig) -> None:
    bob = rig.user("bob", ProjectRole.user)
    run = submit(rig, task())
    assert (run["user"], run["changed_by"], run["stopped_by"]) == ("admin", None, None)
    changed = {"plan": {"run_spec": task(priority=9), "current_resource": run}, "force": False}
    assert rig.ok("P/runs/apply", changed, token=bob)["changed_by"] == "bob"
    rig.ok("P/runs/stop", {"runs_names": ["hello"], "abort": False}, token=bob)
    (seen,) = rig.ok("/api/runs/list", {"only_active": True})
    assert (seen["user"], seen["changed_by"], seen["stopped_by"]) == ("admin", "bob", "bob")
