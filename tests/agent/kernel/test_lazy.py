"""What an agent's start leaves to the first task."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chalicelib.agent.kernel.lazy import LazyModule, pending

ROOT = Path(__file__).parents[3]
# A start that imports none of these, nor what they import, takes two thirds of the time.
LEFT = {
    f"chalicelib.agent.{name}"
    for name in (
        "kernel.process_tree",
        "replicas.watched_replica",
        "runtimes.repositories",
        "sessions.logins",
        "streams.log_stream",
        "volumes.volumes",
    )
}
LEFT |= {"concurrent.futures", "csv", "ctypes", "hashlib", "shutil", "subprocess", "tempfile"}
STARTS = """
import sys
sys.path.insert(0, sys.argv[1])
import chalicelib.agent
from chalicelib.agent.kernel import lazy
from chalicelib.agent.program import main, program
from chalicelib.agent.runtimes import docker, process
print(*sys.modules)
lazy.load_all()
print(*sys.modules)
"""
SUPERVISES = """
import sys
sys.path.insert(0, sys.argv[1])
from chalicelib.agent.program import main, supervisor
main.make_runtime(sys.argv[2], "", "", "agent")
main.load_all()
print(*sys.modules)
"""


def test_a_module_is_imported_when_something_in_it_is_used() -> None:
    this, unknown = LazyModule("this"), LazyModule(".nowhere")
    assert "this" not in sys.modules
    assert LazyModule("posixpath").basename("/a/b") == "b" and LazyModule(".kernel.lazy").LazyModule is LazyModule
    with pytest.raises(ModuleNotFoundError):
        unknown.anything  # noqa: B018 - it is the access that counts
    for each in (this, unknown):
        pending.remove(each)


@pytest.mark.slow
def test_a_start_imports_nothing_that_only_tasks_need_and_whoever_asks_for_it_gets_all() -> None:
    command = [sys.executable, "-I", "-S", "-c", STARTS, str(ROOT)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    start, then = (set(line.split()) for line in done.stdout.splitlines())
    assert not LEFT & start
    assert then >= LEFT


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["process", "inside"])
def test_who_supervises_a_task_without_an_engine_does_without_http(runtime: str) -> None:
    """It would be a quarter of the start of each task."""
    command = [sys.executable, "-I", "-S", "-c", SUPERVISES, str(ROOT), runtime]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    imported = set(done.stdout.split())
    assert imported >= {"chalicelib.agent.sessions.logins", f"chalicelib.agent.runtimes.{runtime}"}
    assert not imported & {"hashlib", "http.client", "ssl"}
