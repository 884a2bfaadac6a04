"""Many callers do the same at once: none of them notices the others, and it is done once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from math import inf
from threading import Barrier
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.closings import Closing
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.errors import Conflict, NotFound, Refused
from chalicelib.planning.projects.deletion import ClosingSnapshot, decide_closing
from chalicelib.store import nouns
from chalicelib.store.port import Change, Delete, Store
from chalicelib.usecases.people import projects, users
from chalicelib.usecases.runs import plans, runs
from tests.api.rig import Response, Rig, fleet, submit, task

CALLERS = 8


def together(act: Callable[[int], Response]) -> list[Response]:
    gate = Barrier(CALLERS)

    def one(number: int) -> Response:
        gate.wait()
        return act(number)

    with ThreadPoolExecutor(CALLERS) as threads:
        return list(threads.map(one, range(CALLERS)))


def events(rig: Rig, message: str, **filters: object) -> int:
    return sum(event["message"] == message for event in rig.ok("/api/events/list", filters))


def test_initialising_a_repo(rig: Rig) -> None:
    """Every `apply` does, so two first ones at once must both go on."""
    body = {"repo_id": "none", "repo_info": {"repo_type": "virtual"}}
    for reply in together(lambda _: rig.call("/api/project/main/repos/init", body)):
        assert reply.status == 200, reply.body


def test_setting_a_secret(rig: Rig) -> None:
    path = "/api/project/main/secrets/create_or_update"
    for reply in together(lambda number: rig.call(path, {"name": "a", "value": str(number)})):
        assert reply.status == 200, reply.body
    assert len(rig.ok("P/secrets/list")) == 1
    assert rig.ok("P/secrets/get", {"name": "a"})["value"] in map(str, range(CALLERS))


def test_submitting_one_name(rig: Rig) -> None:
    body = {"plan": {"run_spec": task("same")}, "force": False}
    replies = together(lambda _: rig.call("/api/project/main/runs/apply", body))
    assert {reply.status for reply in replies} == {200}
    assert len({reply.json["id"] for reply in replies}) == 1
    assert (events(rig, "submitted"), len(rig.ok("/api/runs/list", {}))) == (1, 1)


def test_creating_one_fleet(rig: Rig) -> None:
    body = {"plan": {"spec": fleet("same")}, "force": False}
    replies = together(lambda _: rig.call("/api/project/main/fleets/apply", body))
    assert {reply.status for reply in replies} == {200}
    assert len({reply.json["id"] for reply in replies}) == 1 == events(rig, "created", include_target_types=["fleet"])


def test_stopping_one_run(rig: Rig) -> None:
    submit(rig, task("same"))
    body = {"runs_names": ["same"], "abort": False}
    assert {reply.status for reply in together(lambda _: rig.call("/api/project/main/runs/stop", body))} == {200}
    assert events(rig, "submitted → terminating: stopped by user") == 1


def test_deleting_one_run(rig: Rig) -> None:
    """Whoever is late gets "no such run", as always."""
    run_id = submit(rig, task("same"))["id"]
    run = nouns.find(rig.world.plane.store, Run, keys.run(run_id))
    assert run is not None
    rig.save(run.with_(status=RunStatus.terminated))
    body = {"runs_names": ["same"]}
    replies = together(lambda _: rig.call("/api/project/main/runs/delete", body))
    assert {reply.status for reply in replies} <= {200, 400}
    assert all(b"resource_not_exists" in reply.body for reply in replies if reply.status == 400)
    assert 200 in {reply.status for reply in replies}
    assert (events(rig, "deleted"), rig.ok("/api/runs/list", {})) == (1, [])
    assert runs.named(rig.world.plane.store, rig.project, "same") is None


def test_taking_one_name_for_a_project(rig: Rig) -> None:
    replies = together(lambda _: rig.call("/api/projects/create", {"project_name": "mine"}))
    assert sorted(reply.status for reply in replies) == [200, *[400] * (CALLERS - 1)]
    assert all(b"resource_exists" in reply.body for reply in replies if reply.status == 400)


def test_projects_of_one_user_up_to_the_limit(rig: Rig) -> None:
    token = rig.user("ann")
    for number in range(8):
        rig.ok("/api/projects/create", {"project_name": f"p{number}"}, token=token)
    create = "/api/projects/create"
    together(lambda number: rig.call(create, {"project_name": f"more{number}"}, token=token))
    assert len(rig.ok("/api/projects/list", {"include_not_joined": False}, token=token)) == 10


@pytest.mark.parametrize("what", ["run", "fleet"])
@pytest.mark.slow
def test_deleting_a_project_while_something_is_applied_to_it(rig: Rig, what: str) -> None:
    """One of the two is refused, or both: nothing runs on where nobody can see it."""
    bodies = {"run": {"plan": {"run_spec": task("train")}}, "fleet": {"plan": {"spec": fleet("pool")}}}
    for number in range(10):
        name = f"p{number}"
        made = rig.ok("/api/projects/create", {"project_name": name})
        path = f"/api/project/{name}/{what}s/apply"

        def act(caller: int, path: str = path, name: str = name) -> Response:
            if caller == 0:
                return rig.call("/api/projects/delete", {"projects_names": [name]})
            return rig.call(path, {**bodies[what], "force": False})

        deleted, *applied = together(act)
        exists = rig.call(f"/api/projects/{name}/get").status == 200
        assert exists == (deleted.status != 200)
        is_applied = any(reply.status == 200 for reply in applied)
        assert exists == is_applied or (what == "run" and exists), [deleted, *applied]
        if not exists:
            runs_on = rig.world.plane.read.live_runs(made["project_id"])
            assert {run.status for run in runs_on} <= {RunStatus.terminating}


def ended(rig: Rig, project_id: str, left: Sequence[Run]) -> set[str]:
    """The runs that the next look at the deleted project stops."""
    closing = nouns.find(rig.world.plane.store, Closing, keys.closing(project_id))
    assert closing is not None and closing.due_at is not None
    plan = decide_closing(ClosingSnapshot(closing.due_at, closing, tuple(left), ()))
    saved = [noun for step in plan.steps for noun in step.saves]
    assert any(isinstance(noun, Closing) and noun.due_at is not None for noun in saved), "it looks again"
    return {noun.id for noun in saved if isinstance(noun, Run) and noun.status is RunStatus.terminating}


def test_a_deletion_that_comes_between_is_taken_back(rig: Rig) -> None:
    """The run is submitted after the deletion has looked and before it is committed."""
    store = rig.world.plane.store
    before = Before(store, lambda: submit(rig, task("train")))
    plane = replace(rig.world.plane, store=before)
    actor = users.named_user(store, "admin")
    before.armed = True
    with pytest.raises(Refused, match="active runs"):
        projects.delete_projects(plane, actor, ["main"])
    assert rig.ok("/api/projects/main/get")["project_id"] == rig.project.id
    assert [run["run_spec"]["run_name"] for run in rig.ok("/api/runs/list", {})] == ["train"]
    assert store.get(keys.closing(rig.project.id)) is None


def test_a_run_that_comes_after_its_projects_deletion_is_stopped(rig: Rig) -> None:
    """The deletion looks and finds nothing, between the submission's last look and its commit."""
    plane = rig.world.plane
    actor = users.named_user(plane.store, "admin")
    before = Before(plane.store, lambda: projects.delete_projects(plane, actor, ["main"]))
    before.armed = True
    late = replace(plane, store=before)
    with pytest.raises(NotFound, match="no project 'main'"):
        plans.apply_plan(late, actor, rig.project, task("train"), None)
    (run,) = plane.read.live_runs(rig.project.id)
    assert run.status is RunStatus.terminating
    # So it is found in between, and for good if that call crashed.
    rig.save(run.with_(status=RunStatus.submitted, reason=None))
    with pytest.raises(NotFound, match="no project 'main'"):
        plans.apply_plan(plane, actor, rig.project, task("train"), None)
    assert ended(rig, rig.project.id, plane.read.live_runs(rig.project.id)) == {run.id}


class Before:
    """A store in which something happens right before its next commit."""

    def __init__(self, store: Store, happens: Callable[[], Any]) -> None:
        self._store, self._happens, self.armed = store, happens, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, changes: Sequence[Change]) -> None:
        if self.armed:
            self.armed = False
            self._happens()
        self._store.commit(changes)


class Contended(Before):
    """A store in which somebody else is first so many times."""

    def __init__(self, store: Store, times: float) -> None:
        super().__init__(store, lambda: None)
        self._left = times

    def commit(self, changes: Sequence[Change]) -> None:
        self._left -= 1
        if self._left >= 0:
            raise Conflict(str(changes[0].key))
        self._store.commit(changes)


def contended(rig: Rig, times: float = inf) -> Any:
    store: Any = Contended(rig.world.plane.store, times)
    return replace(rig.world.plane, store=store)


def found_run(store: Store, run_id: str) -> Run:
    found = nouns.find(store, Run, keys.run(run_id))
    assert found is not None
    return found


@pytest.mark.parametrize("act", [runs.delete, partial(runs.stop, abort=False)])
def test_a_run_that_is_erased_in_between_is_gone_as_asked(rig: Rig, act: Callable[..., None]) -> None:
    store = rig.world.plane.store
    run = found_run(store, submit(rig, task("train"))["id"])
    if act is runs.delete:
        rig.save(run.with_(status=RunStatus.done))
    before = Before(store, lambda: store.commit([Delete(keys.run(run.id))]))
    before.armed = True
    act(replace(rig.world.plane, store=before), users.named_user(store, "admin"), rig.project, ["train"])  # type: ignore[arg-type]
    assert store.get(keys.run(run.id)) is None
