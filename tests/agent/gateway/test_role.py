"""When a machine tries again to become one of a gateway. What it then does is in `test_role_real`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from chalicelib.agent.gateway.command import take_folder
from chalicelib.agent.gateway.packages import InstallError, Packages
from chalicelib.agent.gateway.role import ORDER, RETRY_FIRST, RETRY_MOST, GatewayRole, remove, running

SLOW_TO_END = """
import itertools, os, signal, sys
from chalicelib.agent.kernel.tasks import take_lock
lock, asked = take_lock(sys.argv[1]), itertools.count(1)
os.write(lock, b"%d" % os.getpid())
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7) if next(asked) == 3 else None)
print("ready", flush=True)
while True:
    signal.pause()
"""

RUNS = """
import fcntl, os, signal, sys
os.chdir(sys.argv[sys.argv.index("--folder") + 1])
lock = open("lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print(os.getpid(), file=lock, flush=True)
with open("state.json.new", "w") as state:
    state.write('{"state": "running"}')
os.rename("state.json.new", "state.json")
signal.pause()
"""


class Installed(Packages):
    def missing(self) -> bool:
        return False


class OfNoUse(Packages):
    """There is no nginx to be had."""

    def missing(self) -> bool:
        return True

    def install(self) -> None:
        raise InstallError("no nginx here")


def test_what_failed_is_tried_again_ever_more_seldom(tmp_path: Path) -> None:
    (tmp_path / ORDER).write_text(json.dumps({"id": "g", "num": 0, "http": 80, "https": None}))
    now, changes = 0.0, list[tuple[float, Any]]()

    def changed(report: dict[str, Any] | None) -> None:
        changes.append((now, report))

    packages = OfNoUse(str(tmp_path / "packages"), root=False)
    role = GatewayRole(
        str(tmp_path), lambda: "", changed, lambda line: None, str(tmp_path / "there"), packages, clock=lambda: now
    )
    while now < 1000:
        role.step()
        now += 1.0
    failed = [
        at for at, report in changes if report and (report["state"], report["message"]) == ("failed", "no nginx here")
    ]
    pauses = [after - before for before, after in pairwise(failed)]
    assert (
        failed[0] == 0.0
        and pauses == [RETRY_FIRST, 10.0, 20.0, 40.0, 80.0, 160.0, RETRY_MOST, RETRY_MOST][: len(pauses)]
    )
    assert len(pauses) >= 7


def test_only_root_installs_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/apt-get").write_text("#!/bin/sh\necho no such package; exit 100\n")
    (tmp_path / "bin/apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    (tmp_path / ORDER).write_text(json.dumps({"id": "g", "num": 0, "http": 80, "https": None}))
    (tmp_path / "gateway-packages").touch()  # an installation that wasn't completed
    logged = list[str]()
    GatewayRole(str(tmp_path), lambda: "", lambda report: None, logged.append, str(tmp_path / "there")).step()
    reason = "this agent doesn't run as root" if os.geteuid() else "fails: no such package"
    assert len(logged) == 1 and reason in logged[0]


@pytest.mark.slow
def test_a_program_has_its_time_to_end_by_itself(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    command = [sys.executable, "-c", SLOW_TO_END, str(tmp_path / "there/lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None and program.stdout.readline() == b"ready\n"
        remove(str(tmp_path), str(tmp_path / "there"), patience=600.0)
        assert program.wait() == 7
    assert not (tmp_path / "there").exists()


@pytest.mark.slow
def test_a_program_that_runs_as_it_should_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ORDER).write_text(json.dumps({"id": "g", "num": 0, "http": 80, "https": None}))
    program, there = tmp_path / "program.py", str(tmp_path / "there")
    program.write_text(RUNS)
    logged, packages = list[str](), Installed(str(tmp_path / "packages"), root=False)
    role = GatewayRole(str(tmp_path), lambda: str(program), lambda report: None, logged.append, there, packages)
    role.step()
    process = running(there)
    role.step()
    assert running(there) == process > 0 and not logged
    remove(str(tmp_path), there)


def test_a_gateways_folder_is_one_programs_whose_lock_says_which(tmp_path: Path) -> None:
    assert take_folder(str(tmp_path)) and running(str(tmp_path)) == os.getpid()
    assert not take_folder(str(tmp_path))
