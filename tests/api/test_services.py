"""Services over the API: a plan a group, replicas as jobs, and where clients find them."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.jobs import Job, JobStatus
from chalicelib.domain.runs import Run, RunBody, RunStatus
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from chalicelib.usecases.runs import plans
from tests.api.rig import Rig, fleet, submit, task

MODEL = {"type": "chat", "name": "my-org/tiny", "format": "openai", "prefix": "/v1"}


def service(name: str = "chat", **fields: Any) -> dict[str, Any]:
    configuration = {"type": "service", "port": 8000, "resources": {"cpu": {"count": {"min": 1}}}, **fields}
    if "groups" not in fields:
        configuration.setdefault("commands", ["serve"])
    return {"run_name": name, "repo_id": "none", "repo_data": {"repo_type": "virtual"}, "configuration": configuration}


def group(name: str | None = None, replicas: Any = 1, **fields: Any) -> dict[str, Any]:
    return {"name": name, "replicas": replicas, "commands": [f"serve {name}"], **fields}


def jobs_of(rig: Rig, run_id: str) -> list[Job]:
    found = all_of(rig.world.plane.store, "main", f"run/{run_id}", low="job/", high="job0")
    return [nouns.read(Job, record) for record in found]


def run_of(rig: Rig, run_id: str) -> Run:
    run = nouns.find(rig.world.plane.store, Run, keys.run(run_id))
    assert run is not None
    return run


def test_a_plan_has_one_part_a_group_however_many_replicas(rig: Rig) -> None:
    rig.ok("P/fleets/apply", {"plan": {"spec": fleet(), "current_resource": None}, "force": False})
    spec = service(groups=[group("big", 3, resources={"gpu": 1}), group(None, 1)])
    plan = rig.ok("P/runs/get_plan", {"run_spec": spec})
    big, small = plan["job_plans"]
    assert [each["job_spec"]["job_name"] for each in (big, small)] == ["chat-0-0", "chat-0-0"]
    assert [each["job_spec"]["replica_group"] for each in (big, small)] == ["big", "1"]
    assert [each["job_spec"]["service_port"] for each in (big, small)] == [8000, 8000]
    assert [each["count"] for each in (big, small)] == [3, 1]
    assert [each["offers"][0]["instance"]["name"] for each in (big, small)] == ["a100", "small"]
    assert plan["effective_run_spec"]["configuration"].get("probes") is None


def test_every_replica_is_a_job_of_its_group(rig: Rig) -> None:
    made = submit(rig, service(groups=[group("big", 2), group("small", 1)]))
    jobs = [(each["job_spec"]["job_name"], each["job_spec"]["replica_group"]) for each in made["jobs"]]
    assert jobs == [("chat-0-0", "big"), ("chat-0-1", "big"), ("chat-0-2", "small")]
    assert [each["job_spec"]["commands"][-1] for each in made["jobs"]] == ["serve big", "serve big", "serve small"]
    stored = jobs_of(rig, made["id"])
    assert [(job.replica_num, job.replica_group) for job in stored] == [(0, "big"), (1, "big"), (2, "small")]
    assert [(each.group, each.desired) for each in run_of(rig, made["id"]).scales] == [("big", 2), ("small", 1)]
    assert rig.ok("P/runs/get", {"run_name": "chat"})["jobs"] == made["jobs"]


def test_many_replicas_are_not_all_written_at_once(rig: Rig) -> None:
    made = submit(rig, service(replicas=plans.JOBS_AT_ONCE + 5))
    assert len(made["jobs"]) == plans.JOBS_AT_ONCE
    (scale,) = run_of(rig, made["id"]).scales
    assert scale.desired == plans.JOBS_AT_ONCE + 5


def test_clients_learn_where_it_is_and_what_model_it_serves(rig: Rig) -> None:
    assert submit(rig, service("plain"))["service"] == {
        "url": "/proxy/services/main/plain/",
        "model": None,
        "options": {},
        "scales": [{"group": "0", "desired": 1, "why": None, "wanted": None, "stale": False}],
    }
    for model in (MODEL, "my-org/tiny"):
        shown = submit(rig, service(f"with-{type(model).__name__}", model=model))["service"]
        url = f"/proxy/services/main/with-{type(model).__name__}/"
        assert shown["url"] == url
        assert shown["model"] == {"name": "my-org/tiny", "base_url": f"{url}v1", "type": "chat"}
        assert shown["options"] == {"openai": {"model": MODEL}}


def test_a_probes_streak_is_told_in_the_order_of_the_probes(rig: Rig) -> None:
    probes = [{"type": "http", "url": "/a"}, {"type": "http", "url": "/b"}]
    made = submit(rig, service(probes=probes))
    assert made["latest_job_submission"]["probes"] == []
    (job,) = jobs_of(rig, made["id"])
    rig.save(job.with_(status=JobStatus.running, probes=(4, 0)))
    shown = rig.ok("P/runs/get", {"run_name": "chat"})["jobs"][0]
    assert shown["job_submissions"][0]["probes"] == [{"success_streak": 4}, {"success_streak": 0}]
    assert [probe["url"] for probe in shown["job_spec"]["probes"]] == ["/a", "/b"]


def test_a_replica_shows_the_spec_of_its_own_deployment(rig: Rig) -> None:
    """While a new version is rolled out, some replicas are still of the old one."""
    made = submit(rig, service(replicas=2))
    run, store = run_of(rig, made["id"]), rig.world.plane.store
    old = nouns.find(store, RunBody, keys.run_body(run.id, 0))
    assert old is not None
    texts = tuple(text.replace("serve", "serve v2") for text in old.job_specs)
    first, second = jobs_of(rig, run.id)
    rig.save(
        run.with_(deployment_num=1),
        old.with_(deployment_num=1, job_specs=texts, version=0),
        second.with_(deployment_num=1),
    )
    found = rig.ok("P/runs/get", {"run_name": "chat"})
    assert [each["job_spec"]["commands"][-1] for each in found["jobs"]] == ["serve", "serve v2"]
    assert [each["job_spec"]["job_name"] for each in found["jobs"]] == ["chat-0-0", "chat-0-1"]
    read = rig.world.plane.read
    assert [read.job_spec(job).commands[-1] for job in (first, second.with_(deployment_num=1))] == ["serve", "serve v2"]


def test_it_cannot_be_larger_than_one_answer(rig: Rig) -> None:
    long = service(replicas=400, commands=["x" * 10_000])
    assert "as its nodes get it" in rig.refused("P/runs/get_plan", {"run_spec": long})


def test_a_gateway_that_isnt_there_is_refused_by_name(rig: Rig) -> None:
    error = rig.refused("P/runs/get_plan", {"run_spec": service(gateway="edge")})
    assert error.startswith("gateway: there is no gateway edge in project main")


def test_one_that_may_have_none_is_planned_with_offers_and_begins_asleep(rig: Rig) -> None:
    rig.ok("P/fleets/apply", {"plan": {"spec": fleet(), "current_resource": None}, "force": False})
    spec = service(replicas={"min": 0, "max": 2}, scaling={"metric": "rps", "target": 1})
    (part,) = rig.ok("P/runs/get_plan", {"run_spec": spec})["job_plans"]
    assert part["offers"] and part["count"] == 0
    made = submit(rig, spec)
    assert (made["status"], made["message"], made["jobs"]) == (
        "pending",
        "no replicas: starts with the first request",
        [],
    )
    assert [(each["desired"], each["why"]) for each in made["service"]["scales"]] == [(0, None)]


def test_one_that_is_switched_off_doesnt_promise_to_start(rig: Rig) -> None:
    assert submit(rig, service(replicas=0))["message"] == "no replicas, as configured"


def test_a_scheduled_service_waits_without_replicas(rig: Rig) -> None:
    made = submit(rig, service(schedule={"cron": ["0 8 * * *"]}))
    assert made["status"] == "pending" and made["jobs"] == []
    assert run_of(rig, made["id"]).status is RunStatus.pending


# --- changes in place -------------------------------------------------------------------------------------------------


def change(rig: Rig, spec: dict[str, Any]) -> Any:
    """Plan it, and apply it with what the plan saw."""
    plan = rig.ok("P/runs/get_plan", {"run_spec": spec})
    body = {"plan": {"run_spec": plan["run_spec"], "current_resource": plan["current_resource"]}, "force": False}
    return plan, rig.ok("P/runs/apply", body)


def test_more_replicas_are_a_change_in_place_that_replaces_none(rig: Rig) -> None:
    made = submit(rig, service(replicas=2))
    plan, changed = change(rig, service(replicas=3))
    assert (plan["action"], plan["replaces"]) == ("update", [])
    assert (changed["id"], changed["deployment_num"], changed["service"]["scales"][0]["desired"]) == (made["id"], 1, 3)
    assert changed["jobs"] == made["jobs"]
    old, new = (rig.world.plane.read.run_body(made["id"], number) for number in (0, 1))
    assert old.job_specs == new.job_specs and old.run_spec != new.run_spec


IN_PLACE: dict[str, Any] = {
    "port": 8001,
    "probes": [{"type": "http", "url": "/x"}],
    "resources": {"cpu": {"count": {"min": 2}}},
    "volumes": [{"instance_path": "/x", "path": "/y"}],
    "image": "ubuntu",
    "user": "1000",
    "privileged": True,
    "entrypoint": "sh -c",
    "working_dir": "/w",
    "python": "3.11",
    "nvcc": True,
    "docker": True,
    "single_branch": False,
    "env": {"A": "1"},
    "shell": "sh",
    "commands": ["serve v2"],
}


@pytest.mark.parametrize("field", IN_PLACE)
def test_what_makes_other_replicas_is_rolled_out(rig: Rig, field: str) -> None:
    submit(rig, service())
    plan, changed = change(rig, service(**{field: IN_PLACE[field]}))
    assert (plan["action"], plan["replaces"], changed["deployment_num"]) == ("update", ["0"], 1)
    old, new = (rig.world.plane.read.run_body(changed["id"], number) for number in (0, 1))
    assert old.job_specs != new.job_specs


@pytest.mark.parametrize(
    "fields",
    [{"model": "m"}, {"auth": False}, {"strip_prefix": False}, {"retry": True}, {"max_duration": "1h"}, {"tags": {}}],
    ids=lambda fields: next(iter(fields)),
)
def test_everything_else_needs_a_new_run(rig: Rig, fields: dict[str, Any]) -> None:
    fields = {"tags": {"a": "b"}} if "tags" in fields else fields
    submit(rig, service())
    assert rig.ok("P/runs/get_plan", {"run_spec": service(**fields)})["action"] == "create"
    error = rig.refused("P/runs/apply", {"plan": {"run_spec": service(**fields)}, "force": True})
    assert f"this can't be changed while it runs: {next(iter(fields))}" in error


def test_a_group_may_change_come_and_go_and_the_others_are_left_alone(rig: Rig) -> None:
    secret = {"registry_auth": {"username": "u", "password": "p"}, "image": "private"}
    made = submit(rig, service(groups=[group("a", 2), group("b", 1)], **secret))
    after = service(groups=[group("a", 3), group("b", 1, commands=["serve v2"]), group("c", 1)], **secret)
    plan, changed = change(rig, after)
    assert (plan["action"], plan["replaces"]) == ("update", ["b"])
    scales = [(each["group"], each["desired"]) for each in changed["service"]["scales"]]
    assert scales == [("a", 3), ("b", 1), ("c", 1)]
    old, new = (rig.world.plane.read.run_body(made["id"], number) for number in (0, 1))
    assert old.job_specs[0] == new.job_specs[0], "its password is sealed as it was, so nothing of it is new"
    assert old.job_specs[1] != new.job_specs[1] and len(new.job_specs) == 3


def test_a_task_still_takes_no_new_commands(rig: Rig) -> None:
    submit(rig, task())
    assert rig.ok("P/runs/get_plan", {"run_spec": task(commands=["other"])})["action"] == "create"


def test_a_change_planned_on_another_version_is_refused(rig: Rig) -> None:
    submit(rig, service())
    plan = rig.ok("P/runs/get_plan", {"run_spec": service(replicas=2)})
    change(rig, service(replicas=3))
    body = {"plan": {"run_spec": plan["run_spec"], "current_resource": plan["current_resource"]}, "force": False}
    assert "was resubmitted or changed since this plan" in rig.refused("P/runs/apply", body)
