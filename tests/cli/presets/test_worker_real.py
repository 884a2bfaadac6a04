"""The worker as a process: a signal stops it and its run, and that it was killed is noticed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.kernel.process_tree import descendants, read_stat
from cli.connection.config import ProjectEntry, config_path, save_projects
from cli.presets import records, worker
from cli.presets.records import Folder
from cli.screen.terminal import Terminal
from tests.cli.plane import Plane
from tests.cli.presets.conftest import Cloud
from tests.cli.presets.samples import configuration, preset
from tests.cli.presets.scripted import Scripted, running
from tests.harness.server import until


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    before = set(descendants(os.getpid()))
    yield
    for pid in set(descendants(os.getpid())) - before:
        os.kill(pid, signal.SIGKILL)


def ended(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is None or stat[0] == "Z"


@pytest.fixture
def cloud(plane: Plane, scripted: Scripted) -> Iterator[Cloud]:
    with plane.on_http():
        found = Cloud(scripted)
        plane.answers |= found.answers()
        yield found


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    with running(Scripted()) as found:
        yield found


def begun(home: Path, plane: Plane, scripted: Scripted, cloud: Cloud) -> tuple[Folder, int]:
    """A preset whose first run waits for ever, and the process that creates it."""
    agent = {"provider": "openai", "url": f"{scripted.url}/llm/v1", "model": "planner", "effort": None}
    document: Any = preset(
        status="creating", url=plane.url, agent=agent, best=None, service=None, configuration=configuration()
    )
    save_projects(config_path(home), [ProjectEntry("main", plane.url, "t", True)])
    folder = records.created(home, document)
    cloud.waiting.add(f"preset-{folder.id}-1")
    before = set(descendants(os.getpid()))
    worker.start(Terminal(home=home), folder)
    until("its run", cloud.active)
    assert folder.read()["status"] == "creating"
    (pid,) = set(descendants(os.getpid())) - before
    return folder, pid


@pytest.mark.slow
def test_a_signal_stops_it_and_its_run(tmp_path: Path, plane: Plane, scripted: Scripted, cloud: Cloud) -> None:
    folder, pid = begun(tmp_path, plane, scripted, cloud)
    os.kill(pid, signal.SIGTERM)
    until("its end", lambda: folder.read()["status"] == "stopped")
    assert cloud.active() == [] and folder.read()["reason"] == "Stopped, as asked."
    until("its process to end", lambda: ended(pid))
    assert not folder.is_busy() and (folder.path / "agent.log").read_text() == ""


@pytest.mark.slow
def test_one_that_was_killed_is_interrupted_and_leaves_its_run_to_the_next(
    tmp_path: Path, plane: Plane, scripted: Scripted, cloud: Cloud
) -> None:
    folder, pid = begun(tmp_path, plane, scripted, cloud)
    os.kill(pid, signal.SIGKILL)
    until("its process to end", lambda: ended(pid))
    assert folder.read()["status"] == "interrupted" and cloud.active() == [f"preset-{folder.id}-1"]
    from cli.presets.creation import stop

    assert f"preset-{folder.id}-1, which it had left" in stop(Terminal(home=tmp_path), folder)
    assert cloud.active() == []
