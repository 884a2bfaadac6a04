"""Which tests `make test-fast` runs, and what keeps them quick.

What a developer runs before each commit has a minute. A test that needs more than 0.05 s of CPU is marked `slow`; a run
names those that do (`cores.py`), for a duration is nothing to assert. What takes so long for certain is refused: a
quick test that starts a Python fails, wherever it runs.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BACKENDS = ROOT / "tests" / "backends"
# What is long by nature: real processes, whole histories, whole suites of a backend, mutants.
ELSEWHERE = ("e2e", "simulation", "wire", "fuzz", "mutants", "bench")
FILES = (
    "backends/test_fake.py",
    "backends/test_rest_cloud.py",
    "functions/test_cloud_policies.py",
    "*_real.py",
)

_running = ""


def slow(item: pytest.Item) -> bool:
    """Is it one that `make test-fast` leaves out?"""
    return item.get_closest_marker("slow") is not None or elsewhere(item.path)


@functools.cache
def elsewhere(path: Path) -> bool:
    """Does all of this file or folder belong to `make test` alone?"""
    name, inside = str(path), f"{ROOT}/tests/"
    if f"{name}/".startswith(tuple(f"{inside}{folder}/" for folder in ELSEWHERE)) or provider(path):
        return True
    return path.suffix == ".py" and any(fnmatch.fnmatchcase(name, f"*/{pattern}") for pattern in FILES)


def provider(path: Path) -> str:
    """Whose package these tests are about: its suites (`test_gcp.py`, `test_gcp_tpu.py`), and its folder, with the
    emulation of it. Empty: nobody's alone."""
    if not path.is_relative_to(BACKENDS) or path == BACKENDS:
        return ""
    name = path.relative_to(BACKENDS).parts[0].removeprefix("test_").removesuffix(".py")
    return next((each for each in providers() if f"{name}_".startswith(f"{each}_")), "")


@functools.cache
def providers() -> frozenset[str]:
    return frozenset(file.parent.name for file in (ROOT / "chalicelib" / "backends").glob("*/config.py"))


def begins(nodeid: str) -> None:
    """A quick test; none, if empty."""
    global _running  # noqa: PLW0603
    _running = nodeid


def _on_audit_event(event: str, args: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen" and _running and Path(os.fsdecode(args[0])).name.startswith("python"):
        raise AssertionError(f"{_running} starts a Python ({args[1]}), so it isn't quick: mark it `slow`")


def watch() -> None:
    """From now on, for good: Python forgets no hook."""
    sys.addaudithook(_on_audit_event)
