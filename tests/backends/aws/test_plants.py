"""Every case that AWS is asked has a change that it must notice, and a few are played here; all, by the command."""

from __future__ import annotations

import subprocess
import sys

import pytest

from chalicelib.backends.aws.facts import FACTS
from tests.backends.aws.planted import ROOT, Plant, plants
from tests.backends.conformance import BackendConformance


def asked() -> set[str]:
    """The cases that the facts of AWS don't excuse it from."""
    found = set()
    for name in dir(BackendConformance):
        if name.startswith("test_"):
            marks = getattr(getattr(BackendConformance, name), "pytestmark", ())
            needed = [capability for mark in marks if mark.name == "needs" for capability in mark.args]
            if all(getattr(FACTS, capability) for capability in needed):
                found.add(name)
    return found


def test_every_case_has_a_change_that_it_is_about() -> None:
    assert {case for plant in plants() for case in plant.cases} == asked()


@pytest.mark.parametrize("plant", plants(), ids=str)
def test_a_change_is_of_the_file_as_it_is(plant: Plant) -> None:
    compile(plant.source, plant.file, "exec")


def test_changes_are_noticed() -> None:
    """Of one file, as all are by the command."""
    command = [sys.executable, "-m", "tests.backends.aws.planted", "--only", "groups.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "2/2"), done.stdout + done.stderr
