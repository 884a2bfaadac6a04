"""The one file: Python from 3.8 on runs it with its standard library alone, and the same sources make the same file."""

from __future__ import annotations

import ast
import json
import runpy
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import chalicelib.agent
from chalicelib.agent import build

SOURCES = sorted(Path(chalicelib.agent.__file__).parent.glob("*.py"))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every import as its level (0: absolute) and name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or ""


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_only_the_standard_library_and_itself(path: Path) -> None:
    for level, name in imports(path):
        assert level == 1 or (level == 0 and name.split(".")[0] in sys.stdlib_module_names), (
            f"{path.name} imports {name}"
        )


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_grammar_is_that_of_3_8(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 8))


def test_nothing_newer_than_3_8_is_used() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from vermin import main; main()", "-t=3.8-", "--no-tips", *map(str, SOURCES)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_the_same_sources_make_the_same_bytes(tmp_path: Path) -> None:
    build.write(str(tmp_path / "one"))
    build.write(str(tmp_path / "two"))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with zipfile.ZipFile(tmp_path / "one") as archive:
        names = set(archive.namelist())
    assert names == {"__main__.py"} | {f"dstack_agent/{path.name}" for path in SOURCES if path.name != "__main__.py"}


def test_it_runs_alone_and_rebuilds_itself(tmp_path: Path) -> None:
    program = tmp_path / "agent.pyz"
    build.write(str(program))
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(program), "facts"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cpus"] >= 1
    rebuild = "import sys; sys.path.insert(0, sys.argv[1]); from dstack_agent import build; build.write(sys.argv[2])"
    subprocess.run([sys.executable, "-I", "-S", "-c", rebuild, str(program), str(tmp_path / "again")], check=True)
    assert (tmp_path / "again").read_bytes() == program.read_bytes()


def test_sources_are_laid_out_once_and_changed_ones_apart(tmp_path: Path) -> None:
    """Otherwise a new agent would start its supervisors from the old one's sources."""
    one, two = tmp_path / "one.pyz", tmp_path / "two.pyz"
    build.write(str(one))
    two.write_bytes(one.read_bytes())
    with zipfile.ZipFile(two, "a") as archive:
        archive.writestr("dstack_agent/more.py", "")
    words = "import sys; sys.path.insert(0, sys.argv[1]); from dstack_agent import build; print(build.lay_out('.'))"
    first, again, second = (
        subprocess.check_output([sys.executable, "-I", "-S", "-c", words, str(program)], cwd=tmp_path, text=True)
        for program in (one, one, two)
    )
    assert first == again != second
    assert (tmp_path / second.strip() / "dstack_agent" / "more.py").exists()


def test_wrong_arguments_are_explained(tmp_path: Path) -> None:
    build.write(str(tmp_path / "agent.pyz"))
    done = subprocess.run([sys.executable, str(tmp_path / "agent.pyz")], capture_output=True, text=True)
    assert (done.returncode, "--data and --instance" in done.stderr) == (2, True)


def test_the_module_writes_it_where_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = tmp_path / "agent.pyz"
    monkeypatch.setattr(sys, "argv", ["build", str(written)])
    runpy.run_path(build.__file__, run_name="__main__")
    assert zipfile.is_zipfile(written)
    for words in (["build"], ["build", str(written), "more"]):
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit, match="usage"):
            runpy.run_path(build.__file__, run_name="__main__")
