"""Quotas over the API: who sets them, what they show, and what a change does to those that wait."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.jobs import Job
from chalicelib.domain.quotas import MOST_USERS, Limits, Quota
from chalicelib.domain.tenants import ProjectRole
from chalicelib.store import nouns
from tests.api.rig import Rig, fleet, submit, task
from tests.api.test_fleets import create

NONE = {"gpus": None, "jobs": None, "money": None}
P = "/api/projects/main"


def set_(rig: Rig, token: str = "admin-token", **body: Any) -> Any:
    return rig.ok(f"{P}/set_quota", body, token=token)


def job_of(rig: Rig, run_id: str) -> Job:
    found = nouns.find(rig.world.plane.store, Job, keys.job(run_id, 0, 0, 0))
    assert found is not None
    return found


def test_a_project_has_no_quota_until_one_is_set(rig: Rig) -> None:
    empty = {"project_name": "main", "limits": NONE, "used": {"gpus": 0, "jobs": 0, "money": None}}
    assert rig.ok(f"{P}/get_quota") == {**empty, "each_user": NONE, "users": []}
    assert rig.ok(f"{P}/get")["quota"]["limits"] == NONE
    assert "quota" not in rig.ok("/api/projects/list")[0]


def test_limits_are_set_one_by_one_and_lifted_by_null(rig: Rig) -> None:
    assert set_(rig, gpus=12, money=7.5)["limits"] == {"gpus": 12, "jobs": None, "money": 7.5}
    assert set_(rig, jobs=3)["limits"] == {"gpus": 12, "jobs": 3, "money": 7.5}
    assert set_(rig, gpus=None)["limits"] == {"gpus": None, "jobs": 3, "money": 7.5}
    rig.user("bob", ProjectRole.user)
    set_(rig, each_user=True, gpus=2)
    found = set_(rig, username="bob", gpus=4)
    assert found["each_user"] == {**NONE, "gpus": 2}
    assert found["users"] == [
        {"username": "bob", "limits": {**NONE, "gpus": 4}, "used": {"gpus": 0, "jobs": 0, "money": 0.0}}
    ]
    assert set_(rig, username="bob", gpus=None)["users"] == []
    assert rig.ok(f"{P}/get")["quota"] == rig.ok(f"{P}/get_quota")
    messages = {event["message"] for event in rig.ok("/api/events/list", {})}
    assert {"changed: quota: gpus 12, money 7.5", "changed: quota of bob: gpus unlimited"} <= messages


def test_a_projects_own_admin_limits_its_users_only(rig: Rig) -> None:
    lead = rig.user("lead", ProjectRole.admin)
    rig.user("bob", ProjectRole.user)
    for body in ({"username": "bob", "jobs": 1}, {"each_user": True, "jobs": 2}):
        rig.ok(f"{P}/set_quota", body, token=lead)
    refused = rig.call(f"{P}/set_quota", {"jobs": 100}, token=lead)
    assert refused.status == 403
    assert "Only a global admin may set the quota of a whole project" in refused.body.decode()


def test_users_see_the_quota_and_visitors_dont(rig: Rig) -> None:
    set_(rig, gpus=3)
    bob, eve = rig.user("bob", ProjectRole.user), rig.user("eve")
    assert rig.ok(f"{P}/get_quota", token=bob)["limits"]["gpus"] == 3
    rig.ok(f"{P}/update", {"is_public": True})
    assert "quota" in rig.ok(f"{P}/get", token=bob)
    assert "quota" not in rig.ok(f"{P}/get", token=eve)
    assert rig.call(f"{P}/get_quota", token=eve).status == 403


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "This sets no limit."),
        ({"username": "admin", "each_user": True, "jobs": 1}, "exclude each other"),
        ({"gpus": -1}, "gpus"),
        ({"money": -0.5}, "money"),
        ({"username": "nobody", "gpus": 1}, "nobody"),
    ],
)
def test_nonsense_is_refused(rig: Rig, body: dict[str, Any], message: str) -> None:
    reply = rig.call(f"{P}/set_quota", body)
    assert reply.status in (400, 422)
    assert message in reply.body.decode()


def test_so_many_users_have_limits_of_their_own_and_no_more(rig: Rig) -> None:
    full = Quota(id=rig.project.id, project_name="main", users={f"u{n}": Limits(jobs=1) for n in range(MOST_USERS)})
    rig.save(full)
    rig.user("bob", ProjectRole.user)
    assert f"At most {MOST_USERS} users" in rig.refused(f"{P}/set_quota", {"username": "bob", "jobs": 1})


def test_a_plan_shows_what_is_left_and_says_that_the_run_will_wait(rig: Rig) -> None:
    create(rig, fleet())
    plan = {"run_spec": task("train", resources={"cpu": {"count": {"min": 1}}, "gpu": "A100:1"})}
    assert rig.ok("P/runs/get_plan", plan)["quota"] == []
    set_(rig, gpus=4)
    assert rig.ok("P/runs/get_plan", plan)["quota"] == ["project main uses 0 of 4 GPUs"]
    set_(rig, gpus=0)
    assert rig.ok("P/runs/get_plan", plan)["quota"] == [
        "project main uses 0 of 0 GPUs",
        "the run will wait for quota: it needs 1 GPU, and project main may have 0 at once",
    ]


def test_a_changed_quota_makes_those_that_wait_due_at_once(rig: Rig) -> None:
    run = submit(rig, task())
    world = rig.world
    rig.save(job_of(rig, run["id"]).with_(message="waiting for quota: …", due_at=world.now() + 10**9))
    world.clock.pass_(5)
    world.take_woken()
    set_(rig, jobs=9)
    assert job_of(rig, run["id"]).due_at == world.now()
    assert world.take_woken() == {f"queue/{rig.project.id}"}
