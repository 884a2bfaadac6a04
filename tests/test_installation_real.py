"""`make install` and `make demo` say how far they are. What installs is stood in for: nothing is downloaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.server import ROOT

pytestmark = pytest.mark.slow
LOCK = "a==1 \\\n    --hash=sha256:0\nb==2 \\\n    --hash=sha256:0\n    # via a\n"
PIP = """echo "pip $*" >> ../asked
echo 'Collecting a==1'; echo '  Downloading a-1.whl'; echo 'Processing ./wheels/b-2.whl'
echo 'Installing collected packages: a, b'; exit $FAILS"""


def program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncd {path.parent}\n{script}\n")
    path.chmod(0o755)


def installed(
    folder: Path, uv: str = "", fails: int = 0, *, where: str = "programs/uv"
) -> tuple[int, list[str], list[str]]:
    """Its status, what it said, and which programs were asked."""
    program(folder / "venv" / "bin" / "python", PIP.replace("../asked", "../../asked").replace("$FAILS", str(fails)))
    (folder / "lock").write_text(LOCK)
    (folder / "programs").mkdir()
    if uv:
        program(folder / where, f'echo "uv $*" >> {folder / "asked"}\n{uv}')
    command = [sys.executable, ROOT / ".ci" / "venv.py", "venv", "lock"]
    environment = {"PATH": str(folder / "programs")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    programs = (folder / "asked").read_text().splitlines()
    return done.returncode, done.stdout.splitlines(), [line.split()[0] for line in programs]


BEGUN = "Installing the 2 packages of lock into venv …"
BY_PIP = ["  1/2 a==1", "  2/2 b-2.whl", "  unpacking …"]


def test_pip_has_a_line_for_each_package(tmp_path: Path) -> None:
    assert installed(tmp_path) == (0, [BEGUN, *BY_PIP], ["pip"])


def test_uv_installs_where_there_is_one(tmp_path: Path) -> None:
    assert installed(tmp_path, "echo its own progress") == (0, [BEGUN, "its own progress"], ["uv"])
    arguments = (tmp_path / "asked").read_text()
    assert "--require-hashes" in arguments and "--no-deps" in arguments and arguments.endswith(" -r lock\n")


def test_uv_is_taken_from_where_make_puts_it(tmp_path: Path) -> None:
    assert installed(tmp_path, "true", where=".venvs/uv/bin/uv") == (0, [BEGUN], ["uv"])


def test_pip_is_tried_where_uv_fails(tmp_path: Path) -> None:
    lines = [BEGUN, "uv can't install them; trying pip …", *BY_PIP]
    assert installed(tmp_path, "exit 2") == (0, lines, ["uv", "pip"])


def test_all_that_pip_said_is_shown_if_it_fails(tmp_path: Path) -> None:
    status, output, _ = installed(tmp_path, fails=3)
    assert status == 1 and "  Downloading a-1.whl" in output
