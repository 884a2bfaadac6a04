"""Leaving a machine, as far as files show it: no task runs, and a fake supervisor does what it is asked to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.program import clearing
from chalicelib.agent.program.roster import Roster
from tests.agent.desk import Desk


class Obeyed(Roster):
    """Its supervisors end at once, unless they hang."""

    hangs: tuple[str, ...] = ()

    def __init__(self, desk: Desk) -> None:
        super().__init__(str(desk.data), dict(desk.runtimes), "docker", "program.pyz", "/d.sock")
        self.launched: list[str] = []

    def launch(self, task: str, fetch: Any) -> None:
        fetch("https://a", "/b")  # a task that is about to end downloads nothing
        self.launched.append(task)
        if task not in self.hangs and self.folder(task).request() == {"abort": True}:
            self.folder(task).write_state({"state": "exited"})


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path / "data")
    desk.create("over")
    desk.state("over", state="exited")
    desk.create("orphan", runtime="process")
    desk.state("orphan", state="running")
    return desk


@pytest.fixture
def roster(desk: Desk) -> Obeyed:
    return Obeyed(desk)


def test_every_task_is_ended_and_all_that_is_left_of_it_deleted(desk: Desk, roster: Obeyed, tmp_path: Path) -> None:
    (desk.data / "credential").write_text("secret")
    (desk.data / "elsewhere").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    assert clearing.clear(str(desk.data), dict(desk.runtimes), roster) == ""
    assert roster.launched == ["orphan"], "one that is over needs no supervisor"
    assert (desk.runtimes["process"].removed, desk.runtimes["docker"].removed) == (["orphan"], ["over"])
    assert all(runtime.swept == [set()] for runtime in desk.runtimes.values()), "what no task names goes, too"
    assert list(desk.data.iterdir()) == []
    assert (tmp_path / "kept" / "file").exists(), "only the link was the agent's"


def test_a_task_that_doesnt_end_is_named_and_keeps_the_folder(desk: Desk, roster: Obeyed) -> None:
    roster.hangs = ("orphan",)
    assert clearing.clear(str(desk.data), dict(desk.runtimes), roster, 0.0) == "these tasks don't end: orphan"
    assert roster.tasks() == ["orphan"]
    assert all(runtime.swept == [] for runtime in desk.runtimes.values())
    roster.hangs = ()
    assert clearing.clear(str(desk.data), dict(desk.runtimes), roster) == "", "it may be repeated"


def test_a_task_whose_supervisor_lives_is_asked_and_not_given_another(desk: Desk, roster: Obeyed) -> None:
    held = roster.folder("orphan").take_lock()
    assert held is not None
    try:
        clearing.clear(str(desk.data), dict(desk.runtimes), roster, 0.0)
    finally:
        os.close(held)
    assert roster.launched == [] and roster.folder("orphan").request() == {"abort": True}
