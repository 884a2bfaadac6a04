"""Logs, metrics and history over HTTP."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, cast

import pytest

from chalicelib.domain import keys
from chalicelib.domain.events import Event, EventType, Target
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import MINUTE, SECOND, iso
from chalicelib.domain.jobs import Job
from chalicelib.domain.retention import Retention
from chalicelib.domain.tenants import GlobalRole, ProjectRole, User
from chalicelib.domain.usage import Part, StorageUsage
from chalicelib.store import nouns
from chalicelib.store.history import SPAN
from chalicelib.store.port import MAX_CHANGES, Page, Store
from chalicelib.usecases.agent_message import MetricPoint
from chalicelib.usecases.operator import events
from chalicelib.usecases.runs.logs import MAX_BYTES
from chalicelib.usecases.runs.metrics import metric_puts
from tests.api.rig import ADMIN, Rig, fleet, submit, task
from tests.api.uploads import message, send
from tests.world.time import NOW


@pytest.fixture
def job(rig: Rig) -> Job:
    rig.ok("P/fleets/apply", {"plan": {"spec": fleet()}, "force": False})
    run = submit(rig, task())
    found = nouns.find(rig.world.plane.store, Job, keys.job(run["id"], 0, 0, 0))
    assert found is not None
    return found


def poll(rig: Rig, job: Job, **fields: Any) -> tuple[list[bytes], str | None]:
    answer = rig.ok("P/logs/poll", {"run_name": "hello", "job_submission_id": job.id, **fields})
    assert answer.keys() == {"logs", "external_url", "next_token"}
    return [base64.b64decode(entry["message"]) for entry in answer["logs"]], answer["next_token"]


def write(rig: Rig, job: Job, count: int) -> list[bytes]:
    lines = [f"line {number}\n".encode() for number in range(count)]
    records = [(NOW + number * SECOND, line) for number, line in enumerate(lines)]
    rig.world.plane.logs.append(job.project_id, job.id, 0, records)
    return lines


def test_a_log_comes_in_pages_that_end_without_a_token(rig: Rig, job: Job) -> None:
    lines = write(rig, job, 25)
    first, token = poll(rig, job, limit=10)
    second, token = poll(rig, job, limit=10, next_token=token)
    third, end = poll(rig, job, limit=10, next_token=token)
    assert first + second + third == lines and end is None
    assert poll(rig, job, limit=1000) == (lines, None)


def test_a_page_of_a_log_has_so_many_bytes_and_no_more(rig: Rig, job: Job) -> None:
    line = b"x" * (MAX_BYTES // 3)
    rig.world.plane.logs.append(job.project_id, job.id, 0, [(NOW + number, line) for number in range(4)])
    first, token = poll(rig, job, limit=1000)
    assert first == [line] * 3 and token is not None
    assert poll(rig, job, limit=1000, next_token=token) == ([line], None)


def test_a_log_can_be_read_from_a_moment_on_and_backwards(rig: Rig, job: Job) -> None:
    lines = write(rig, job, 10)
    assert poll(rig, job, start_time=iso(NOW + 7 * SECOND))[0] == lines[7:]
    assert poll(rig, job, end_time=iso(NOW + 2 * SECOND))[0] == lines[:2]
    assert poll(rig, job, descending=True)[0] == lines[::-1]


def test_any_bytes_travel(rig: Rig, job: Job) -> None:
    raw = bytes(range(256)) * 10
    rig.world.plane.logs.append(job.project_id, job.id, 0, [(NOW, raw)])
    assert b"".join(poll(rig, job)[0]) == raw


def test_no_log_yet_is_an_empty_page(rig: Rig, job: Job) -> None:
    assert poll(rig, job) == ([], None) and poll(rig, job, limit=0) == ([], None)


def test_diagnose_tells_the_story_of_the_job(rig: Rig, job: Job) -> None:
    lines, token = poll(rig, job, diagnose=True)
    assert lines and token is None
    assert any(line.startswith(b"run hello: ") for line in lines)
    body = {"run_name": "hello", "job_submission_id": job.id, "diagnose": True, "next_token": "0"}
    assert "is a single page" in rig.refused("P/logs/poll", body)


def test_a_story_can_be_read_backwards(rig: Rig, job: Job) -> None:
    rig.ok("P/runs/stop", {"runs_names": ["hello"], "abort": False})
    forwards, _ = poll(rig, job, diagnose=True)
    backwards, _ = poll(rig, job, diagnose=True, descending=True)
    assert len(forwards) > 1 and backwards == forwards[::-1]


def test_a_story_is_told_from_a_moment_until_another(rig: Rig, job: Job) -> None:
    """What happens at the last moment comes after it."""
    before, _ = poll(rig, job, diagnose=True)
    rig.world.at += MINUTE
    rig.ok("P/runs/stop", {"runs_names": ["hello"], "abort": False})
    both, _ = poll(rig, job, diagnose=True)
    assert before and len(both) > len(before)
    assert poll(rig, job, diagnose=True, end_time=iso(rig.world.at))[0] == before
    assert poll(rig, job, diagnose=True, start_time=iso(rig.world.at))[0] == both[len(before) :]


def test_bad_polls_are_refused(rig: Rig, job: Job) -> None:
    body = {"run_name": "hello", "job_submission_id": job.id}
    assert "'nope'" in rig.refused("P/logs/poll", {**body, "run_name": "nope"})
    assert "token" in rig.refused("P/logs/poll", {**body, "next_token": "nonsense"})
    assert "job_submission_id" in rig.refused("P/logs/poll", {**body, "job_submission_id": "../../x"})
    assert "limit" in rig.refused("P/logs/poll", {**body, "limit": 5000})
    assert "start_time" in rig.refused("P/logs/poll", {**body, "start_time": "yesterday"})


def test_another_projects_log_is_out_of_reach(rig: Rig, job: Job) -> None:
    write(rig, job, 3)
    other = rig.another_project("other")
    token = rig.user("ann", ProjectRole.user, other)
    body = {"run_name": "hello", "job_submission_id": job.id}
    assert rig.call("/api/project/main/logs/poll", body, token=token).status == 403
    assert rig.call("/api/project/other/logs/poll", body, token=token).status == 400
    rig.world.plane.store.commit([nouns.pointer(keys.run_name(other.id, "hello"), job.run_id)])
    assert rig.call("/api/project/other/logs/poll", body, token=token).json["logs"] == []


# --- metrics ----------------------------------------------------------------------------------------------------------


def measured(rig: Rig, job: Job, *points: tuple[int, int], gpus: list[Any] | None = None) -> None:
    """Points of (seconds, CPU seconds used so far)."""
    made = [
        MetricPoint.model_validate(
            {
                "task": job.id,
                "at": NOW + at * SECOND,
                "cpu_usage_micro": used * SECOND,
                "memory_usage_bytes": 100 + at,
                "memory_working_set_bytes": 50,
                "gpus": gpus or [{"memory_usage_bytes": 7, "util_percent": 42}],
            }
        )
        for at, used in points
    ]
    rig.world.plane.store.commit(metric_puts(made, {job.id: job}, rig.world.clock.at + MINUTE, 7))


def metrics(rig: Rig, **query: Any) -> dict[str, list[Any]]:
    params = {name: str(value) for name, value in query.items()}
    reply = send(rig, "GET", "P/metrics/job/hello", query=params)
    assert reply.status == 200, reply.body
    return {series["name"]: series["values"] for series in reply.json["metrics"]}


def test_cpu_is_what_was_used_between_two_points(rig: Rig, job: Job) -> None:
    measured(rig, job, (0, 0), (10, 5), (20, 25))
    found = metrics(rig, limit=1000)
    assert found["cpu_usage_percent"] == [200, 50]
    assert found["memory_usage_bytes"] == [120, 110]
    assert (found["gpu_util_percent_gpu0"], found["gpu_memory_usage_bytes_gpu0"]) == ([42, 42], [7, 7])
    assert metrics(rig)["cpu_usage_percent"] == [200]
    assert metrics(rig, before=iso(NOW + 15 * SECOND), limit=9)["cpu_usage_percent"] == [50]


def test_what_no_gpu_reports_is_no_value(rig: Rig, job: Job) -> None:
    """With MIG, for one, nobody knows how busy a card is: that isn't 0 %."""
    unsaid: list[Any] = [{"memory_usage_bytes": 7}, {"util_percent": 9}]
    measured(rig, job, (0, 0), (10, 5), (20, 25), gpus=unsaid)
    found = metrics(rig, limit=1000)
    assert {name: found[name] for name in found if "_gpu0" in name} == {"gpu_memory_usage_bytes_gpu0": [7, 7]}
    assert {name: found[name] for name in found if "_gpu1" in name} == {"gpu_util_percent_gpu1": [9, 9]}
    measured(rig, job, (30, 30), gpus=[{"memory_usage_bytes": 7, "util_percent": 50}, {}])
    reply = send(rig, "GET", "P/metrics/job/hello", query={"limit": "1000"}).json["metrics"]
    (load,) = [series for series in reply if series["name"] == "gpu_util_percent_gpu0"]
    assert load == {**load, "timestamps": [iso(NOW + 30 * SECOND)], "values": [50]}


def test_one_point_says_nothing_yet(rig: Rig, job: Job) -> None:
    measured(rig, job, (0, 0))
    assert metrics(rig, limit=10)["cpu_usage_percent"] == []


def test_a_restarted_counter_is_not_a_negative_load(rig: Rig, job: Job) -> None:
    measured(rig, job, (0, 100), (10, 3))
    assert metrics(rig)["cpu_usage_percent"] == [0]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"limit": "0"}, "limit"),
        ({"job_num": "x"}, "job_num"),
        ({"after": "now"}, "after"),
        ({"job_num": "3"}, "job 3"),
    ],
)
def test_bad_questions_are_refused(rig: Rig, job: Job, query: dict[str, str], expected: str) -> None:
    assert expected in message(send(rig, "GET", "P/metrics/job/hello", query=query))


def test_metrics_of_another_projects_run_are_out_of_reach(rig: Rig, job: Job) -> None:
    measured(rig, job, (0, 0), (10, 5))
    rig.another_project("other")
    reply = send(rig, "GET", "/api/project/other/metrics/job/hello", query={"run_id": job.run_id})
    assert "no run" in message(reply)


# --- events -----------------------------------------------------------------------------------------------------------


def listed(rig: Rig, token: str = ADMIN, **fields: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rig.ok("/api/events/list", fields, token=token)
    return found


def test_history_is_newest_first_and_pages(rig: Rig) -> None:
    for number in range(7):
        rig.world.clock.pass_(1)
        rig.ok("P/secrets/create_or_update", {"name": f"s{number}", "value": "v"})
    every = listed(rig, within_projects=[rig.project.id])
    assert [event["targets"][0]["name"] for event in every] == ["s6", "s5", "s4", "s3", "s2", "s1", "s0", "main"]
    paged: list[dict[str, Any]] = []
    while page := listed(
        rig,
        within_projects=[rig.project.id],
        limit=3,
        **({"prev_recorded_at": paged[-1]["recorded_at"], "prev_id": paged[-1]["id"]} if paged else {}),
    ):
        paged += page
    assert paged == every
    assert listed(rig, within_projects=[rig.project.id], ascending=True) == every[::-1]
    oldest = listed(rig, within_projects=[rig.project.id], ascending=True, limit=2)
    last = {"prev_recorded_at": oldest[-1]["recorded_at"], "prev_id": oldest[-1]["id"]}
    assert listed(rig, within_projects=[rig.project.id], ascending=True, limit=1, **last) == [every[-3]]


def test_events_of_one_moment_are_all_paged(rig: Rig) -> None:
    for number in range(5):
        rig.ok("P/secrets/create_or_update", {"name": f"s{number}", "value": "v"})
    seen: list[str] = []
    last: dict[str, Any] = {}
    while page := listed(rig, limit=2, include_target_types=["secret"], **last):
        seen += [event["targets"][0]["name"] for event in page]
        last = {"prev_recorded_at": page[-1]["recorded_at"], "prev_id": page[-1]["id"]}
    assert sorted(seen) == ["s0", "s1", "s2", "s3", "s4"]


def test_filters(rig: Rig, job: Job) -> None:
    within = listed(rig, within_runs=[job.run_id])
    assert within and all({"run", "job"} & {t["type"] for t in event["targets"]} for event in within)
    assert {t["id"] for event in listed(rig, target_runs=[job.run_id]) for t in event["targets"]} >= {job.run_id}
    assert listed(rig, target_jobs=[job.id]) == [e for e in within if job.id in {t["id"] for t in e["targets"]}]
    fleets = listed(rig, include_target_types=["fleet"])
    (pool,) = {t["id"] for event in fleets for t in event["targets"] if t["type"] == "fleet"}
    assert listed(rig, within_fleets=[pool]) and listed(rig, target_fleets=[pool])
    assert listed(rig, target_volumes=[pool]) == [] and listed(rig, target_runs=[pool]) == []
    nobody = derive("test", "nobody")
    assert listed(rig, actors=[nobody]) == [] and listed(rig, target_jobs=[nobody]) == []
    me = rig.ok("/api/users/get_my_user")["id"]
    by = listed(rig, actors=[me, None])
    assert {event["actor_user"] for event in by} <= {"admin", None} and by
    assert listed(rig, within_gateways=[nobody]) == []


def happened(rig: Rig, count: int, **which: Any) -> None:
    """So many older events of the project, `which` says of what kind, farther apart than those of a commit."""
    now = rig.world.plane.clock.now()
    made = [
        Event(
            id=derive("test", "event", number),
            project_id=rig.project.id,
            at=now - 1_000_000 - number * (SPAN + 1),
            type=EventType.changed,
            targets=(Target(type="secret", id=derive("test", "secret", number), name=f"s{number}"),),
            **(which if number == count - 1 else {}),
        )
        for number in range(count)
    ]
    for start in range(0, count, MAX_CHANGES):
        rig.save(*made[start : start + MAX_CHANGES])


class Counted:
    """A store that counts what queries read."""

    def __init__(self, store: Store) -> None:
        self._store, self.read = store, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def query(self, *args: Any, **more: Any) -> Page:
        page = self._store.query(*args, **more)
        self.read += len(page.records)
        return page


def listed_with_reads(rig: Rig, **fields: Any) -> tuple[list[Event], int]:
    """The page that a global admin gets, and how many records were read for it."""
    store = Counted(rig.world.plane.store)
    (admin,) = rig.ok("/api/users/list", {})
    actor = nouns.find(rig.world.plane.store, User, keys.user(admin["id"]))
    assert actor is not None
    found = events.list_events(cast(Store, store), actor, {rig.project.id: rig.project}, events.EventFilter(**fields))
    return found, store.read


@pytest.mark.slow
def test_a_filter_that_matches_little_answers_what_it_has_and_goes_on_from_there(rig: Rig) -> None:
    happened(rig, 2_500, actor_id=(rare := derive("test", "rare")), actor_name="rare")
    rig.ok("P/secrets/create_or_update", {"name": "new", "value": "v"})
    (me,) = {event["actor_user_id"] for event in listed(rig, limit=1)}
    wanted = {"actors": frozenset({me, rare})}
    first, read = listed_with_reads(rig, **wanted)
    assert [event.targets[0].name for event in first] == ["new"]
    assert read <= events.SCANNED + 2 * events.PAGE  # though a whole page was asked for
    second, _ = listed_with_reads(rig, **wanted, prev_at=first[-1].at, prev_id=first[-1].id)
    assert [event.actor_name for event in second] == ["rare"]  # 2,499 others later


@pytest.mark.slow
def test_a_filter_that_matches_nothing_reads_so_many_records_and_no_more(rig: Rig) -> None:
    happened(rig, events.MOST + 500, actor_id=(rare := derive("test", "rare")), actor_name="rare")
    found, read = listed_with_reads(rig, actors=frozenset({derive("test", "nobody")}))
    assert found == [] and read <= events.MOST + 2 * events.PAGE
    assert listed_with_reads(rig, actors=frozenset({rare}))[0] == []  # beyond the reach
    assert [event.actor_name for event in listed_with_reads(rig, actors=frozenset({rare}), ascending=True)[0]] == [
        "rare"
    ]


def test_many_projects_are_begun_with_small_pages(rig: Rig) -> None:
    happened(rig, 200)
    projects = {f"project-{number}": rig.project for number in range(100)} | {rig.project.id: rig.project}
    store = Counted(rig.world.plane.store)
    actor = User(id="x", name="x", role=GlobalRole.admin, created_at=1, token_hash="")
    found = events.list_events(cast(Store, store), actor, projects, events.EventFilter(limit=5))
    assert len(found) == 5 and store.read <= 3 * events.FEWEST


def test_the_fields_of_an_event(rig: Rig) -> None:
    rig.ok("P/secrets/create_or_update", {"name": "tok", "value": "v"})
    (event,) = listed(rig, include_target_types=["secret"])
    assert event.keys() == {
        "id",
        "message",
        "recorded_at",
        "actor_user_id",
        "actor_user",
        "is_actor_user_deleted",
        "actor_token",
        "targets",
    }
    (target,) = event["targets"]
    assert (target["type"], target["name"], target["project_name"]) == ("secret", "tok", "main")
    assert event["recorded_at"].endswith("+00:00")


def test_nobody_sees_the_history_of_a_project_that_isnt_theirs(rig: Rig, job: Job) -> None:
    token = rig.user("ann")
    everything = [{}, {"within_runs": [job.run_id]}, {"within_projects": [rig.project.id]}, {"target_jobs": [job.id]}]
    assert all(listed(rig, token, **fields) == [] for fields in everything)
    rig.ok("/api/projects/main/update", {"is_public": True})
    assert all(listed(rig, token, **fields) == [] for fields in everything)


def test_a_lost_membership_takes_the_history_away(rig: Rig) -> None:
    token = rig.user("ann", ProjectRole.user)
    assert listed(rig, token)
    rig.ok("/api/projects/main/remove_members", {"usernames": ["ann"]})
    assert listed(rig, token) == []


@pytest.mark.parametrize(
    "fields", [{"limit": 0}, {"limit": 101}, {"target_runs": []}, {"actors": ["x"]}, {"include_target_types": ["moon"]}]
)
def test_bad_filters_are_refused(rig: Rig, fields: dict[str, Any]) -> None:
    assert next(iter(fields)) in rig.refused("/api/events/list", fields)


# --- who is there -----------------------------------------------------------------------------------------------------


def test_the_server_says_who_it_is_without_a_token(rig: Rig) -> None:
    assert rig.call("/api/server/get_info", token=None).json == {"server_version": "0.22.5"}
    assert rig.call("/healthcheck", token=None, method="GET").json["status"] == "running"


def test_the_room_that_a_server_takes_is_shown_to_its_admins_only(tmp_path: Path) -> None:
    parts = (Part("logs", 7, 1), Part("blobs", 9, 3, whole=False))
    rig = Rig.at(tmp_path, measure=lambda: StorageUsage(parts, 5), retention=Retention(events=3))
    found = rig.ok("/api/server/get_usage")
    assert found["parts"] == [
        {"name": "logs", "bytes": 7, "files": 1, "whole": True},
        {"name": "blobs", "bytes": 9, "files": 3, "whole": False},
    ]
    assert (found["free"], found["days"]["events"]) == (5, 3)
    chief = rig.user("chief", ProjectRole.admin)
    assert rig.call("/api/server/get_usage", token=chief).status == 403
    rig.world.plane.store.close()


def test_history_says_that_who_made_it_is_gone(rig: Rig) -> None:
    ann = rig.user("ann", ProjectRole.admin)
    rig.ok("P/secrets/create_or_update", {"name": "tok", "value": "v"}, token=ann)
    before = {event["actor_user"]: event["is_actor_user_deleted"] for event in listed(rig)}
    rig.ok("/api/users/delete", {"users": ["ann"]})
    after = {event["actor_user"]: event["is_actor_user_deleted"] for event in listed(rig)}
    assert before["ann"] is False and after["ann"] is True and after["admin"] is False
