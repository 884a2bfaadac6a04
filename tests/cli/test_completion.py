"""Completion as a shell requests it, in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.connection.session import names_path

pytestmark = pytest.mark.slow


def completions(home: Path, shell: str, line: str) -> str:
    words = line.split(" ")
    variables = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1), "_TYPER_COMPLETE_ARGS": line}
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(Path.cwd()), **variables}
    env |= {"_DSTACK_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = subprocess.run(
        [sys.executable, "-m", "cli.main"], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = names_path(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"run": ["train", "trace", "eval"], "fleet": ["gpu"]}))
    return tmp_path


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_names_come_from_the_cache(home: Path, shell: str) -> None:
    found = completions(home, shell, "dstack logs tra")
    assert "train" in found and "trace" in found and "eval" not in found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_and_subcommands(home: Path, shell: str) -> None:
    assert "attach" in completions(home, shell, "dstack a")
    assert "delete-instance" in completions(home, shell, "dstack fleet del")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_name_that_a_shell_would_act_on_isnt_completed(home: Path, shell: str) -> None:
    """A server may have sent it, and the shell puts it into the command line."""
    names_path(home).write_text(json.dumps({"run": ["tra$(id)", "tra`id`", "tra;id", "tra id", 7, "train"]}))
    found = completions(home, shell, "dstack logs tra")
    assert "train" in found and "id" not in found


def test_a_damaged_cache_completes_nothing(home: Path) -> None:
    names_path(home).write_text("{")
    assert completions(home, "bash", "dstack logs tra").strip() == ""
