"""Runs over the API: plan, submit, replace, change in place, list, stop, delete."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.events import Event
from chalicelib.domain.ids import is_id
from chalicelib.domain.instants import HOUR, MINUTE, from_iso, iso
from chalicelib.domain.jobs import Assignment, Job, JobStatus
from chalicelib.domain.reasons import JobReason, RunReason
from chalicelib.domain.runs import ReplicaRetry, Run, RunStatus
from chalicelib.domain.tenants import ProjectRole
from chalicelib.store import nouns
from tests.api.rig import OFFERS, Response, Rig, submit, task
from tests.world.ports import Books
from tests.world.time import NOW


def run_of(rig: Rig, run_id: str) -> Run:
    run = nouns.find(rig.world.plane.store, Run, keys.run(run_id))
    assert run is not None
    return run


def job_of(rig: Rig, run_id: str, submission: int = 0) -> Job:
    job = nouns.find(rig.world.plane.store, Job, keys.job(run_id, 0, 0, submission))
    assert job is not None
    return job


def finish(rig: Rig, run_id: str, status: RunStatus = RunStatus.done) -> None:
    """End the run and its job, as the engine would."""
    now = rig.world.clock.now()
    rig.save(run_of(rig, run_id).with_(status=status, reason=RunReason.all_jobs_done, finished_at=now))
    job = job_of(rig, run_id).with_(
        status=JobStatus.done, reason=JobReason.done_by_runner, exit_status=0, finished_at=now
    )
    rig.save(job.with_(due_at=None))


def messages(rig: Rig) -> list[str]:
    page = rig.world.plane.store.query("main", f"events/{rig.project.id}")
    return [nouns.read(Event, record).message for record in page.records]


# --- plan -----------------------------------------------------------------------------------------------------------


def test_a_plan_fills_in_what_the_client_leaves_open(rig: Rig) -> None:
    plan = rig.ok("P/runs/get_plan", {"run_spec": task(None)})
    assert plan["action"] == "create" and plan["current_resource"] is None
    assert plan["run_spec"]["run_name"] and plan["run_spec"]["configuration"] == task(None)["configuration"]
    assert (
        plan["effective_run_spec"]["ssh_key_pub"].startswith("ssh-")
        and plan["effective_run_spec"]["configuration"]["priority"] == 0
    )
    (job,) = plan["job_plans"]
    assert job["job_spec"]["job_name"] == f"{plan['run_spec']['run_name']}-0-0"


def test_a_key_that_was_sent_is_kept(rig: Rig) -> None:
    plan = rig.ok("P/runs/get_plan", {"run_spec": {**task(), "ssh_key_pub": "ssh-rsa AAAA mine\n"}})
    assert plan["effective_run_spec"]["ssh_key_pub"] == "ssh-rsa AAAA mine\n"


def test_offers_can_be_seen_without_a_fleet_limited_and_reversed(rig: Rig) -> None:
    body = {"run_spec": task(), "for_offers_only": True}
    (job,) = rig.ok("P/runs/get_plan", body)["job_plans"]
    prices = [offer["price"] for offer in job["offers"]]
    assert prices == sorted(prices) and job["total_offers"] == len(OFFERS) and job["max_price"] == 20.0
    (job,) = rig.ok("P/runs/get_plan", {**body, "max_offers": 2, "reverse_offers": True})["job_plans"]
    assert [offer["price"] for offer in job["offers"]] == [20.0, 1.5] and job["total_offers"] == len(OFFERS)
    (job,) = rig.ok("P/runs/get_plan", {**body, "max_offers": 1})["job_plans"]
    assert [offer["price"] for offer in job["offers"]] == [0.05] and job["max_price"] == 20.0


def test_a_fleet_lets_a_plan_offer_what_both_allow(rig: Rig) -> None:
    configuration = {"type": "fleet", "name": "pool", "nodes": "0..2", "max_price": 1.5}
    rig.ok("P/fleets/apply", {"plan": {"spec": {"configuration": configuration}}, "force": False})
    (job,) = rig.ok("P/runs/get_plan", {"run_spec": task(), "max_offers": 1})["job_plans"]
    assert (job["total_offers"], len(job["offers"]), job["max_price"]) == (3, 1, 1.5)


def test_a_plan_without_a_fleet_says_what_to_do(rig: Rig) -> None:
    plan = rig.ok("P/runs/get_plan", {"run_spec": task()})
    assert plan["job_plans"][0]["offers"] == [] and any("type: fleet" in note["hint"] for note in plan["notes"])


def test_a_plan_says_how_old_its_offers_are(rig: Rig) -> None:
    ages = [{"backend": "vultr", "taken_at": iso(NOW), "error": None, "prices": None, "outlived": None}]
    assert rig.ok("P/runs/get_plan", {"run_spec": task()})["offers_as_of"] == ages
    assert rig.ok("P/gpus/list", {"run_spec": task()})["offers_as_of"] == ages
    rig.world.plane = replace(rig.world.plane, catalog=Books(OFFERS, error="Throttled"))
    assert rig.ok("P/runs/get_plan", {"run_spec": task()})["offers_as_of"] == [{**ages[0], "error": "Throttled"}]


def test_looks_we_do_not_have_are_refused_by_name(rig: Rig) -> None:
    assert "--full-offers" in rig.refused("P/runs/get_plan", {"run_spec": task(), "full_offers": True})


def test_a_running_job_says_how_to_connect(rig: Rig) -> None:
    """A client that is attached has an SSH host of the run's name; the editor opens the folder the job works in."""
    spec = {"run_name": "work", "configuration": {"type": "dev-environment", "ide": "vscode", "name": "work"}}
    run_id = rig.ok("P/runs/apply", {"plan": {"run_spec": spec}, "force": False})["id"]
    assert rig.ok("P/runs/get", {"run_name": "work"})["jobs"][0]["job_connection_info"] is None
    rig.save(job_of(rig, run_id).with_(status=JobStatus.running, working_dir="/my work"))
    found = rig.ok("P/runs/get", {"run_name": "work"})["jobs"][0]["job_connection_info"]
    assert found["ide_name"] == "VS Code"
    assert found["attached_ide_url"] == "vscode://vscode-remote/ssh-remote+work/my%20work"
    assert found["attached_ssh_command"] == ["ssh", "work"]


@pytest.mark.parametrize("name", ["Upper", "a", "1st", "x" * 42, "with space", "ünder", ""])
def test_a_bad_name_is_refused_with_a_good_one(rig: Rig, name: str) -> None:
    error = rig.refused("P/runs/apply", {"plan": {"run_spec": task(name)}, "force": False})
    assert error.startswith(f"name: `{name}` can't be the name of a run")
    assert "2 to 41" in error or "at most 41" in error


def test_a_wrong_field_is_named_with_its_place(rig: Rig) -> None:
    reply = rig.call("/api/project/main/runs/get_plan", {"run_spec": task(commandz=["x"])})
    assert reply.status == 400
    assert reply.json["detail"] == [
        {
            "msg": "commandz: `commandz` isn't a known key (did you mean `commands`?)",
            "code": "error",
            "fields": ["commandz"],
        }
    ]


def test_every_problem_has_a_line_and_a_field_of_its_own(rig: Rig) -> None:
    spec = task("Bad", setup=["a"], env={"A": {"key": "A"}}) | {"working_dir": "/x", "profile": {"reservation": "r"}}
    (entry,) = rig.call("/api/project/main/runs/get_plan", {"run_spec": spec}).json["detail"]
    assert entry["fields"] == ["name", "run_spec.working_dir", "setup", "env.A", "profile.reservation"]
    for line, field in zip(entry["msg"].split("\n"), entry["fields"], strict=True):
        assert line.startswith(f"{field}: ")


def test_a_problem_stays_on_its_line_whatever_it_quotes(rig: Rig) -> None:
    spec = task(max_duration="1\n2", **{"a\nb": 1})
    (entry,) = rig.call("/api/project/main/runs/get_plan", {"run_spec": spec}).json["detail"]
    assert len(entry["msg"].split("\n")) == len(entry["fields"]) == 2


def test_a_later_clients_null_keys_are_ignored(rig: Rig) -> None:
    assert rig.ok("P/runs/get_plan", {"run_spec": {**task(), "of_tomorrow": None}})


# --- submit ---------------------------------------------------------------------------------------------------------


def test_a_submission_is_one_commit_with_all_its_parts(rig: Rig) -> None:
    rig.world.take_woken()
    made = submit(rig, task(priority=7))
    assert made["status"] == made["status_message"] == "submitted" and is_id(made["id"])
    (job,) = made["jobs"]
    (submission,) = job["job_submissions"]
    assert submission == made["latest_job_submission"] and submission["job_provisioning_data"] is None
    stored = job_of(rig, made["id"])
    assert (stored.id, stored.priority) == (submission["id"], 7)
    assert rig.world.take_woken() == {f"queue/{rig.project.id}", f"run/{made['id']}"}
    written = messages(rig)
    assert written.index("submitted") < written.index("created; waiting for capacity")
    queue = rig.world.plane.store.query("gsi1", keys.queue_of(rig.project.id))
    assert (stored.due_at, queue.records) == (None, ()), "it is in no index until it has to wait"


def test_get_finds_it_by_name_and_by_id(rig: Rig) -> None:
    made = submit(rig, task())
    assert rig.ok("P/runs/get", {"run_name": "hello"}) == rig.ok("P/runs/get", {"id": made["id"]}) == made
    assert "of the run" in rig.refused("P/runs/get", {})


def test_a_missing_run_has_the_code_that_clients_look_for(rig: Rig) -> None:
    for body in ({"run_name": "nope"}, {"id": rig.project.id}):
        reply = rig.call("/api/project/main/runs/get", body)
        assert reply.status == 400 and reply.json["detail"][0]["code"] == "resource_not_exists"


def test_a_run_of_another_project_is_not_found(rig: Rig) -> None:
    made = submit(rig, task())
    rig.another_project("other")
    for body in ({"id": made["id"]}, {"run_name": "hello"}):
        assert rig.call("/api/project/other/runs/get", body).json["detail"][0]["code"] == "resource_not_exists"


def test_the_same_run_again_changes_nothing(rig: Rig) -> None:
    made = submit(rig, task())
    plan = rig.ok("P/runs/get_plan", {"run_spec": task()})
    assert plan["action"] == "update" and plan["current_resource"] == made
    assert plan["current_resource"]["run_spec"] == plan["effective_run_spec"]  # or clients show a difference that isn't
    assert submit(rig, task()) == made


def test_a_live_run_takes_a_new_priority_and_so_do_its_waiting_jobs(rig: Rig) -> None:
    made = submit(rig, task())
    assert rig.ok("P/runs/get_plan", {"run_spec": task(priority=50)})["action"] == "update"
    changed = submit(rig, task(priority=50))
    assert (changed["id"], changed["deployment_num"]) == (made["id"], 1)
    assert changed["run_spec"]["configuration"]["priority"] == 50
    assert (run_of(rig, made["id"]).priority, job_of(rig, made["id"]).priority) == (50, 50)
    assert rig.ok("P/runs/get", {"run_name": "hello"}) == changed
    assert "changed: priority" in messages(rig)


def test_a_job_that_waits_no_more_keeps_the_priority_it_started_with(rig: Rig) -> None:
    made = submit(rig, task())
    rig.save(job_of(rig, made["id"]).with_(status=JobStatus.running))
    submit(rig, task(priority=50))
    assert (run_of(rig, made["id"]).priority, job_of(rig, made["id"]).priority) == (50, 0)


def test_a_live_run_is_not_replaced_and_the_refusal_says_how_to_mend_it(rig: Rig) -> None:
    submit(rig, task())
    assert rig.ok("P/runs/get_plan", {"run_spec": task(commands=["echo other"])})["action"] == "create"
    other = {"plan": {"run_spec": task(commands=["echo other"])}, "force": True}
    message = rig.refused("P/runs/apply", other)
    assert "commands" in message and "dstack stop hello" in message


def test_a_run_that_is_ending_keeps_its_name_until_it_has(rig: Rig) -> None:
    made = submit(rig, task())
    rig.ok("P/runs/stop", {"runs_names": ["hello"], "abort": False})
    assert run_of(rig, made["id"]).status is RunStatus.terminating
    assert rig.ok("P/runs/get_plan", {"run_spec": task()})["action"] == "create"
    for force in (True, False):
        body = {"plan": {"run_spec": task(), "current_resource": rig.ok("P/runs/get", {"run_name": "hello"})}}
        assert "it is still ending" in rig.refused("P/runs/apply", {**body, "force": force})
    finish(rig, made["id"])
    assert submit(rig, task())["id"] != made["id"]


def test_a_finished_run_is_replaced_and_leaves_the_lists(rig: Rig) -> None:
    first = submit(rig, task())
    finish(rig, first["id"])
    second = submit(rig, task(commands=["echo other"]))
    assert second["id"] != first["id"]
    old = run_of(rig, first["id"])
    assert (old.deleted, old.deleted_at, old.due_at) == (True, rig.world.at, None)
    assert [run["id"] for run in rig.ok("/api/runs/list", {})] == [second["id"]]
    assert rig.ok("P/runs/get", {"run_name": "hello"})["id"] == second["id"]
    assert rig.ok("P/runs/get", {"id": first["id"]})["deleted"] is True


def test_a_plan_that_was_overtaken_is_refused_unless_forced(rig: Rig) -> None:
    first = submit(rig, task())
    finish(rig, first["id"])
    second = submit(rig, task())
    finish(rig, second["id"])
    stale = {"plan": {"run_spec": task(), "current_resource": first}, "force": False}
    assert "since this plan was made" in rig.refused("P/runs/apply", stale)
    assert rig.ok("P/runs/apply", {**stale, "force": True})["id"] not in (first["id"], second["id"])


@pytest.mark.slow
def test_a_spec_too_large_to_keep_is_refused_with_a_way_out(rig: Rig) -> None:
    spec = task(commands=["x" * 400_000])
    assert "files:" in rig.refused("P/runs/get_plan", {"run_spec": spec})
    assert "files:" in rig.refused("P/runs/apply", {"plan": {"run_spec": spec}, "force": False})


@pytest.mark.slow
def test_names_are_invented_and_differ(rig: Rig) -> None:
    names = {submit(rig, task(None))["run_spec"]["run_name"] for _ in range(20)}
    assert len(names) == 20


# --- what a run shows -----------------------------------------------------------------------------------------------


def placed(job: Job, at: int) -> Job:
    where = Assignment(
        instance_id="i" * 8,
        instance_name="pool-0",
        fleet_id="f",
        fleet_name="pool",
        offer=OFFERS[2],
        hostname="10.0.0.1",
        assigned_at=at,
    )
    return job.with_(status=JobStatus.running, assignment=where)


def test_a_placed_job_shows_where_it_is_and_what_it_costs(rig: Rig) -> None:
    made = submit(rig, task())
    rig.save(placed(job_of(rig, made["id"]), rig.world.clock.now()))
    rig.world.clock.pass_(2 * 3600)
    run = rig.ok("P/runs/get", {"run_name": "hello"})
    where = run["latest_job_submission"]["job_provisioning_data"]
    assert (where["backend"], where["region"], where["hostname"], where["price"]) == ("vultr", "fra", "10.0.0.1", 1.5)
    assert run["latest_job_submission"]["job_runtime_data"]["offer"]["instance"]["name"] == "a100"
    assert run["cost"] == 3.0


def test_the_cost_is_the_sum_over_all_submissions_and_stops_with_them(rig: Rig) -> None:
    made = submit(rig, task())
    now = rig.world.clock.now()
    first = placed(job_of(rig, made["id"]), now).with_(status=JobStatus.failed, finished_at=now + HOUR)
    second = first.with_(id=rig.project.id, submission_num=1, version=0, finished_at=now + 30 * MINUTE)
    rig.save(first)
    rig.world.plane.store.commit([nouns.put(second)])
    rig.world.clock.pass_(9 * 3600)
    run = rig.ok("P/runs/get", {"run_name": "hello"})
    assert run["cost"] == 2.25 and len(run["jobs"][0]["job_submissions"]) == 2
    (listed,) = rig.ok("/api/runs/list", {"job_submissions_limit": 1})
    assert [s["submission_num"] for s in listed["jobs"][0]["job_submissions"]] == [1] and listed["cost"] == 2.25


@pytest.mark.parametrize(
    ("status", "reason", "exit_status", "shown", "error"),
    [
        (JobStatus.done, JobReason.done_by_runner, 0, "exited (0)", None),
        (JobStatus.failed, JobReason.container_exited_with_error, 3, "exited (3)", None),
        (JobStatus.failed, JobReason.executor_error, None, "error", "executor error"),
        (JobStatus.terminated, JobReason.terminated_by_server, None, "terminated", None),
        (JobStatus.running, None, None, "running", None),
    ],
)
def test_the_status_cell_says_how_a_job_ended(
    rig: Rig, status: JobStatus, reason: JobReason | None, exit_status: int | None, shown: str, error: str | None
) -> None:
    made = submit(rig, task())
    rig.save(job_of(rig, made["id"]).with_(status=status, reason=reason, exit_status=exit_status))
    job = rig.ok("P/runs/get", {"run_name": "hello"})["latest_job_submission"]
    assert (job["status_message"], job["error"]) == (shown, error)


def test_a_run_that_waits_for_another_try_says_so(rig: Rig) -> None:
    made = submit(rig, task())
    rig.save(
        run_of(rig, made["id"]).with_(
            status=RunStatus.pending, retries=(ReplicaRetry(attempt=1),), message="no capacity"
        )
    )
    run = rig.ok("P/runs/get", {"run_name": "hello"})
    assert (run["status"], run["status_message"], run["message"]) == ("pending", "retrying", "no capacity")


# --- lists ----------------------------------------------------------------------------------------------------------


def submit_many(rig: Rig, count: int) -> list[str]:
    ids = []
    for number in range(count):
        rig.world.clock.pass_(0 if number % 3 else 1)  # some at the very same moment
        ids.append(submit(rig, task(f"run-{number}"))["id"])
    return ids


@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.slow
def test_pages_join_without_gap_or_repeat(rig: Rig, ascending: bool) -> None:
    ids = set(submit_many(rig, 23))
    seen: list[dict[str, Any]] = []
    while True:
        last = {"prev_submitted_at": seen[-1]["submitted_at"], "prev_run_id": seen[-1]["id"]} if seen else {}
        page = rig.ok("/api/runs/list", {"limit": 5, "ascending": ascending, **last})
        if not page:
            break
        seen += page
    assert len(seen) == len(ids) and {run["id"] for run in seen} == ids
    times = [from_iso(run["submitted_at"]) for run in seen]
    assert times == sorted(times, reverse=not ascending)


def test_a_page_may_begin_at_a_time_alone(rig: Rig) -> None:
    submit_many(rig, 6)
    at = iso(rig.world.clock.now())
    older = rig.ok("/api/runs/list", {"prev_submitted_at": at})
    assert older and all(from_iso(run["submitted_at"]) < from_iso(at) for run in older)
    newer = rig.ok("/api/runs/list", {"prev_submitted_at": older[-1]["submitted_at"], "ascending": True})
    assert all(from_iso(run["submitted_at"]) > from_iso(older[-1]["submitted_at"]) for run in newer)


def test_finished_runs_leave_the_active_list_only(rig: Rig) -> None:
    first, second = submit_many(rig, 2)
    finish(rig, first)
    assert [run["id"] for run in rig.ok("/api/runs/list", {"only_active": True})] == [second]
    assert len(rig.ok("/api/runs/list", {})) == 2


def test_filters_find_all_that_match_however_far_back(rig: Rig) -> None:
    ann = rig.user("ann", ProjectRole.user)
    submit(rig, {**task("old-one"), "repo_id": "mine"})
    rig.ok("P/runs/apply", {"plan": {"run_spec": task("anns")}, "force": False}, token=ann)
    submit_many(rig, 6)
    assert [r["run_spec"]["run_name"] for r in rig.ok("/api/runs/list", {"username": "ann", "limit": 1})] == ["anns"]
    assert [r["run_spec"]["run_name"] for r in rig.ok("/api/runs/list", {"repo_id": "mine", "limit": 1})] == ["old-one"]


def test_a_user_sees_the_runs_of_their_projects_only(rig: Rig) -> None:
    submit(rig, task())
    other = rig.another_project("other")
    ann = rig.user("ann", ProjectRole.user, other)
    rig.ok("/api/project/other/runs/apply", {"plan": {"run_spec": task("anns")}, "force": False}, token=ann)
    assert [(r["project_name"], r["user"]) for r in rig.ok("/api/runs/list", {}, token=ann)] == [("other", "ann")]
    assert rig.ok("/api/runs/list", {"project_name": "main"}, token=ann) == []
    assert len(rig.ok("/api/runs/list", {})) == 2
    assert len(rig.ok("/api/runs/list", {"project_name": "other"})) == 1


def test_jobs_can_be_left_out(rig: Rig) -> None:
    submit(rig, task())
    for body in ({"include_jobs": False}, {"job_submissions_limit": 0}):
        (run,) = rig.ok("/api/runs/list", body)
        assert run["jobs"] == [] and run["latest_job_submission"] is not None
    assert rig.ok("/api/runs/list", {"limit": 0}) == []


# --- stop and delete ------------------------------------------------------------------------------------------------


def test_a_stop_is_committed_with_its_event_and_wakes_the_engine(rig: Rig) -> None:
    made = submit(rig, task())
    rig.world.take_woken()
    assert rig.ok("P/runs/stop", {"runs_names": ["hello"], "abort": False}) is None
    run = run_of(rig, made["id"])
    assert (run.status, run.reason) == (RunStatus.terminating, RunReason.stopped_by_user)
    assert run.due_at == rig.world.clock.now() and f"run/{run.id}" in rig.world.take_woken()
    assert "submitted → terminating: stopped by user" in messages(rig)


def test_an_abort_overrules_a_stop_but_not_the_other_way_round(rig: Rig) -> None:
    made = submit(rig, task())
    for abort in (False, True, False):
        rig.ok("P/runs/stop", {"runs_names": ["hello"], "abort": abort})
    assert run_of(rig, made["id"]).reason is RunReason.aborted_by_user


def test_stopping_what_has_ended_is_harmless(rig: Rig) -> None:
    made = submit(rig, task())
    finish(rig, made["id"])
    before = run_of(rig, made["id"])
    rig.ok("P/runs/stop", {"runs_names": ["hello"], "abort": True})
    assert run_of(rig, made["id"]) == before


def test_nothing_is_stopped_or_deleted_when_a_name_is_unknown(rig: Rig) -> None:
    made = submit(rig, task())
    assert "nope" in rig.refused("P/runs/stop", {"runs_names": ["hello", "nope"], "abort": False})
    assert run_of(rig, made["id"]).status is RunStatus.submitted
    finish(rig, made["id"])
    assert "nope" in rig.refused("P/runs/delete", {"runs_names": ["hello", "nope"]})
    assert not run_of(rig, made["id"]).deleted


def test_only_finished_runs_are_deleted_and_their_name_is_free_then(rig: Rig) -> None:
    made = submit(rig, task())
    assert "dstack stop hello" in rig.refused("P/runs/delete", {"runs_names": ["hello"]})
    finish(rig, made["id"])
    assert rig.ok("P/runs/delete", {"runs_names": ["hello", "hello"]}) is None
    assert (
        rig.call("/api/project/main/runs/get", {"run_name": "hello"}).json["detail"][0]["code"] == "resource_not_exists"
    )
    assert rig.ok("/api/runs/list", {}) == []
    assert submit(rig, task())["id"] != made["id"]


def test_a_name_that_isnt_allowed_is_one_problem_among_others(rig: Rig) -> None:
    error = rig.refused("P/runs/get_plan", {"run_spec": task("My_Run", priority=101, user=":")})
    assert [line.partition(": ")[0] for line in error.splitlines()] == ["name", "user", "priority"]


@pytest.mark.parametrize(
    ("field", "value"), [("entrypoint", "'"), ("user", "9" * 4301), ("user", f"1:{2**32 - 1}"), ("user", 10**18)]
)
def test_what_no_host_could_run_is_refused_by_its_field(rig: Rig, field: str, value: Any) -> None:
    raw = task("odd", **{field: value})
    for path, body in (("get_plan", {"run_spec": raw}), ("apply", {"plan": {"run_spec": raw}, "force": False})):
        assert f"{field}: " in rig.refused(f"P/runs/{path}", body)


# --- once -----------------------------------------------------------------------------------------------------------


def apply_with_key(rig: Rig, spec: dict[str, Any], key: str = "k") -> Response:
    body = {"plan": {"run_spec": spec}, "force": False}
    return rig.call(f"/api/project/{rig.project.name}/runs/apply", body, idempotency_key=key)


@pytest.mark.parametrize("name", [None, "train"])
def test_with_a_key_a_submission_is_made_once(rig: Rig, name: str | None) -> None:
    first, again = (apply_with_key(rig, task(name)) for _ in range(2))
    assert first.status == 200 and first.json == again.json
    other = apply_with_key(rig, task("other"))
    assert other.status == 400 and "used in the last 24 hours" in other.json["detail"][0]["msg"]
    assert [run["id"] for run in rig.ok("/api/runs/list")] == [first.json["id"]]
    finish(rig, first.json["id"])
    another = apply_with_key(rig, task(name), "another")
    assert another.status == 200 and another.json["id"] != first.json["id"]
    replayed = apply_with_key(rig, task(name)).json
    assert replayed["id"] == first.json["id"], "what that request made"
    assert not replayed["deleted"], "as it was answered, although a later run may have its name"


def test_with_a_key_a_change_is_made_once(rig: Rig) -> None:
    made = submit(rig, task("train"))
    spec = task("train")
    spec["configuration"]["priority"] = 7
    first, again = (apply_with_key(rig, spec) for _ in range(2))
    assert first.json["id"] == again.json["id"] == made["id"]
    assert first.json["deployment_num"] == again.json["deployment_num"] == 1
