"""Real shells, on a terminal as jobs have one, for what planning makes of a run's commands."""

from __future__ import annotations

import os
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chalicelib.agent.runtimes import steps
from chalicelib.domain.specs.runs import RunSpec
from chalicelib.planning.jobs.jobs import agent_task
from tests.harness.debian import BUSYBOX, busybox_or_skipped
from tests.world import nouns as b

SHELLS = {"bash": "/bin/bash", "dash": "/bin/dash", "busybox": str(BUSYBOX)}
PATIENCE = 120.0  # seconds: a shell that prompts would wait for ever
BANNER = "for a list of built-in commands.\n\n"  # of some builds of busybox


@dataclass(frozen=True)
class Ended:
    output: str
    status: int
    step: str  # in which of its commands, as its end is reported

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()


def placed(shell: str, folder: Path) -> str:
    """A path at which this shell is `sh`, unless it is bash."""
    if shell == "bash":
        return SHELLS[shell]
    if shell == "busybox":
        busybox_or_skipped()
    path = folder / "shells" / shell / "sh"
    if not path.is_symlink():
        path.parent.mkdir(parents=True)
        path.symlink_to(SHELLS[shell])
    return str(path)


def sent(run: RunSpec) -> dict[str, Any]:
    """A run's task, as its agent gets it."""
    return agent_task(b.job(b.run()), b.job_spec(run), b.host(), "main")


def ended(shell: str, commands: list[str], folder: Path, **env: str) -> Ended:
    run = b.run_spec(image="x", shell=placed(shell, folder), commands=commands)
    return execute(sent(run), folder, **env)


def execute(task: dict[str, Any], folder: Path, typed: bytes = b"", **env: str) -> Ended:
    place = folder / "command"
    place.write_text("")
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TERM": "xterm", **env}
    environment.update(steps.variable(task, str(place)))
    argv = task["commands"]
    terminal, far = os.openpty()
    os.write(terminal, typed)  # echoed before anything is printed
    # No copy of this large process is made. Whoever leads a session and opens a terminal has it as its own.
    pid = os.posix_spawn(
        "/usr/bin/env",
        ["env", "-C", str(folder), *argv],
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.ttyname(far), os.O_RDWR, 0),
            *((os.POSIX_SPAWN_DUP2, 0, number) for number in (1, 2)),
        ],
        setsid=True,
        setsigdef=[signal.SIGINT],  # whoever starts tests in the background ignores it
    )
    os.close(far)
    output = _read(pid, terminal).decode().replace("\r\n", "\n")
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return Ended(output.rpartition(BANNER)[2], status, steps.name(task, steps.read(str(place))))


def _read(pid: int, terminal: int) -> bytes:
    """All that is written to the terminal."""
    until, parts = time.monotonic() + PATIENCE, [b""]
    try:
        while select.select([terminal], [], [], max(0.0, until - time.monotonic()))[0]:
            try:
                part = os.read(terminal, 65536)
            except OSError:  # the last one who could write has closed it
                return b"".join(parts)
            parts.append(part)
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise AssertionError(f"still running: {b''.join(parts)[-300:]!r}")
    finally:
        os.close(terminal)
