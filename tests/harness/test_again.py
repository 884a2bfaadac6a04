"""Which failures get a second try, shown on small suites in a folder of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.server import ROOT

pytestmark = pytest.mark.slow

UNSTEADY = """
from pathlib import Path

def test_unsteady():
    if not Path("seen").exists():
        Path("seen").touch()
        raise AssertionError("too busy")
"""
BROKEN = "def test_broken():\n    assert False\n"
CRASHES = "import os\n\ndef test_crash():\n    os._exit(7)\n"
MANY = UNSTEADY + "".join(
    f"\ndef test_broken_{n}():\n    assert Path('{n}').exists() or Path('{n}').touch()\n" for n in range(5)
)


@pytest.mark.parametrize(
    ("files", "code", "expected"),
    [
        ({"test_one_real.py": UNSTEADY}, 0, "test_one_real.py::test_unsteady"),
        ({"test_one_real.py": BROKEN}, 1, "test_one_real.py::test_broken"),
        ({"test_one_real.py": UNSTEADY, "test_two.py": BROKEN}, 1, ""),
        ({"test_one.py": UNSTEADY}, 1, ""),
        ({"test_one_real.py": MANY}, 1, ""),
        ({"test_one_real.py": UNSTEADY, "test_two_real.py": CRASHES}, 3, ""),
        ({"test_one_real.py": UNSTEADY, "test_two_real.py": "import nothing\n"}, 2, ""),
        ({"test_one_real.py": "def test_good(): pass\n"}, 0, ""),
    ],
)
def test_only_a_few_real_tests_are_tried_again(tmp_path: Path, files: dict[str, str], code: int, expected: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:randomly\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.harness.again",
            str(tmp_path),
            "--rootdir",
            str(tmp_path),
            "-p",
            "tests.harness.cores",
            "--cores",
            "2",
        ],
        env={**environment, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    again = done.stdout.partition("are tried again alone:")[2]
    assert done.returncode == code, done
    assert bool(again) is bool(expected) and expected in again, done
