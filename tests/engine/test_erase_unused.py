"""What nobody uses any more is erased, bit by bit, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.closings import Closing
from chalicelib.domain.exports import Export
from chalicelib.domain.instants import DAY, HOUR, MINUTE
from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.keys import Key
from chalicelib.domain.reasons import JobReason, RunReason
from chalicelib.domain.retention import Retention
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.domain.tenants import Archive, Project, ProjectRole, UserUploads
from chalicelib.engine.erase_unused import BATCH, Erased, Eraser
from chalicelib.planning.projects.erasure import MOST_SUBMISSIONS
from chalicelib.store import nouns
from chalicelib.store.listing import every
from chalicelib.store.logs import LogQuery
from chalicelib.store.port import MAX_CHANGES, Change, Delete, Put, Record, Store
from tests.api.rig import Rig, submit, task
from tests.api.test_runs import finish, job_of, placed, run_of
from tests.api.uploads import multipart, tar, upload
from tests.world import nouns as b
from tests.world.engine import Engine
from tests.world.time import NOW

FILES = "/api/files/upload_archive"


def turn(rig: Rig, store: Store | None = None, **retention: int) -> Erased:
    """By a process of its own, as after a restart."""
    plane = rig.world.plane
    return Eraser(store or plane.store, plane.blobs, plane.logs, rig.world.clock, Retention(**retention)).run()


def pass_days(rig: Rig, days: float) -> None:
    rig.world.clock.at += round(days * DAY)


def ended(rig: Rig, name: str = "hello", **spec: Any) -> Run:
    """A finished run with a log."""
    made = submit(rig, {**task(name), **spec})
    rig.world.plane.logs.append(rig.project.id, job_of(rig, made["id"]).id, 0, [(NOW, b"a line\n")])
    finish(rig, made["id"])
    return run_of(rig, made["id"])


def log_of(rig: Rig, job_id: str) -> bytes:
    return b"".join(data for _, data in rig.world.plane.logs.read(rig.project.id, job_id, LogQuery()).records)


def left_of(rig: Rig, run: Run) -> list[str]:
    return [record.key.sk for record in rig.world.plane.store.query("main", f"run/{run.id}").records]


class Crashing:
    """A store whose process dies with a certain commit, before or after it is made."""

    def __init__(self, below: Any, at: int, *, after: bool) -> None:
        self.get, self.get_many, self.query = below.get, below.get_many, below.query
        self.due, self.next_due, self.close = below.due, below.next_due, below.close
        self._below, self._left, self._after = below, at, after

    def commit(self, changes: Sequence[Change]) -> None:
        self._left -= 1
        if self._left < 0 and not self._after:
            raise KeyboardInterrupt
        self._below.commit(changes)
        if self._left < 0:
            raise KeyboardInterrupt


# --- runs -----------------------------------------------------------------------------------------------------------


def test_a_deleted_run_leaves_nothing_behind(rig: Rig) -> None:
    run, other = ended(rig), ended(rig, "other")
    job = job_of(rig, run.id)
    rig.ok("P/runs/delete", {"runs_names": ["hello"]})
    assert turn(rig).runs == [] and rig.ok("P/runs/get", {"id": run.id})["deleted"]
    pass_days(rig, 1)
    assert turn(rig).runs == [run.id]
    assert left_of(rig, run) == [] and log_of(rig, job.id) == b""
    assert "There is no run" in rig.refused("P/runs/get", {"id": run.id})
    assert len(left_of(rig, other)) == 3 and log_of(rig, job_of(rig, other.id).id) == b"a line\n"
    assert submit(rig, task())["id"] != run.id, "its name can be used again"
    assert turn(rig) == Erased()


def test_a_run_that_another_replaced_goes_too(rig: Rig) -> None:
    old, new = ended(rig), submit(rig, task())
    pass_days(rig, 1)
    assert turn(rig).runs == [old.id] and left_of(rig, old) == []
    assert rig.ok("P/runs/get", {"run_name": "hello"})["id"] == new["id"]


def test_logs_go_a_month_after_the_end_and_the_run_stays(rig: Rig) -> None:
    run = ended(rig)
    pass_days(rig, 29.9)
    assert turn(rig).logs == [] and log_of(rig, job_of(rig, run.id).id)
    pass_days(rig, 0.1)
    assert turn(rig).logs == [run.id]
    assert log_of(rig, job_of(rig, run.id).id) == b"" and len(left_of(rig, run)) == 3
    assert rig.ok("/api/runs/list", {})[0]["id"] == run.id
    assert turn(rig) == Erased(), "once is enough"


def test_a_run_that_lives_keeps_its_log_however_old_it_is(rig: Rig) -> None:
    made = submit(rig, task())
    job = job_of(rig, made["id"])
    rig.world.plane.logs.append(rig.project.id, job.id, 0, [(NOW, b"a line\n")])
    pass_days(rig, 1000)
    assert replace(turn(rig), events=0) == Erased() and log_of(rig, job.id) == b"a line\n"


def test_a_run_whose_job_still_ends_is_left_alone(rig: Rig) -> None:
    made = submit(rig, task())
    run = run_of(rig, made["id"])
    rig.save(run.with_(status=RunStatus.failed, reason=RunReason.server_error, finished_at=NOW, due_at=None))
    rig.ok("P/runs/delete", {"runs_names": ["hello"]})
    pass_days(rig, 100)
    assert turn(rig).runs == [] and len(left_of(rig, run)) == 3


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("commits", range(5))
def test_a_crash_leaves_the_rest_to_the_next_turn(rig: Rig, commits: int, after: bool) -> None:
    runs = [ended(rig, "one"), ended(rig, "two"), ended(rig, "three")]
    jobs = [job_of(rig, run.id).id for run in runs]
    rig.ok("P/runs/delete", {"runs_names": ["one", "two"]})
    upload(rig, FILES, multipart(tar(("a", b"1"))))
    pass_days(rig, 40)
    crashing: Any = Crashing(rig.world.plane.store, commits, after=after)
    with pytest.raises(KeyboardInterrupt):
        turn(rig, crashing)
    turn(rig)
    assert [left_of(rig, run) for run in runs[:2]] == [[], []] and len(left_of(rig, runs[2])) == 3
    assert [log_of(rig, job) for job in jobs] == [b"", b"", b""]
    assert run_of(rig, runs[2].id).logs_erased
    assert list((rig.world.folder / "blobs").rglob("*.*")) == [] and turn(rig) == Erased()


def test_one_that_cannot_be_erased_holds_up_no_other(rig: Rig) -> None:
    broken, run = ended(rig, "broken"), ended(rig)
    path = rig.world.folder / "logs" / rig.project.id / f"{job_of(rig, broken.id).id}.log"
    path.unlink()
    (path / "in-the-way").mkdir(parents=True)
    rig.ok("P/runs/delete", {"runs_names": ["broken", "hello"]})
    pass_days(rig, 1)
    assert turn(rig).runs == [run.id] and len(left_of(rig, broken)) == 3
    (path / "in-the-way").rmdir()
    path.rmdir()
    assert turn(rig).runs == [broken.id]


@pytest.mark.slow
def test_a_turn_is_bounded(rig: Rig) -> None:
    """By number, and by time: a slow disk doesn't make it longer."""
    runs = [b.run(f"r{n}", status=RunStatus.done, deleted=True, deleted_at=NOW) for n in range(BATCH + 3)]
    for start in range(0, len(runs), 100):
        rig.save(*runs[start : start + 100])
    pass_days(rig, 1)
    assert len(turn(rig).runs) == BATCH

    class Slow(Crashing):
        def commit(self, changes: Sequence[Change]) -> None:
            rig.world.clock.at += MINUTE
            rig.world.plane.store.commit(changes)

    assert len(turn(rig, Slow(rig.world.plane.store, 0, after=False)).runs) == 1  # type: ignore[arg-type]
    assert len(turn(rig).runs) == 2


def test_runs_are_found_and_logs_deleted_where_indexes_lag_and_logs_are_blobs() -> None:
    world = Engine.in_memory(lag=MINUTE)
    job = world.run("train")
    run = nouns.find(world.store, Run, keys.run(job.run_id))
    assert run is not None
    world.plane.logs.append(job.project_id, job.id, 0, [(NOW, b"a line\n")])
    stopped = job.with_(status=JobStatus.done, finished_at=NOW, due_at=None)
    world.save(stopped, run.with_(status=RunStatus.done, finished_at=NOW, deleted=True, deleted_at=NOW))
    world.at += DAY
    plane = world.plane
    assert Eraser(plane.store, plane.blobs, plane.logs, world.clock, Retention()).run().runs == [run.id]
    assert plane.blobs.list("logs/") == [] and plane.store.query("main", f"run/{run.id}").records == ()


def test_a_run_that_starts_again_and_again_keeps_its_last_jobs(rig: Rig) -> None:
    """Each time of a schedule adds a job."""
    made = submit(rig, task())
    first = job_of(rig, made["id"])
    pass_days(rig, 1)
    for number in range(4):  # a day apart
        now = rig.world.clock.now()
        rig.world.plane.logs.append(rig.project.id, job_of(rig, made["id"], number).id, 0, [(now, b"a line\n")])
        last = job_of(rig, made["id"], number)
        rig.save(last.with_(status=JobStatus.done, reason=JobReason.done_by_runner, finished_at=now, due_at=None))
        rig.save(first.with_(id=f"job-{number + 1}", submission_num=number + 1, submitted_at=now, version=0))
        pass_days(rig, 1)
    before = rig.ok("P/runs/get", {"id": made["id"]})
    pass_days(rig, 27.1)
    assert turn(rig).jobs == [first.id, "job-1"] and log_of(rig, first.id) == b"" != log_of(rig, "job-2")
    after = rig.ok("P/runs/get", {"id": made["id"]})
    (submissions,) = (job["job_submissions"] for job in after["jobs"])
    assert [each["submission_num"] for each in submissions] == [2, 3, 4]
    assert after["latest_job_submission"] == before["latest_job_submission"]
    pass_days(rig, 100)
    assert turn(rig).jobs == ["job-2", "job-3"] and turn(rig) == Erased()
    assert len(left_of(rig, run_of(rig, made["id"]))) == 3


def test_what_erased_jobs_have_cost_stays_part_of_the_whole(rig: Rig) -> None:
    made = submit(rig, task())
    first, now = placed(job_of(rig, made["id"]), rig.world.clock.now()), rig.world.clock.now()
    over = {"status": JobStatus.done, "reason": JobReason.done_by_runner, "finished_at": now + HOUR, "due_at": None}
    rig.save(first.with_(**over))
    for number in (1, 2):
        rig.save(first.with_(**over, id=f"job-{number}", submission_num=number, version=0))
    cost = rig.ok("P/runs/get", {"id": made["id"]})["cost"]
    pass_days(rig, 31)
    assert turn(rig).jobs == [first.id, "job-1"]
    assert rig.ok("P/runs/get", {"id": made["id"]})["cost"] == cost > 0


def test_a_service_that_is_young_and_scales_often_keeps_its_last_jobs(rig: Rig) -> None:
    config = {"type": "service", "port": 80, "commands": ["serve"], "replicas": 1}
    made = submit(rig, {"run_name": "chat", "configuration": config})
    first, now = job_of(rig, made["id"]), rig.world.clock.now()
    gone = first.with_(status=JobStatus.terminated, reason=JobReason.scaled_down, finished_at=now, due_at=None)
    rig.save(gone)
    for number in range(1, MOST_SUBMISSIONS + 3):
        rig.save(gone.with_(id=f"job-{number}", submission_num=number, submitted_at=now + number, version=0))
    assert turn(rig).jobs == [first.id, "job-1"]


# --- archives -------------------------------------------------------------------------------------------------------


def archive(rig: Rig) -> Any:
    return upload(rig, FILES, multipart(tar(("a", b"1")))).json


def with_files(sent: Any) -> dict[str, Any]:
    return {"file_archives": [{"id": sent["id"], "path": "/a"}]}


def test_an_archive_that_nobody_uses_goes_with_its_bytes_and_can_be_uploaded_again(rig: Rig) -> None:
    sent = archive(rig)
    ended(rig, **with_files(sent))
    pass_days(rig, 29.9)
    assert turn(rig).archives == []
    pass_days(rig, 0.2)
    assert turn(rig).archives == [sent["id"]]
    assert [path for path in (rig.world.folder / "blobs").rglob("*") if path.is_file()] == []
    reply = rig.call("/api/files/get_archive_by_hash", {"hash": sent["hash"]})
    assert reply.json["detail"][0]["code"] == "resource_not_exists"
    assert archive(rig) == sent and rig.ok("/api/files/get_archive_by_hash", {"hash": sent["hash"]}) == sent


@pytest.mark.parametrize("how", ["asked for", "uploaded", "submitted"])
def test_an_archive_that_is_used_stays(rig: Rig, how: str) -> None:
    sent = archive(rig)
    ended(rig, **with_files(sent))
    pass_days(rig, 29)
    if how == "asked for":
        rig.ok("/api/files/get_archive_by_hash", {"hash": sent["hash"]})
    elif how == "uploaded":
        archive(rig)
    else:
        ended(rig, **with_files(sent))
    pass_days(rig, 29)
    assert turn(rig).archives == []
    pass_days(rig, 1)
    assert turn(rig).archives == [sent["id"]]


def test_an_archive_that_no_run_was_submitted_with_goes_after_a_day(rig: Rig) -> None:
    sent = archive(rig)
    pass_days(rig, 0.9)
    rig.ok("/api/files/get_archive_by_hash", {"hash": sent["hash"]})
    rig.ok("P/runs/get_plan", {"run_spec": {**task(), **with_files(sent)}})
    pass_days(rig, 0.9)
    assert turn(rig).archives == [], "it was asked for within a day"
    pass_days(rig, 0.2)
    assert turn(rig).archives == [sent["id"]]


def test_what_an_erased_archive_took_of_its_users_uploads_is_free_again(rig: Rig) -> None:
    archive(rig)
    upload(rig, FILES, multipart(tar(("b", b"2"))))
    owner = nouns.find_target(rig.world.plane.store, keys.user_name("admin"))
    assert owner is not None
    uploads = nouns.find(rig.world.plane.store, UserUploads, keys.uploads(owner[0]))
    assert uploads is not None and uploads.size > 20_000
    pass_days(rig, 1.1)
    assert len(turn(rig).archives) == 2
    assert nouns.find(rig.world.plane.store, UserUploads, keys.uploads(owner[0])) is None


def test_an_archive_of_a_live_run_stays_however_long_it_waits(rig: Rig) -> None:
    sent = archive(rig)
    made = submit(rig, {**task(), **with_files(sent)})
    for _ in range(3):
        pass_days(rig, 100)
        assert turn(rig).archives == []
    finish(rig, made["id"])
    pass_days(rig, 100)
    assert turn(rig).archives == [sent["id"]]


def test_the_code_of_a_live_run_stays(rig: Rig) -> None:
    rig.ok("P/repos/init", {"repo_id": "none", "repo_info": {"repo_type": "virtual"}, "repo_creds": None})
    content = multipart(tar(("a", b"1")))
    assert upload(rig, "P/repos/upload_code", content, query={"repo_id": "none"}).status == 200
    (blob,) = rig.world.plane.blobs.list("code/")
    made = submit(rig, {**task(), "repo_code_hash": blob.rpartition("/")[2]})
    pass_days(rig, 100)
    assert turn(rig).archives == []
    finish(rig, made["id"])
    pass_days(rig, 100)
    assert len(turn(rig).archives) == 1 and rig.world.plane.blobs.list("code/") == []


def test_an_archive_whose_end_has_begun_counts_as_gone(rig: Rig) -> None:
    """Its bytes may be deleted at any moment; the same content is stored beside them."""
    sent = archive(rig)
    pass_days(rig, 31)
    with pytest.raises(KeyboardInterrupt):
        turn(rig, Crashing(rig.world.plane.store, 0, after=True))  # type: ignore[arg-type]
    found = nouns.find(rig.world.plane.store, Archive, keys.archive(sent["id"]))
    assert found is not None and found.erased
    assert rig.call("/api/files/get_archive_by_hash", {"hash": sent["hash"]}).status == 400
    assert "file_archives" in rig.refused("P/runs/get_plan", {"run_spec": {**task(), **with_files(sent)}})
    assert archive(rig) == sent
    again = rig.world.again(found)
    assert not again.erased and again.blob != found.blob and rig.world.plane.blobs.get(again.blob)
    assert turn(rig).archives == []


# --- events ---------------------------------------------------------------------------------------------------------


def test_events_of_before_there_was_an_end_for_them_go_too(rig: Rig) -> None:
    submit(rig, task())
    store = rig.world.plane.store
    assert all(record.expires_at is None for record in store.query("main", keys.events_of(rig.project.id)).records)
    pass_days(rig, 60)
    submit(rig, task("other"))
    pass_days(rig, 30.1)
    assert turn(rig).events > 0
    left = store.query("main", keys.events_of(rig.project.id)).records
    assert left and all(keys.event_at(record.key) >= NOW + 60 * DAY for record in left)
    assert store.query("main", keys.events_of("")).records == ()


# --- projects -------------------------------------------------------------------------------------------------------


def closed(rig: Rig) -> Project:
    """A project with everything in it, deleted a moment ago."""
    rig.ok("/api/projects/create", {"project_name": "lab"})
    found = nouns.find_target(rig.world.plane.store, keys.project_name("lab"))
    assert found is not None
    project = nouns.find(rig.world.plane.store, Project, keys.project(found[0]))
    assert project is not None
    lab = Rig(rig.world, project)
    lab.user("ann", ProjectRole.user)
    lab.ok("P/secrets/create_or_update", {"name": "key", "value": "hush"})
    creds = {"clone_url": "https://a/b", "oauth_token": "hush"}
    remote = {"repo_type": "remote", "repo_name": "b"}
    lab.ok("P/repos/init", {"repo_id": "mine", "repo_info": remote, "repo_creds": creds})
    ended(lab, "one"), ended(lab, "two")
    lab.ok("P/runs/delete", {"runs_names": ["two"]})
    rig.ok("/api/projects/delete", {"projects_names": ["lab"]})
    return project


def settle(rig: Rig, project: Project) -> None:
    """What the pass over the closing does once nothing runs."""
    closing = nouns.find(rig.world.plane.store, Closing, keys.closing(project.id))
    assert closing is not None
    rig.save(closing.with_(due_at=None))


def test_a_deleted_project_keeps_its_own_record_and_its_events_and_nothing_else(rig: Rig) -> None:
    project = closed(rig)
    settle(rig, project)
    before = len(rig.ok("P/secrets/list"))
    assert turn(rig) == Erased()
    pass_days(rig, 1)
    assert len(turn(rig).runs) == 2
    assert turn(rig).projects == [project.id] and turn(rig) == Erased()
    store = rig.world.plane.store
    assert [record.key.sk for record in store.query("main", f"project/{project.id}").records] == ["status"]
    assert store.query("gsi1", keys.runs_of(project.id)).records == ()
    assert store.query("main", keys.events_of(project.id)).records != ()
    folder = rig.world.folder / "logs" / project.id
    assert list(folder.iterdir()) == []
    assert len(rig.ok("P/secrets/list")) == before
    rig.ok("/api/projects/create", {"project_name": "lab"})


def test_what_a_deleted_project_shared_is_looked_for_by_nobody(rig: Rig) -> None:
    project = closed(rig)
    settle(rig, project)
    store, other = rig.world.plane.store, rig.project.id
    shared = Export(id="e", project_id=project.id, project_name="lab", name="hosts", created_at=1)
    shared = shared.with_(is_global=True, importers=(other,))
    store.commit([nouns.put(shared), *(nouns.pointer(key, f"{project.id}/hosts") for key in shared.pointers)])
    assert rig.world.plane.read.imports(other) != []
    pass_days(rig, 1)
    turn(rig)
    assert store.query("main", "exports").records == ()
    assert [*every(store, f"project/{other}", "import/")] == []


def test_more_of_a_project_than_one_commit_holds_goes_in_one_turn(rig: Rig) -> None:
    project = closed(rig)
    settle(rig, project)
    store, pk = rig.world.plane.store, nouns.key_of(project).pk
    for sort in ("member", "secret"):
        store.commit([Put(Record(Key(pk, f"{sort}/{n}"), 1, b"{}"), 0) for n in range(MAX_CHANGES)])
    pass_days(rig, 1)
    turn(rig)
    assert [record.key.sk for record in store.query("main", pk).records] == ["status"]


def test_the_record_of_a_deleted_project_goes_with_the_last_of_its_events(rig: Rig) -> None:
    project = closed(rig)
    settle(rig, project)
    pass_days(rig, 1)
    for _ in range(3):
        turn(rig)
    pass_days(rig, 88.9)
    assert turn(rig).forgotten == []
    pass_days(rig, 0.2)
    assert turn(rig).forgotten == [], "events of its last day still name it"
    assert turn(rig).forgotten == [project.id] and turn(rig) == Erased()
    store = rig.world.plane.store
    assert [*store.query("main", f"project/{project.id}").records, *store.query("gsi1", keys.CLOSED).records] == []
    assert store.get(keys.closing(project.id)) is None
    assert rig.ok("/api/projects/list", {})[0]["project_name"] == rig.project.name


def test_a_project_of_which_something_runs_is_left_alone(rig: Rig) -> None:
    project = closed(rig)
    pass_days(rig, 100)
    assert turn(rig).projects == []
    assert any(r.key.sk == "secret/key" for r in rig.world.plane.store.query("main", f"project/{project.id}").records)


def test_a_project_that_another_turn_has_just_forgotten_troubles_nobody(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Its closing is read, then its project, and both go between the two."""
    project = closed(rig)
    settle(rig, project)
    store = rig.world.plane.store
    store.commit([Delete(keys.project(project.id))])
    pass_days(rig, 1)
    assert turn(rig).projects == []
    closing = nouns.find(store, Closing, keys.closing(project.id))
    assert closing is not None
    store.commit([nouns.put(closing.with_(erased=True))])
    pass_days(rig, 1000)
    assert turn(rig).forgotten == []
    assert [each.message for each in caplog.records if each.levelname == "ERROR"] == []


def test_a_deletion_that_is_taken_back_meanwhile_keeps_everything(rig: Rig) -> None:
    project = closed(rig)
    settle(rig, project)
    pass_days(rig, 1)

    class TakenBack(Crashing):
        def commit(self, changes: Sequence[Change]) -> None:
            found = nouns.find(rig.world.plane.store, Project, keys.project(project.id))
            if found is not None and found.deleted:
                back = [nouns.put(found.with_(deleted=False)), Delete(keys.closing(project.id))]
                rig.world.plane.store.commit(back)
            rig.world.plane.store.commit(changes)

    turn(rig, TakenBack(rig.world.plane.store, 0, after=False))  # type: ignore[arg-type]
    records = [record.key.sk for record in rig.world.plane.store.query("main", f"project/{project.id}").records]
    assert {"secret/key", "repo/mine", "run-name/one"} <= set(records)


@pytest.fixture
def rig(tmp_path: Path) -> Any:
    made = Rig.at(tmp_path)
    yield made
    made.world.plane.store.close()
