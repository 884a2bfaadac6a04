from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.connection.config import ProjectEntry, config_path, save_projects
from cli.screen.terminal import Terminal
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
        browse=lambda address: True,
        begin=lambda arguments, log, descriptor: None,
    )
    return Dstack(terminal, naps)


@pytest.fixture(scope="session")
def configured(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file with project `main` of the plane as the default."""
    path = config_path(tmp_path_factory.mktemp("configured"))
    save_projects(path, [ProjectEntry("main", Plane.url, "secret-token", True)])
    return path.read_bytes()


@pytest.fixture
def dstack(bare: Dstack, configured: bytes) -> Dstack:
    """With project `main` of the plane as the default."""
    path = config_path(bare.terminal.home)
    path.parent.mkdir(mode=0o700)
    path.write_bytes(configured)
    path.chmod(0o600)
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
