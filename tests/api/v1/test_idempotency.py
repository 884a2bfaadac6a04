"""Requests with an `Idempotency-Key` act once, wherever a call ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.keyed_requests import sent_key
from chalicelib.domain.keys import Key
from chalicelib.domain.tenants import ProjectRole
from chalicelib.errors import Refused
from chalicelib.store.port import Change, Put, Store
from chalicelib.usecases.context import Plane
from chalicelib.usecases.keyed_requests import once
from chalicelib.usecases.people.users import named_user
from tests.api.rig import Rig
from tests.api.test_fleets import KEY, instance_of
from tests.api.test_runs import finish
from tests.api.v1.rest import TASK, Client

SSH = {"user": "u", "ssh_key": {"public": "", "private": KEY}, "hosts": ["10.0.0.1"]}
HOSTS = {"type": "fleet", "name": "lab", "ssh_config": SSH}


class Crash(BaseException):
    """The process ends."""


@dataclass
class Crashing:
    """A store whose process ends at a commit: before it, or after it."""

    store: Store
    at: int
    after: bool
    commits: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def commit(self, changes: Sequence[Change]) -> None:
        ends, self.commits = self.commits == self.at, self.commits + 1
        if ends and not self.after:
            raise Crash
        self.store.commit(changes)
        if ends:
            raise Crash


def names(api: Client) -> list[str]:
    return [run["name"] for run in api.ok("GET", api.runs)["items"]]


def test_a_repeated_submission_is_answered_alike(rig: Rig) -> None:
    api = Client.of(rig)
    first, again = (api.call("POST", api.runs, TASK, idempotency_key="k") for _ in range(2))
    assert (first.status, first.body) == (again.status, again.body)
    assert first.headers["Location"] == again.headers["Location"]
    assert "Idempotency-Replayed" not in first.headers and again.headers["Idempotency-Replayed"] == "true"
    assert len(names(api)) == 1


def test_another_body_is_refused_and_another_user_has_keys_of_their_own(rig: Rig) -> None:
    api, other = Client.of(rig), Client.of(rig, token=rig.user("ann", ProjectRole.user))
    api.ok("POST", api.runs, TASK, status=201, idempotency_key="k")
    assert api.refused("POST", api.runs, {**TASK, "priority": 1}, idempotency_key="k")[:2] == (409, "key-reused")
    other.ok("POST", other.runs, TASK, status=201, idempotency_key="k")
    assert len(names(api)) == 2


def test_a_key_is_forgotten_after_a_day(rig: Rig) -> None:
    api = Client.of(rig)
    api.ok("POST", api.runs, TASK, status=201, idempotency_key="k")
    rig.world.clock.pass_(24 * 3600)
    api.ok("POST", api.runs, {**TASK, "priority": 1}, status=201, idempotency_key="k")
    assert len(names(api)) == 2


def test_a_refused_request_leaves_no_record(rig: Rig) -> None:
    api = Client.of(rig)
    api.refused("POST", api.runs, {**TASK, "comands": []}, idempotency_key="k")
    api.ok("POST", api.runs, TASK, status=201, idempotency_key="k")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_submission_that_was_cut_off_is_made_once(rig: Rig, at: int, after: bool) -> None:
    api = Client.of(rig)
    crashing = Crashing(rig.world.plane.store, at, after)
    cut = replace(api, plane=replace(rig.world.plane, store=crashing))
    try:
        cut.call("POST", api.runs, TASK, idempotency_key="k")
    except Crash:
        pass
    else:
        assert crashing.commits <= at, "there was no such commit"
    api.ok("POST", api.runs, TASK, status=201, idempotency_key="k")
    assert len(names(api)) == 1


def test_a_stop_and_a_deletion_are_repeated_in_peace(rig: Rig) -> None:
    api = Client.of(rig)
    api.ok("POST", api.runs, {**TASK, "name": "one"}, status=201)
    for _ in range(2):
        api.ok("POST", f"{api.runs}/one/stop", status=202, idempotency_key="s")


def test_of_two_at_once_one_acts(rig: Rig) -> None:
    """The second begins while the first is about to commit."""
    api = Client.of(rig)
    answers: list[int] = []

    @dataclass
    class Between:
        store: Store
        met: bool = False

        def __getattr__(self, name: str) -> Any:
            return getattr(self.store, name)

        def commit(self, changes: Sequence[Change]) -> None:
            if not self.met:
                self.met = True
                answers.append(api.call("POST", api.runs, TASK, idempotency_key="k").status)
            self.store.commit(changes)

    between = Between(rig.world.plane.store)
    slow = replace(api, plane=replace(rig.world.plane, store=between))
    answers.append(slow.call("POST", api.runs, TASK, idempotency_key="k").status)
    assert answers == [201, 201] and len(names(api)) == 1


@dataclass
class Overtaken:
    """A store before whose first commit, or after whose first look at a key's record, somebody else is faster."""

    store: Store
    faster: Callable[[], object]
    at_look: bool
    met: bool = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def get(self, key: Key) -> Any:
        found = self.store.get(key)
        if self.at_look and key.sk.startswith("request/"):
            self._meet()
        return found

    def commit(self, changes: Sequence[Change]) -> None:
        if not self.at_look:
            self._meet()
        self.store.commit(changes)

    def _meet(self) -> None:
        if not self.met:
            self.met = True
            self.faster()


@pytest.mark.parametrize("at_look", [False, True])
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "projects/main/runs", {**TASK, "name": "one"}, 201),
        ("POST", "projects", {"name": "lab"}, 201),
        ("POST", "users", {"name": "eve"}, 201),
        ("POST", "projects/main/fleets", {"type": "fleet", "name": "pool", "nodes": {"min": 0, "max": 1}}, 201),
        ("PUT", "projects/main/secrets/one", {"value": "v"}, 201),
        ("PUT", "projects/main/members/bob", {"role": "user"}, 201),
        ("DELETE", "projects/main/secrets/old", None, 204),
        ("DELETE", "projects/main/members/cat", None, 204),
        ("DELETE", "users/dan", None, 204),
    ],
)
def test_one_that_is_sent_again_before_its_answer_is_answered_alike(
    rig: Rig, method: str, path: str, body: Any, status: int, at_look: bool
) -> None:
    api, path = Client.of(rig), f"/api/v1/{path}"
    for name, role in (("bob", None), ("cat", ProjectRole.user), ("dan", None)):
        rig.user(name, role)
    api.ok("PUT", "/api/v1/projects/main/secrets/old", {"value": "x"}, status=201)
    answers: list[int] = []

    def send(by: Client) -> None:
        answers.append(by.call(method, path, body, idempotency_key="k").status)

    store = Overtaken(rig.world.plane.store, lambda: send(api), at_look)
    send(replace(api, plane=replace(rig.world.plane, store=store)))
    assert answers == [status, status]


def test_a_later_project_of_that_name_is_another(rig: Rig) -> None:
    api, secret = Client.of(rig), "/api/v1/projects/lab/secrets/one"
    for status in (201, 409):
        api.ok("POST", "/api/v1/projects", {"name": "lab"}, status=201)
        assert api.call("PUT", secret, {"value": "v"}, idempotency_key="k").status == status
        api.call("DELETE", secret)
        api.ok("DELETE", "/api/v1/projects/lab", status=204)


def test_a_deletion_of_a_project_is_repeated_in_peace_by_who_made_it(rig: Rig) -> None:
    api, ann, lab = Client.of(rig), Client.of(rig, token=rig.user("ann")), "/api/v1/projects/lab"
    api.ok("POST", "/api/v1/projects", {"name": "lab"}, status=201)
    first, again = (api.call("DELETE", lab, idempotency_key="k") for _ in range(2))
    assert (first.status, first.body, again.status, again.body) == (204, b"", 204, b"")
    assert "Idempotency-Replayed" not in first.headers and again.headers["Idempotency-Replayed"] == "true"
    assert api.refused("DELETE", lab, idempotency_key="another")[0] == api.refused("GET", lab)[0] == 404
    assert ann.refused("DELETE", lab, idempotency_key="k")[0] == 403
    api.ok("POST", "/api/v1/projects", {"name": "lab"}, status=201)
    assert api.refused("DELETE", lab, idempotency_key="k")[:2] == (409, "key-reused"), "the later one stays"
    assert api.ok("GET", lab)["name"] == "lab"
    rig.world.clock.pass_(24 * 3600)
    api.ok("DELETE", lab, status=204, idempotency_key="k")


def test_a_key_that_was_for_something_else_in_a_project_deletes_nothing_after_it(rig: Rig) -> None:
    api, lab = Client.of(rig), "/api/v1/projects/lab"
    api.ok("POST", "/api/v1/projects", {"name": "lab"}, status=201)
    api.ok("PUT", f"{lab}/secrets/one", {"value": "v"}, status=201, idempotency_key="k")
    api.ok("DELETE", f"{lab}/secrets/one", status=204)
    api.ok("DELETE", lab, status=204)
    assert api.refused("DELETE", lab, idempotency_key="k")[:2] == (409, "key-reused")


def test_a_submission_is_repeated_also_after_a_later_run_took_its_name(rig: Rig) -> None:
    api, one = Client.of(rig), {**TASK, "name": "one"}
    first = api.ok("POST", api.runs, one, status=201, idempotency_key="k")
    rig.ok("P/runs/stop", {"runs_names": ["one"], "abort": True})
    finish(rig, first["id"])
    second = api.ok("POST", api.runs, one, status=201, idempotency_key="l")
    again = api.ok("POST", api.runs, one, status=201, idempotency_key="k")
    assert again["id"] == first["id"] != second["id"]


def test_a_put_says_whether_it_created_something_also_when_it_is_repeated(rig: Rig) -> None:
    api, project = Client.of(rig), "/api/v1/projects/main"
    rig.user("bob")
    for path, body, other in (
        ("secrets/one", {"value": "v"}, {"value": "w"}),
        ("members/bob", {"role": "user"}, {"role": "manager"}),
        ("quota", {"gpus": 1}, {"gpus": 2}),
        ("quota/each-user", {"gpus": 1}, {"gpus": 2}),
        ("quota/users/bob", {"gpus": 1}, {"gpus": 2}),
    ):
        sent = [(body, f"{path}-1"), (other, f"{path}-2"), (body, f"{path}-1"), (other, f"{path}-2")]
        answers = [api.call("PUT", f"{project}/{path}", what, idempotency_key=key).status for what, key in sent]
        assert answers == [201, 200, 201, 200], path
    assert api.call("PUT", f"{project}/quota", {}).status == api.call("PUT", f"{project}/quota", {}).status == 200


@pytest.mark.parametrize("at", [0, 1])
def test_a_forced_deletion_that_was_cut_off_is_finished(rig: Rig, at: int) -> None:
    host = rig.ok("P/fleets/apply", {"plan": {"spec": {"configuration": HOSTS}}, "force": True})["instances"][0]["id"]
    api, path = Client.of(rig), "/api/v1/projects/main/fleets/lab?force=true"
    cut = replace(api, plane=replace(rig.world.plane, store=Crashing(rig.world.plane.store, at, True)))
    with pytest.raises(Crash):
        cut.call("DELETE", path, idempotency_key="k")
    assert api.call("DELETE", path, idempotency_key="k").status == 202
    assert instance_of(rig, host).forgotten


PEOPLE = [
    ("POST", "/api/v1/projects", {"name": "lab"}, "/api/v1/projects/lab", 201),
    ("POST", "/api/v1/users", {"name": "ann"}, "/api/v1/users/ann", 201),
    ("PUT", "/api/v1/projects/main/secrets/one", {"value": "v"}, "/api/v1/projects/main/secrets/one", 201),
    ("POST", "/api/v1/projects/main/fleets", {"type": "fleet", "name": "pool", "nodes": {"min": 0, "max": 1}},
     "/api/v1/projects/main/fleets/pool", 201),
]  # fmt: skip


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(("method", "path", "body", "made", "status"), PEOPLE)
def test_whatever_was_cut_off_is_made_once(
    rig: Rig, method: str, path: str, body: Any, made: str, status: int, at: int, after: bool
) -> None:
    api = Client.of(rig)
    cut = replace(api, plane=replace(rig.world.plane, store=Crashing(rig.world.plane.store, at, after)))
    with suppress(Crash):
        cut.call(method, path, body, idempotency_key="k")
    api.ok(method, path, body, status=status, idempotency_key="k")
    api.ok("GET", made)
    assert api.call(method, path, body, idempotency_key="k").headers["Idempotency-Replayed"] == "true"


def test_what_was_taken_back_leaves_no_record(rig: Rig) -> None:
    """As a deletion of a project is, if something was applied to the project meanwhile."""
    plane, sent = rig.world.plane, sent_key(b"secret", "k", b"DELETE", b"/x")
    admin = named_user(plane.store, "admin")
    refusals = iter([True, False])

    def act(plane: Plane, _: str) -> None:
        plane.store.commit([Put(rig.record(keys.project(rig.project.id)), expect=None)])
        if next(refusals):
            raise Refused("It is in use.")

    with pytest.raises(Refused):
        once(plane, admin, sent, act, by_store=True)
    assert [once(plane, admin, sent, act, by_store=True).repeated for _ in range(2)] == [False, True]


def test_a_deletion_that_was_cut_off_is_repeated_in_peace(rig: Rig) -> None:
    api = Client.of(rig)
    secret = "/api/v1/projects/main/secrets/one"
    api.ok("PUT", secret, {"value": "v"}, status=201)
    cut = replace(api, plane=replace(rig.world.plane, store=Crashing(rig.world.plane.store, 0, True)))
    with pytest.raises(Crash):
        cut.call("DELETE", secret, idempotency_key="k")
    assert api.call("DELETE", secret, idempotency_key="k").status == 204
    assert api.refused("DELETE", secret)[0] == 404
