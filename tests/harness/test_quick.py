"""What `make test-fast` runs, and that it stays quick."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import quick
from tests.harness.server import ROOT

STARTS = """
import subprocess, sys
import pytest

def test_quick():
    subprocess.run([sys.executable, "-c", ""], check=True)

@pytest.mark.slow
def test_slow():
    subprocess.run([sys.executable, "-c", ""], check=True)

def test_another_program():
    subprocess.run(["true"], check=True)
"""


def test_what_is_left_out_is_there() -> None:
    assert all((ROOT / "tests" / folder).is_dir() for folder in quick.ELSEWHERE)
    assert all(list((ROOT / "tests").rglob(pattern)) for pattern in quick.FILES)


@pytest.mark.parametrize(
    ("file", "out"),
    [
        ("e2e/test_genuine_cli.py", True),
        ("store/test_dynamo_real.py", True),
        ("backends/aws", True),
        ("backends/test_aws.py", True),
        ("backends/test_runpod.py", True),
        ("backends/test_gcp_tpu.py", True),
        ("backends/test_lambda_cloud.py", True),
        ("backends/kubernetes/test_volumes.py", True),
        ("backends/test_fake.py", True),
        ("backends/test_accounts.py", False),
        ("backends/kit", False),
        ("infra/test_guide.py", False),
    ],
)
def test_real_processes_and_long_histories_are_left_out(file: str, out: bool) -> None:
    assert (ROOT / "tests" / file).exists()
    assert quick.elsewhere(ROOT / "tests" / file) is out


@pytest.mark.slow
def test_a_quick_test_that_starts_a_python_fails(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(STARTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert "1 failed, 2 passed" in done.stdout.splitlines()[-1], done.stdout
    assert "test_it.py::test_quick starts a Python" in done.stdout and "mark it `slow`" in done.stdout
