"""The functions' bytecode: Python loads it without its source, and the same source has the same bytecode."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from infra.artefacts import pack
from infra.bytecode import Compiler, compiler, or_sources_alone

VERSION = "{}.{}".format(*sys.version_info)
TAG = "cpython-" + VERSION.replace(".", "")
FILES = {
    "one/__init__.py": b"",
    "one/two.py": b'def said():\n    """Says it."""\n    return "c" in {"a", "b", "c"}, __file__\n',
    "one/template.py": b"class {{ name }}:\n",
    "one/notes.txt": b"x",
}


def here() -> Compiler:
    found = compiler(VERSION)
    assert found is not None
    return found


@pytest.mark.slow
def test_bytecode_is_where_python_looks_for_it_and_isnt_compared_with_its_source(tmp_path: Path) -> None:
    for name, content in {**FILES, **here().compiled(FILES)}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "one" / "two.py").write_text("raise SystemExit('this was compiled')")
    program = f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; from one import two; print(two.said()[1])"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{tmp_path}/one/two.py\n", "")


@pytest.mark.slow
def test_the_same_source_has_the_same_bytecode() -> None:
    """Whatever else is compiled with it."""
    found = here().compiled(FILES)
    assert found.keys() == {f"one/__pycache__/{name}.{TAG}.pyc" for name in ("__init__", "two")}  # no template
    assert here().compiled({"other.py": b"x = {'a', 'b', __file__}", **FILES}).items() >= found.items()


@pytest.mark.slow
def test_an_artefact_has_the_bytecode_of_its_packages_and_of_our_code(tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    compiles = here()
    for name, content in {"six.py": b"x = 1", **compiles.compiled({"six.py": b"x = 1"})}.items():
        (installed / name).parent.mkdir(parents=True, exist_ok=True)
        (installed / name).write_bytes(content)
    made = pack("clouds", {"functions/one.py": b"y = 2"}, installed, tmp_path, compiles)
    with zipfile.ZipFile(made.path) as archive:
        assert sorted(archive.namelist()) == [
            f"__pycache__/six.{TAG}.pyc",
            f"functions/__pycache__/one.{TAG}.pyc",
            "functions/one.py",
            "six.py",
        ]


def test_a_version_of_python_that_isnt_here_compiles_nothing() -> None:
    assert compiler("2.0") is None


@pytest.mark.slow
def test_a_command_that_only_has_its_name_isnt_one(tmp_path: Path) -> None:
    """As version managers leave it."""
    named = tmp_path / "python2.0"
    named.write_text("#!/bin/sh\necho 'python2.0: command not found' >&2; exit 127\n")
    named.chmod(0o755)
    assert compiler("2.0", str(tmp_path)) is None


@pytest.mark.slow
def test_a_file_that_cant_be_executed_isnt_one(tmp_path: Path) -> None:
    named = tmp_path / "python2.0"
    named.write_bytes(b"\x7fELF of another machine")
    named.chmod(0o755)
    assert compiler("2.0", str(tmp_path)) is None


@pytest.mark.slow
@pytest.mark.parametrize("fails", ["echo 'no memory' >&2; exit 1", "kill -9 $$"])
def test_where_the_other_python_fails_sources_alone_are_deployed(fails: str, tmp_path: Path) -> None:
    named = tmp_path / "python2.0"
    named.write_text(f'#!/bin/sh\n[ "$2" = -c ] && echo 2.0 && exit\n{fails}\n')
    named.chmod(0o755)
    said: list[str] = []

    def build(compiles: Compiler | None) -> list[str]:
        return sorted(compiles.compiled(FILES) if compiles else FILES)

    assert or_sources_alone(build, "2.0", said.append, str(tmp_path)) == sorted(FILES)
    (line,) = said
    assert line.startswith("python2.0 failed here (") and line.endswith("compile their code at each cold start.")
    assert "no memory" in line or "SIGKILL" in line
