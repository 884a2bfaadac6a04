"""The calls of an agent under faults: a full disk, a race, and the real session core on the other side."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.program.commands import Abort, Remove, Start, Stop
from chalicelib.agent.program.session import AgentSession, Message
from chalicelib.domain import keys
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.jobs import JobStatus
from chalicelib.domain.keys import Key
from chalicelib.domain.reasons import JobReason
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.errors import Conflict, Refused, StorageFull
from chalicelib.store.log_files import FileLogs
from chalicelib.store.port import MAX_CHANGES, Change, Index
from chalicelib.usecases.agents.calls import JOBS_A_COMMIT, has_news, sync
from chalicelib.usecases.pace import EMBEDDED
from chalicelib.usecases.people.rights_revision import revision_of
from tests.usecases.cluster import FACTS, INSTANCE, PROJECT, Cluster, exited, logs, running, wants
from tests.world.plane import World
from tests.world.time import NOW


class FullLogs(FileLogs):
    full = True

    def append(self, project_id: str, job_id: str, offset: int, records: Sequence[Any]) -> int:
        if self.full:
            raise StorageFull("The disk is full.", hint="Make room.")
        return super().append(project_id, job_id, offset, records)


class Wrapped:
    """A store that runs something just before its next commit."""

    def __init__(self, store: Any) -> None:
        self.store, self.before = store, lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def commit(self, changes: Sequence[Change]) -> None:
        before, self.before = self.before, lambda: None
        before()
        self.store.commit(changes)


def wrapped(world: World) -> Wrapped:
    store = Wrapped(world.plane.store)
    world.plane = replace(world.plane, store=store)
    return store


def test_with_a_full_disk_the_agent_keeps_its_bytes_and_nothing_is_lost(world: World, tmp_path: Path) -> None:
    disk = FullLogs(tmp_path / "logs")
    world.plane = replace(world.plane, logs=disk)
    cluster = Cluster.of(world)
    cluster.agent.join()
    job = cluster.place()
    with pytest.raises(StorageFull, match="full"):
        cluster.agent.sync(exited(job, 0, log_end=5), logs=[logs(job, 0, b"hello")])
    assert cluster.job(job).status is JobStatus.provisioning
    disk.full = False
    cluster.agent.sync(exited(job, 0, log_end=5), logs=[logs(job, 0, b"hello")])
    assert cluster.job(job).status is JobStatus.done and disk.end(PROJECT, job.id) == 5


def test_a_store_that_is_full_refuses_the_report_and_takes_it_later(world: World) -> None:
    store = wrapped(world)
    cluster = Cluster.of(world)
    cluster.agent.join()
    job = cluster.place()

    def full() -> None:
        raise StorageFull("The disk is full.")

    store.before = full
    with pytest.raises(StorageFull):
        cluster.agent.sync(running(job))
    assert cluster.job(job).status is JobStatus.provisioning
    cluster.agent.sync(running(job))
    assert cluster.job(job).status is JobStatus.running


def test_all_metrics_of_a_long_absence_are_kept(world: World) -> None:
    cluster = Cluster.of(world)
    cluster.agent.join()
    job = cluster.place()
    start = cluster.world.clock.at - 1_000 * SECOND
    points = [{"task": job.id, "at": start + n * SECOND, "cpu_usage_micro": n} for n in range(2 * MAX_CHANGES + 5)]
    cluster.agent.sync(running(job), metrics=points)
    page = cluster.world.plane.store.query("main", keys.metric(job.id, 0).pk, limit=1_000)
    assert len(page.records) == len(points)


def test_the_times_of_a_log_are_read_by_the_servers_clock(world: World) -> None:
    cluster = Cluster.of(world)
    cluster.agent.join()
    job, now = cluster.place(), cluster.world.clock.at
    cluster.agent.sync(running(job), at=now - 60 * MINUTE)
    early = {"task": job.id, "offset": 0, "records": [[now - 60 * MINUTE, "aGk="]]}
    cluster.agent.sync(running(job), logs=[early], at=now - 60 * MINUTE)
    assert cluster.world.plane.logs.read(PROJECT, job.id).records == ((now, b"hi"),)


@pytest.mark.slow
def test_more_states_than_a_commit_takes_are_asked_for_at_once(world: World) -> None:
    cluster = Cluster.of(world, total_blocks=40)
    cluster.agent.join()
    reports = [running(cluster.place(f"task-{n}")) for n in range(40)]
    cluster.agent.sync(*({**each, "state": "preparing"} for each in reports))
    left = ceil(len(reports) / JOBS_A_COMMIT)
    assert [has_news(cluster.agent.sync(*reports)) for _ in range(left)] == [True] * (left - 1) + [False]


@pytest.mark.parametrize("times", [7, 8])
def test_a_report_that_loses_against_others_again_and_again_comes_later(world: World, times: int) -> None:
    cluster = Cluster.of(world)
    cluster.agent.join()
    job = cluster.place()
    store, left = wrapped(world), iter(range(times))

    def beaten() -> None:
        store.before = beaten
        if next(left, None) is not None:
            raise Conflict("job")

    store.before = beaten
    with pytest.raises(Refused, match="changing too fast") if times == 8 else nullcontext():
        cluster.agent.sync(running(job))
    assert (cluster.job(job).status is JobStatus.running) == (times == 7)


def test_a_report_that_meets_a_stop_is_applied_to_what_the_stop_made_of_the_job(world: World) -> None:
    store = wrapped(world)
    cluster = Cluster.of(world)
    cluster.agent.join()
    job = cluster.place()

    def stop() -> None:
        ending = {"status": JobStatus.terminating, "reason": JobReason.terminated_by_user, "kill_at": NOW}
        cluster.save(cluster.job(job).with_(**ending))

    store.before = stop
    answer = cluster.agent.sync(running(job))
    assert cluster.job(job).status is JobStatus.terminating and wants(answer) == {job.id: "abort"}


def test_two_hosts_jobs_that_end_while_another_is_placed_lose_no_claim(world: World) -> None:
    store = wrapped(world)
    cluster = Cluster.of(world)
    cluster.agent.join()
    first = cluster.place("first")
    placed = []
    store.before = lambda: placed.append(cluster.place("second"))
    answer = cluster.agent.sync(exited(first, 0))
    assert cluster.job(first).status is JobStatus.done
    assert [claim.job_id for claim in cluster.instance.claims] == [placed[0].id]
    assert wants(answer) == {first.id: "remove", placed[0].id: "run"}


def test_every_event_of_a_job_is_told_once_however_often_it_is_retried(world: World) -> None:
    store = wrapped(world)
    cluster = Cluster.of(world)
    cluster.agent.join()
    job = cluster.place()
    store.before = lambda: cluster.save(cluster.instance.with_(last_processed_at=NOW + 1))
    cluster.agent.sync(exited(job, 0))
    messages = [event.message for event in cluster.events if event.targets[0].type == "job"]
    assert len(messages) == len(set(messages)) == 3


def test_a_lookup_reads_nothing_it_does_not_need(world: World) -> None:
    seen: list[int] = []

    class Counting(Wrapped):
        def get_many(self, keys: Sequence[Key]) -> Any:
            seen.append(len(keys))
            return self.store.get_many(keys)

        def query(self, index: Index, partition: str, **more: Any) -> Any:
            page = self.store.query(index, partition, **more)
            seen.append(len(page.records))
            return page

        def commit(self, changes: Sequence[Change]) -> None:
            seen.append(-len(changes))
            self.store.commit(changes)

    cluster = Cluster.of(world)
    cluster.agent.join()
    job = cluster.place()
    cluster.agent.sync(running(job))
    world.plane = replace(world.plane, store=Counting(world.plane.store))
    for access, beside in ((None, 0), (revision_of(None), 1)):  # with the job, who may log in to it
        seen.clear()
        answer = cluster.agent.sync(running(job, access=access))
        assert seen == [2, 1 + beside] and not has_news(answer)


# --- with the agent's own session core at the other end ---------------------------------------------------------------


class Rig:
    """The session, its log on 'disk', and the plane; every message is answered at once unless it is dropped."""

    def __init__(self, world: World) -> None:
        world.plane = replace(world.plane, pace=EMBEDDED)
        self.cluster = Cluster.of(world)
        self.world, self.time, self.log = world, 0.0, b""
        token = bootstrap_token(world.plane.install_key, INSTANCE, 0)
        self.session = AgentSession(INSTANCE, "boot-1", "", self._read, token=token)
        self.session.facts_changed(FACTS)
        self.commands: list[Any] = []

    def _read(self, task: str, offset: int, limit: int) -> tuple[int, list[tuple[int, bytes]]]:
        data = self.log[offset : offset + limit]
        return offset, [(NOW, data)] if data else []

    def write(self, task: str, data: bytes) -> None:
        self.log += data
        self.session.log_grew(task, len(self.log), self.time)

    def exchange(self, times: int = 6, lose_answers: int = 0) -> None:
        for _ in range(times):
            self.time += 0.5
            self.world.clock.pass_(0.5)
            message = self.session.next(self.time)
            while isinstance(message, Message):
                answer = sync(self.world.plane, INSTANCE, message.credential, message.body)
                if lose_answers:
                    lose_answers -= 1
                    self.session.failed(message, "lost", self.time)
                    self.time += 2
                else:
                    self.commands += self.session.answered(message, answer, self.time)
                message = self.session.next(self.time) if not message.wait else None

    def of(self, kind: type) -> list[Any]:
        return [command for command in self.commands if isinstance(command, kind)]


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_job_runs_to_its_end_with_the_real_session(world: World, lost: int) -> None:
    rig = Rig(world)
    rig.exchange(lose_answers=lost)
    job = rig.cluster.place()
    rig.exchange(lose_answers=lost)
    (start,) = rig.of(Start)
    assert start.task == job.id and start.spec["commands"]
    rig.session.task_changed(running(job))
    rig.write(job.id, b"some output\n" * 1000)
    rig.exchange(lose_answers=lost)
    assert rig.cluster.job(job).status is JobStatus.running
    rig.write(job.id, b"the end\n")
    rig.session.task_changed(exited(job, 0, reason="done_by_runner"))
    rig.exchange(12, lose_answers=lost)
    assert rig.cluster.job(job).status is JobStatus.done
    assert [command.task for command in rig.of(Remove)] == [job.id]
    page = world.plane.logs.read(PROJECT, job.id)
    assert b"".join(data for _, data in page.records) == rig.log
    assert rig.cluster.job(job).log_end == len(rig.log)


def test_a_stop_and_an_abort_reach_the_session_once_each(world: World) -> None:
    rig = Rig(world)
    rig.exchange()
    job = rig.cluster.place()
    rig.exchange()
    rig.session.task_changed(running(job))
    rig.exchange()
    now = world.clock.at
    ending = {"status": JobStatus.terminating, "reason": JobReason.terminated_by_user, "kill_at": now + 20_000_000}
    rig.cluster.save(rig.cluster.job(job).with_(**ending))
    rig.exchange(20)
    assert len(rig.of(Stop)) == 1 and not rig.of(Abort)
    world.clock.pass_(20)
    rig.exchange(10)
    assert len(rig.of(Abort)) == 1
    rig.session.task_changed(exited(job, 137))
    rig.exchange(10)
    assert rig.cluster.job(job).status is JobStatus.terminated and rig.of(Remove)


def test_a_stop_before_the_task_arrived_ends_the_job_through_the_session(world: World) -> None:
    rig = Rig(world)
    rig.exchange()
    job = rig.cluster.place()
    ending = {"status": JobStatus.terminating, "reason": JobReason.aborted_by_user, "kill_at": NOW}
    rig.cluster.save(rig.cluster.job(job).with_(**ending))
    rig.exchange(10)
    assert rig.cluster.job(job).status is JobStatus.aborted and not rig.of(Start)
