"""A run on several cores says what a run on one says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.server import ROOT

pytestmark = pytest.mark.slow
# Where it finds its lists of characters, which take it a second to make.
HYPOTHESIS = {"HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".hypothesis")}

FILE = """
import os, warnings
from pathlib import Path
import pytest

@pytest.fixture(scope="session")
def held():
    Path("begun-NAME").touch()
    yield os.getpid()
    Path("begun-NAME").unlink()
    Path("ended-NAME").touch()

@pytest.mark.parametrize("number", range(6))
def test_it(number, held, tmp_path):
    assert held == os.getpid()
    print("said by NAME", number)
    if number == 2:
        warnings.warn("odd in NAME")
    if number == 4:
        pytest.skip("none here")
    assert number != WRONG
"""
DIES = "import os\n\ndef test_well(): pass\n\ndef test_dies(): os._exit(7)\n\ndef test_after(): pass\n"


def played(folder: Path, *options: str, wrong: int = 3, **files: str) -> tuple[int, str]:
    for name in ("a", "b", "c"):
        (folder / f"test_{name}.py").write_text(FILE.replace("NAME", name).replace("WRONG", str(wrong)))
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.conftest",
        "-p",
        "tests.harness.cores",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*argv, "--rootdir", ".", "-c", "/dev/null", *options, "."],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "TMPDIR": str(folder), **HYPOTHESIS},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def blocks(output: str) -> dict[str, str]:
    """What is shown of each failure."""
    parts = re.split(r"^_{5,} (\S+) _{5,}$", output.partition("= warnings summary =")[0], flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_two_cores_say_what_one_says(tmp_path: Path) -> None:
    outputs = {}
    for cores in ("1", "2"):
        (tmp_path / cores).mkdir()
        status, text = played(tmp_path / cores, "--cores", cores, "-rs")
        assert status == 1, text
        assert re.search(r"^3 failed, 12 passed, 3 skipped, 3 warnings in ", text, re.MULTILINE), text
        assert all(f"odd in {name}" in text and f"test_{name}.py:20: none here" in text for name in "abc"), text
        outputs[cores] = {name: re.sub(r"pytest-of-\w+\S*", "", block) for name, block in blocks(text).items()}
        left = {path.name for path in (tmp_path / cores).glob("[be]*-?")}
        assert left == {"ended-a", "ended-b", "ended-c"}, "what lives as long as the session ends with it"
    assert outputs["1"].keys() == outputs["2"].keys()
    for block in outputs["2"].values():
        assert re.findall("said by . .", block) == re.findall("said by . 3", block) != [], (
            "its own output and no other's"
        )


def test_low_priority_is_for_tests_that_only_compute(tmp_path: Path) -> None:
    """Two tests wait for three others, and neither process that runs them has taken one of those beforehand."""
    nice = "import os, time\nfrom pathlib import Path\n\ndef test_it():\n"
    nice += "    Path('nice-NAME').write_text(str(os.nice(0)))\n"
    real = nice + "    while len(list(Path().glob('nice-d*'))) < 3: time.sleep(0.01)\n"
    files = {f"d{number}": nice.replace("NAME", f"d{number}") for number in range(3)}
    files |= {name: real.replace("NAME", name) for name in ("v_real", "w_real")}
    status, output = played(tmp_path, "--cores", "2", "--fill", "1", "-k", "nice or real or test_d", wrong=9, **files)
    assert status == 0 and "5 passed" in output, output
    found = {path.name: int(path.read_text()) for path in tmp_path.glob("nice-*")}
    own = os.nice(0)  # this test itself may be one that fills the cores
    low = min(own + 10, 19)
    assert found == {f"nice-d{number}": low for number in range(3)} | {"nice-v_real": own, "nice-w_real": own}


def test_a_test_is_named_and_options_hold(tmp_path: Path) -> None:
    status, output = played(tmp_path, "--cores", "2", "-k", "test_it[5]")
    assert status == 0 and "3 passed, 15 deselected" in output, output
    status, output = played(tmp_path, "--cores", "2", "-x")
    assert status == 1 and "stopping after 1 failures" in output, output


def test_a_process_that_dies_is_no_success(tmp_path: Path) -> None:
    status, output = played(tmp_path, "--cores", "2", wrong=9, dies=DIES)
    assert status == 3 and "a process ended (7) in a test soon after " in output, output


def test_a_number_is_asked_for(tmp_path: Path) -> None:
    status, output = played(tmp_path, "--cores", "two")
    assert status == 4 and "--cores takes a number or `auto`, not 'two'" in output, output
