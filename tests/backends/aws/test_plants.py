"""The changes of the AWS backend's text are of the text as it is, and a few are played here; all, by the command."""

from __future__ import annotations

import subprocess
import sys

import pytest

from chalicelib.backends.aws.backend import AwsBackend
from chalicelib.backends.spi import facts_of
from tests.backends.aws.planted import ROOT, Plant, plants
from tests.backends.planted.suite import required_of


def test_changes_are_of_cases_that_aws_must_pass() -> None:
    named = {case.removeprefix("test_") for plant in plants() for case in plant.cases}
    assert named <= required_of(facts_of(AwsBackend))


@pytest.mark.parametrize("plant", plants(), ids=str)
def test_a_change_is_of_the_file_as_it_is(plant: Plant) -> None:
    compile(plant.source, plant.file, "exec")


def test_changes_are_noticed() -> None:
    """Of one file, as all are by the command."""
    command = [sys.executable, "-m", "tests.backends.aws.planted", "--only", "groups.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1/1"), done.stdout + done.stderr
