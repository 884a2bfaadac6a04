"""A disk that fills up while an image is pulled: the job ends with that reason, and the disk is as it was."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.agent.runtimes.docker import DockerRuntime
from tests.agent.runtime_conformance import Workshop
from tests.harness import registry
from tests.harness.docker import DockerEngine, or_skipped

DISK_MIB = 24


@pytest.fixture(scope="module")
def small_engine() -> Iterator[DockerEngine]:
    with or_skipped(DISK_MIB) as engine:
        yield engine


def used(engine: DockerEngine) -> int:
    """MiB."""
    disk = os.statvfs(engine.folder / "data")
    return (disk.f_blocks - disk.f_bfree) * disk.f_frsize >> 20


@pytest.mark.parametrize("mib", [15, 40], ids=["while it is unpacked", "while it is downloaded"])
def test_a_full_disk_ends_the_job_and_is_cleared(tmp_path: Path, small_engine: DockerEngine, mib: int) -> None:
    workshop = Workshop(tmp_path, DockerRuntime(str(tmp_path), small_engine.socket), small_engine.socket)
    before = used(small_engine)
    with registry.beside(small_engine.folder.name, mib) as image:
        task = workshop.start("true", image=image)
        state = workshop.exited(task)
    assert state["reason"] == "creating_container_error"
    assert image in state["message"] and "the disk of this machine's Docker engine is full" in state["message"]
    workshop.until(lambda: used(small_engine) <= before + 1, task)
    assert small_engine.api.call("GET", "/images/json") == []
    workshop.end()
