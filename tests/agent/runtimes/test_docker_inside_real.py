"""`docker: true`: a job has a Docker engine of its own, which ends with it and leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.agent.runtimes.docker import DockerRuntime
from chalicelib.agent.runtimes.docker_client import container_name
from chalicelib.planning.jobs.jobs import agent_task, job_specs
from tests.agent.runtime_conformance import Workshop
from tests.harness.docker import DockerEngine, bring
from tests.harness.images import ENGINE, engine_image
from tests.world import nouns as b

IMPORT = "tar -cC / bin | docker import - inner >/dev/null"


@pytest.fixture
def workshop(tmp_path: Path, docker_engine: DockerEngine) -> Iterator[Workshop]:
    bring(docker_engine, engine_image())
    runtime = DockerRuntime(str(tmp_path), docker_engine.socket)
    workshop = Workshop(tmp_path, runtime, docker_engine.socket, {"image": ENGINE, "docker": True, "privileged": True})
    yield workshop
    workshop.end()


def commands(*wanted: str) -> list[str]:
    """As a plan has them for `docker: true`."""
    spec = job_specs(b.run_spec(docker=True, commands=list(wanted)), images=b.Images())[0]
    return list(agent_task(b.job(b.run()), spec, b.host(), "main")["commands"])


def volumes(engine: DockerEngine) -> int:
    return len(engine.api.call("GET", "/volumes").get("Volumes") or [])


def test_a_container_runs_in_the_jobs_own_engine(workshop: Workshop, docker_engine: DockerEngine) -> None:
    before = volumes(docker_engine)
    run = "docker run --rm --network none inner /bin/sh -c 'echo from the inside; exit 5'"
    task = workshop.start("", commands=commands(IMPORT, "docker info -f '={{.Driver}}='", run))
    state = workshop.exited(task)
    log = workshop.log(task)
    assert (state["exit_status"], b"from the inside" in log) == (5, True), log
    assert b"=overlay2=" in log, "its layers are on a disk, not on another layer"
    assert docker_engine.api.container(container_name(task)) is not None
    workshop.roster.remove(task)
    assert volumes(docker_engine) == before


def test_an_engine_that_doesnt_start_is_shown_with_its_log(workshop: Workshop) -> None:
    task = workshop.start("", commands=commands("echo never"), privileged=False)
    state = workshop.exited(task)
    log = workshop.log(task)
    assert (state["exit_status"], b"never" in log) == (1, False)
    assert b"The Docker engine of this job does not start:" in log and b"permi" in log.lower()
