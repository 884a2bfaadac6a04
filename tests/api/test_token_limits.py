"""Dollars a day of access tokens over the API: whose runs count, through whatever door they come."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.automations import Automation
from chalicelib.domain.jobs import Job
from chalicelib.domain.runs import Run
from chalicelib.domain.spending import Spending
from chalicelib.store import nouns
from tests.api.rig import ADMIN, Rig, submit, task
from tests.api.test_access_tokens import CREATE, LIST, REVOKE, made
from tests.planning.placing.test_quotas import ran

SERVICE = {"type": "service", "port": 80, "commands": ["serve"], "replicas": 2}


def ci(rig: Rig, dollars: float = 5, *verbs: str, **more: Any) -> str:
    return made(rig, *(verbs or ("run",)), dollars_a_day=dollars, **more)


def run_of(rig: Rig, name: str) -> Run:
    target = nouns.find_target(rig.world.store, keys.run_name(rig.project.id, name))
    found = None if target is None else nouns.find(rig.world.store, Run, keys.run(target[0]))
    assert found is not None
    return found


def apply(rig: Rig, token: str, spec: dict[str, Any]) -> Any:
    return rig.ok("P/runs/apply", {"plan": {"run_spec": spec, "current_resource": None}, "force": True}, token=token)


def spend(rig: Rig, limit_id: str, dollars: float) -> None:
    rig.save(Spending(id=limit_id, spent=dollars, counted_to=rig.world.at))


def test_the_limit_is_shown_with_what_is_spent_today(rig: Rig) -> None:
    answer = rig.ok(CREATE, {"name": "ci", "verbs": ["run"], "dollars_a_day": 5})
    assert (answer["dollars_a_day"], answer["spent_today"]) == (5.0, 0.0)
    made(rig, name="free")
    spend(rig, answer["id"], 1.25)
    found = {each["name"]: (each["dollars_a_day"], each["spent_today"]) for each in rig.ok(LIST)}
    assert found == {"ci": (5.0, 1.25), "free": (None, None)}
    messages = {event["message"] for event in rig.ok("/api/events/list", {})}
    assert any("; $5 a day; until" in message for message in messages)


def test_a_run_carries_the_limit_of_the_token_that_submitted_it(rig: Rig) -> None:
    token = ci(rig)
    apply(rig, token, task("limited"))
    submit(rig, task("own"))
    limit = run_of(rig, "limited").limit
    assert limit is not None and (limit.token, limit.dollars) == ("ci", 5.0)
    assert run_of(rig, "own").limit is None
    rig.ok(REVOKE, {"name": "ci"})
    assert run_of(rig, "limited").limit == limit, "it goes on counting"


@pytest.mark.parametrize("spec", [task("nightly", schedule={"cron": "0 3 * * *"}), task("chat", **SERVICE)])
def test_so_do_a_scheduled_run_and_a_service(rig: Rig, spec: dict[str, Any]) -> None:
    apply(rig, ci(rig), spec)
    assert run_of(rig, spec["run_name"]).limit is not None


def test_a_change_moves_a_run_to_whoever_makes_it(rig: Rig) -> None:
    submit(rig, task("chat", **SERVICE))
    apply(rig, ci(rig), task("chat", **{**SERVICE, "replicas": 4}))
    limit = run_of(rig, "chat").limit
    assert limit is not None and limit.token == "ci", "its token can't let another's run grow"
    apply(rig, ADMIN, task("chat", **{**SERVICE, "replicas": 3}))
    assert run_of(rig, "chat").limit is None


def test_a_stored_configuration_keeps_the_limit_of_who_stored_it(rig: Rig) -> None:
    token = ci(rig, 5, "run", "project")
    rig.ok("P/automations/add", {"spec": task("later")}, token=token)
    stored = nouns.find(rig.world.store, Automation, keys.automation(rig.project.id, "later"))
    assert stored is not None and stored.limit is not None and stored.limit.token == "ci"


def test_no_job_of_a_limited_run_gets_a_token_of_its_own(rig: Rig) -> None:
    plan = {"plan": {"run_spec": task("sweep", dstack=True), "current_resource": None}, "force": False}
    assert "can't submit a run that gets a token of its own" in rig.refused("P/runs/apply", plan, token=ci(rig))


def test_a_plan_says_what_is_left_and_that_the_run_will_wait(rig: Rig) -> None:
    answer = rig.ok(CREATE, {"name": "ci", "verbs": ["run"], "dollars_a_day": 5})
    spec = {"run_spec": task()}
    assert rig.ok("P/runs/get_plan", spec, token=answer["token"])["quota"] == [
        "the access token ci has spent $0.00 of its $5.00 today"
    ]
    spend(rig, answer["id"], 5.0)
    spent, wait = rig.ok("P/runs/get_plan", spec, token=answer["token"])["quota"]
    assert spent == "the access token ci has spent $5.00 of its $5.00 today"
    assert wait.startswith("the run will wait for quota: the access token ci has spent its $5.00 of today")
    assert rig.ok("P/runs/get_plan", spec)["quota"] == []


@pytest.mark.parametrize(("idle", "said"), [("off", True), ("6m", True), ("5m", False)])
def test_a_plan_says_that_idle_machines_arent_the_tokens_to_keep(rig: Rig, idle: str, said: bool) -> None:
    spec, token = {"run_spec": task(idle_duration=idle)}, ci(rig)
    text = "`idle_duration` is at most 5 minutes in a fleet that sets none: the access token ci"
    assert (text in str(rig.ok("P/runs/get_plan", spec, token=token))) is said
    assert text not in str(rig.ok("P/runs/get_plan", spec))


def test_each_token_counts_by_itself_and_a_new_one_of_the_same_name_anew(rig: Rig) -> None:
    first = rig.ok(CREATE, {"name": "ci", "verbs": ["run"], "dollars_a_day": 5})
    spend(rig, first["id"], 5.0)
    rig.ok(REVOKE, {"name": "ci"})
    second = rig.ok(CREATE, {"name": "ci", "verbs": ["run"], "dollars_a_day": 5})
    assert (second["id"] != first["id"], second["spent_today"]) == (True, 0.0)


def test_what_a_listed_job_costs_is_in_the_list(rig: Rig) -> None:
    answer = rig.ok(CREATE, {"name": "ci", "verbs": ["run"], "dollars_a_day": 5})
    now = rig.world.at
    job: Job = ran("far", 2.0, now - 30 * 60 * 1_000_000)
    rig.save(job, Spending(id=answer["id"], jobs=(f"{job.run_id}/0/0/0",), counted_to=now))
    (found,) = rig.ok(LIST)
    assert found["spent_today"] == pytest.approx(1.0, abs=0.01)
