"""A log's readers make the job's agent send its output at once, where calls are billed; otherwise it waits for a
while."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chalicelib.domain.instants import HOUR, MINUTE, SECOND
from chalicelib.domain.jobs import Job
from chalicelib.domain.tenants import Project
from chalicelib.store import nouns
from chalicelib.store.logs import LogQuery
from chalicelib.usecases.pace import EMBEDDED, FOLLOWED, PER_CALL
from chalicelib.usecases.runs.logs import read_log
from tests.usecases.cluster import Cluster, exited, logs, running
from tests.world.nouns import PROJECT
from tests.world.plane import World

PACE = {"next_sync_in": PER_CALL.slow, "log_every": PER_CALL.log}
READ = {"next_sync_in": PER_CALL.fast, "log_every": PER_CALL.followed}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.in_folder(tmp_path)


def settled(world: World) -> tuple[Cluster, Job]:
    """A job that has run for long."""
    cluster = Cluster.of(world)
    cluster.agent.join()
    job = cluster.place()
    cluster.agent.sync(running(job))
    world.at += HOUR
    cluster.agent.sync(running(job))
    return cluster, job


def read(world: World, job: Job, **query: int) -> None:
    project = nouns.find(world.store, Project, Project(id=PROJECT, name="main", owner_id="", created_at=0).place().key)
    assert project is not None
    read_log(world.plane, project, job.run_name, job.id, LogQuery(**query))


def pace(answer: dict[str, object]) -> dict[str, object]:
    return {name: answer[name] for name in PACE}


def test_output_is_sent_at_once_while_somebody_reads_and_no_longer(world: World) -> None:
    cluster, job = settled(world)
    assert pace(cluster.agent.sync(running(job))) == PACE
    read(world, job)
    assert pace(cluster.agent.sync(running(job))) == READ
    world.at += FOLLOWED + SECOND
    assert pace(cluster.agent.sync(running(job))) == PACE


def test_a_reader_who_stays_is_noted_twice_a_minute_at_most(world: World) -> None:
    cluster, job = settled(world)
    read(world, job)
    noted = cluster.presence.version
    for _ in range(20):
        world.at += SECOND
        read(world, job)
    assert cluster.presence.version == noted
    world.at += MINUTE // 4
    read(world, job)
    assert cluster.presence.version == noted + 1


def test_nothing_is_noted_for_whoever_isnt_at_the_logs_end_or_reads_one_that_has_ended(world: World) -> None:
    cluster, job = settled(world)
    cluster.agent.sync(running(job), logs=[logs(job, 0, b"one\n", b"two\n")])
    noted = cluster.presence.version
    read(world, job, limit=1)
    assert cluster.presence.version == noted
    cluster.agent.sync(exited(job, 0, log_end=8))
    ended = cluster.presence.version
    read(world, job)
    assert cluster.presence.version == ended


def test_where_calls_are_free_nobody_notes_anything(world: World) -> None:
    cluster, job = settled(world)
    world.plane = replace(world.plane, pace=EMBEDDED)
    noted = cluster.presence.version
    read(world, job)
    assert cluster.presence.version == noted
