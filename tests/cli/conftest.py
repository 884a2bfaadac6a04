from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cli.config import ProjectEntry, config_path, save_projects
from cli.main import invoke
from cli.terminal import Terminal
from tests.cli.plane import Plane

NOW = 1_795_237_260.0  # 2026-11-21 05:01:00 UTC


@pytest.fixture
def plane() -> Iterator[Plane]:
    found = Plane()
    found.start()
    yield found
    found.stop()


@dataclass
class Ended:
    code: int
    out: str
    err: str

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"


@dataclass
class Dstack:
    """The command line in this process, with a home, a folder, a clock and answers of its own."""

    terminal: Terminal
    naps: list[float]

    def __call__(self, *args: str, answers: str = "", **changes: object) -> Ended:
        out, err, before = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO(), sys.stdin
        sys.stdin = io.StringIO(answers)
        try:
            with redirect_stdout(out), redirect_stderr(err):
                code = invoke(list(args), replace(self.terminal, **changes))  # type: ignore[arg-type]
        finally:
            sys.stdin = before
        out.flush()
        return Ended(code, out.buffer.getvalue().decode(), err.getvalue())  # type: ignore[attr-defined]


@pytest.fixture
def bare(tmp_path: Path) -> Dstack:
    """Nothing is set up yet."""
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    naps: list[float] = []
    terminal = Terminal(
        env={}, home=tmp_path / "home", cwd=tmp_path / "work", now=lambda: NOW, sleep=naps.append, watched=False
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
