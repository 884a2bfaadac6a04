"""The changes of backends' text are of the text as it is, and a few are played here; all, by the command."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from chalicelib.backends.registry import facts_of
from tests.backends.changed import ROOT
from tests.backends.planted.suite import required_of
from tests.backends.plants import SUITES, plants, suite_of

LEAST = {"aws": 35, "kubernetes": 40, "runpod": 15, "vastai": 15}

every_backend = pytest.mark.parametrize("backend", SUITES)


@every_backend
def test_there_are_enough(backend: str) -> None:
    assert len(plants(backend)) >= LEAST[backend]


@every_backend
@pytest.mark.slow
def test_a_change_is_of_the_file_as_it_is(backend: str, tmp_path: Path) -> None:
    for plant in plants(backend):
        compile(plant.source(tmp_path), str(plant), "exec")


@every_backend
def test_what_should_notice_it_is_there(backend: str) -> None:
    suite, required = suite_of(backend), required_of(facts_of(backend))
    for plant in plants(backend):
        for test in plant.tests:
            path, *_, name = test.split("::")
            if test.startswith(suite):
                assert name.removeprefix("test_") in required, test
            else:
                assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE), test


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "file"), [("aws", "groups.py"), ("kubernetes", "usage.py")])
def test_changes_are_noticed(backend: str, file: str) -> None:
    """Of one file, as all are by the command."""
    command = [sys.executable, "-m", "tests.backends.plants", backend, "--only", file]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    number = sum(len(plant.tests) for plant in plants(backend) if plant.file == file)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"{number}/{number}"), done.stdout + done.stderr
