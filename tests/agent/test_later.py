"""What an agent's start leaves to the first task."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chalicelib.agent.later import Later, waiting

ROOT = Path(__file__).parents[2]
# A start that imports none of these, nor what they import, takes two thirds of the time.
LEFT = {f"chalicelib.agent.{name}" for name in ("logins", "log_stream", "process_tree", "repositories", "volumes")}
LEFT |= {"concurrent.futures", "csv", "ctypes", "hashlib", "shutil", "subprocess", "tempfile"}
STARTS = """
import sys
sys.path.insert(0, sys.argv[1])
import chalicelib.agent
from chalicelib.agent import docker, later, main, process, program
print(*sys.modules)
later.import_all()
print(*sys.modules)
"""


def test_a_module_is_imported_when_something_in_it_is_used() -> None:
    this, unknown = Later("this"), Later(".nowhere")
    assert "this" not in sys.modules
    assert Later("posixpath").basename("/a/b") == "b" and Later(".later").Later is Later
    with pytest.raises(ModuleNotFoundError):
        unknown.anything  # noqa: B018 - it is the access that counts
    for each in (this, unknown):
        waiting.remove(each)


@pytest.mark.slow
def test_a_start_imports_nothing_that_only_tasks_need_and_whoever_asks_for_it_gets_all() -> None:
    command = [sys.executable, "-I", "-S", "-c", STARTS, str(ROOT)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    start, then = (set(line.split()) for line in done.stdout.splitlines())
    assert not LEFT & start
    assert then >= LEFT
