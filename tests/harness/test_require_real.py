"""A skip is a failure if everything real is required, however the test asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.server import ROOT

SKIPS = """
import pytest

@pytest.fixture
def engine():
    pytest.skip("no engine here")

def test_by_fixture(engine): pass

def test_in_the_middle(): pytest.skip("no disk here")

@pytest.mark.skipif(True, reason="no root here")
def test_by_mark(): pass

@pytest.mark.xfail(strict=True)
def test_expected_to_fail(): assert False
"""


@pytest.mark.parametrize(
    ("required", "status", "outcome"), [("", 0, "3 skipped, 1 xfailed"), ("1", 1, "1 failed, 1 xfailed, 2 errors")]
)
def test_every_skip_fails_under_require_real(tmp_path: Path, required: str, status: int, outcome: str) -> None:
    (tmp_path / "test_it.py").write_text(SKIPS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "REQUIRE_REAL": required},
        capture_output=True,
        text=True,
        check=False,
    )
    summary = done.stdout.splitlines()[-1]
    assert done.returncode == status and outcome in summary, done.stdout
    if required:
        assert all(f"no {what} here" in done.stdout for what in ("engine", "disk", "root"))
