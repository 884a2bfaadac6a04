"""Many callers do the same to the same thing at once: none of them hears of another, and it is done once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from chalicelib.domain import keys
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.store import nouns
from chalicelib.usecases import runs
from tests.api.rig import Reply, Rig, fleet, submit, task

CALLERS = 8


def together(act: Callable[[int], Reply]) -> list[Reply]:
    gate = Barrier(CALLERS)

    def one(number: int) -> Reply:
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
    """Whoever comes late is told that there is no such run, as ever."""
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
