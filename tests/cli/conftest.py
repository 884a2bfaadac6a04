from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.config import ProjectEntry, config_path, save_projects
from cli.terminal import Terminal
from tests.cli.plane import Plane
from tests.world import cli

NOW = 1_795_237_260.0  # 2026-11-21 05:01:00 UTC


@pytest.fixture
def plane() -> Plane:
    return Plane()


@dataclass
class Dstack(cli.Dstack):
    """With its pauses."""

    naps: list[float]


@pytest.fixture
def bare(tmp_path: Path, plane: Plane) -> Dstack:
    """Nothing is set up yet; the plane is there for who knows its address."""
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    naps: list[float] = []
    terminal = Terminal(
        env={},
        home=tmp_path / "home",
        cwd=tmp_path / "work",
        now=lambda: NOW,
        sleep=naps.append,
        watched=False,
        via=plane.via,
    )
    return Dstack(terminal, naps)


@pytest.fixture
def dstack(bare: Dstack, plane: Plane) -> Dstack:
    """With project `main` of the plane as the default."""
    save_projects(config_path(bare.terminal.home), [ProjectEntry("main", plane.url, "secret-token", True)])
    return bare


def interrupt_at(nap: int) -> Callable[[float], None]:
    """A sleeper that is interrupted, as by Ctrl-C, at its n-th call."""
    count = 0

    def sleep(seconds: float) -> None:
        nonlocal count
        count += 1
        if count == nap:
            raise KeyboardInterrupt

    return sleep
