"""docs/STATUS.md: each line is one sentence and one command, and what the command names exists."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.harness.rows import each
from tests.harness.server import ROOT
from tests.test_pages import TARGETS

TEXT = (ROOT / "docs" / "STATUS.md").read_text(encoding="utf-8")
ROWS = [
    tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith("| capability")
]


def test_no_capability_stands_there_twice() -> None:
    capabilities = [row[0] for row in ROWS]
    assert len(capabilities) > 150 and len(set(capabilities)) == len(capabilities)


@each("row", ROWS, ids=lambda row: row[0])
def test_it_is_one_sentence_and_one_command(row: tuple[str, ...]) -> None:
    capability, command = row
    assert re.fullmatch(r"[^a-z].*[.]", capability) and not re.search(r"[.!?] [A-Z]", capability)
    assert re.fullmatch(r"`[^`]+`", command)


@each("command", sorted({row[1].strip("`") for row in ROWS}))
def test_its_command_exists(command: str) -> None:
    program, *args = shlex.split(command)
    if program == "make":
        assert args[0] in TARGETS
    elif program == "python":
        assert args[0] == "-m" and find_spec(args[1])
    else:
        assert program == "pytest"
        assert [path for path in paths_of(command) if not (ROOT / path).exists()] == []


@pytest.mark.slow
def test_each_selection_finds_tests_in_each_of_its_paths() -> None:
    """A test that was renamed would otherwise be left out, and the command still succeed."""
    selecting = {row[1].strip("`") for row in ROWS if " -k " in row[1]}
    paths = sorted({path for command in selecting for path in paths_of(command)})
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", *paths]
    done = subprocess.run(collect, cwd=ROOT, capture_output=True, text=True, check=True)
    found = done.stdout.lower().splitlines()
    for command in selecting:
        terms = set(re.findall(r"\w+", command.partition(" -k ")[2].lower())) - {"or"}
        for path in paths_of(command):
            here = [line for line in found if line.startswith(path)]
            assert any(term in line.removeprefix("tests/") for line in here for term in terms), f"{command}: {path}"


def paths_of(command: str) -> list[str]:
    return command.removeprefix("pytest ").partition(" -k ")[0].split()
