"""The one file: Python from 3.8 on runs it with its standard library alone, and the same sources make the same file."""

from __future__ import annotations

import ast
import importlib.util
import json
import marshal
import os
import runpy
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType

import pytest

import chalicelib.agent
from chalicelib.agent.program import build
from tests.harness.rows import each
from tests.harness.server import ROOT

FOLDER = Path(chalicelib.agent.__file__).parent
SOURCES = sorted(FOLDER.rglob("*.py"))
NGINX = [path for path in FOLDER.rglob("*") if path.suffix in (".lua", ".conf")]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), feature_version=(3, 8))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every import as its level (0: absolute) and name."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or ""


def of_the_contract(path: Path) -> set[str]:
    """What a module imports of the contract, where only a type checker comes."""
    guarded = (
        node
        for node in parsed(path).body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    )
    above = len(path.relative_to(FOLDER).parts) + 1  # as a relative import, which is the same in the wheel
    found = [each for node in guarded for each in node.body if isinstance(each, ast.ImportFrom) and each.level == above]
    return {each.module or "" for each in found if (each.module or "").split(".")[0] == "contract"}


@pytest.mark.slow
@each("path", SOURCES)
def test_only_the_standard_library_and_itself(path: Path) -> None:
    depth = len(path.relative_to(FOLDER).parts)
    for level, name in imports(path):
        own, known = 1 <= level <= depth, level == 0 and name.split(".")[0] in sys.stdlib_module_names
        assert own or known or (level == depth + 1 and name in of_the_contract(path)), f"{path.name} imports {name}"


@pytest.mark.slow
def test_the_contract_is_not_loaded() -> None:
    """An import of it beside a guarded one would pass above."""
    for path in SOURCES:
        count = sum(name in of_the_contract(path) for _, name in imports(path))
        assert count == len(of_the_contract(path)), f"{path.name} imports the contract where it runs"


@each("path", SOURCES)
@pytest.mark.slow
def test_the_grammar_is_that_of_3_8(path: Path) -> None:
    parsed(path)


@pytest.mark.slow
def test_nothing_newer_than_3_8_is_used() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from vermin import main; main()", "-t=3.8-", "--no-tips", *map(str, SOURCES)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_same_sources_make_the_same_bytes(tmp_path: Path) -> None:
    build.write(str(tmp_path / "one"))
    build.build.cache_clear()
    build._installed.cache_clear()
    build.write(str(tmp_path / "two"))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert (tmp_path / "one").read_bytes().startswith(b"#!/usr/bin/env python3\n"), "or nobody could just start it"
    with zipfile.ZipFile(tmp_path / "one") as archive:
        names = set(archive.namelist())
    modules = {f"dstack_agent/{path.relative_to(FOLDER)}" for path in SOURCES if path != FOLDER / "__main__.py"}
    of_nginx = {f"dstack_agent/gateway/{path.relative_to(FOLDER / 'gateway')}" for path in NGINX}
    assert of_nginx > {"dstack_agent/gateway/nginx.conf", "dstack_agent/gateway/lua/door.lua"}
    assert names == {"__main__.py"} | modules | {f"{name}c" for name in modules} | of_nginx


@pytest.mark.slow
def test_what_is_compiled_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Whatever the process has compiled or hashed before: its digest identifies the file."""
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPYCACHEPREFIX": str(tmp_path / seed)}
        argv = [sys.executable, "-m", "chalicelib.agent.program.build", str(tmp_path / f"{seed}.pyz")]
        subprocess.run(argv, check=True, cwd=ROOT, env=environment)
    built = build.build()
    assert built == (tmp_path / "1.pyz").read_bytes() == (tmp_path / "2.pyz").read_bytes()


def test_what_else_refers_to_a_text_makes_no_difference() -> None:
    """The bytes say of each text whether it is interned, which whatever has the same text may have asked for."""
    module = compile("def f(): return ('of no name', ('nor this',))", "a.py", "exec")
    inner, *others = module.co_consts
    (both,) = (constant for constant in inner.co_consts if isinstance(constant, tuple))
    asked = inner.replace(
        co_consts=tuple((sys.intern(both[0]), both[1]) if it is both else it for it in inner.co_consts)
    )
    alike = [module, module.replace(co_consts=(asked, *others))]
    assert len({marshal.dumps(code) for code in alike}) == 2
    assert len({marshal.dumps(build.relocated(code, "b.py")) for code in alike}) == 1


def test_a_traceback_names_files_as_the_program_has_them() -> None:
    def files(code: CodeType) -> set[str]:
        inner = (files(constant) for constant in code.co_consts if isinstance(constant, CodeType))
        return {code.co_filename}.union(*inner)

    path, inside = FOLDER / "program/main.py", "dstack_agent/program/main.py"
    cached = build.compiled(str(path), path.read_bytes(), inside)
    packed = build.compiled(str(FOLDER / "only in an installed package's file.py"), path.read_bytes(), inside)
    assert files(marshal.loads(cached)) == {inside} and cached == packed


BUILD = "import sys; sys.path.insert(0, sys.argv[1]); from dstack_agent.program import build; "
COMPILES = """
import runpy, sys
compiled = []
sys.addaudithook(lambda event, about: event == "compile" and compiled.append(str(about[1])))
sys.argv = [sys.argv[1], "--version"]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print([name for name in compiled if "dstack_agent" in name])
"""


def other_pythons(program: Path, out: Path) -> None:
    """The same as a Python of another version sees it: with compiled code that isn't its own."""
    with zipfile.ZipFile(program) as archive, zipfile.ZipFile(out, "w") as other:
        for name in archive.namelist():
            data = archive.read(name)
            other.writestr(name, b"\0\1" + data[2:] if name.endswith(".pyc") else data)


@pytest.mark.slow
def test_nothing_is_compiled_where_it_is_already(tmp_path: Path) -> None:
    program, other = tmp_path / "agent.pyz", tmp_path / "other.pyz"
    build.write(str(program))
    other_pythons(program, other)

    def compiled(path: Path) -> list[str]:
        argv = [sys.executable, "-I", "-S", "-c", COMPILES, str(path)]
        output = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        return list(ast.literal_eval(output.splitlines()[-1]))

    assert compiled(program) == []
    assert any("main.py" in name for name in compiled(other)), "else it compiles the sources, and runs"


@pytest.mark.slow
def test_supervisors_find_it_compiled(tmp_path: Path) -> None:
    program, other = tmp_path / "agent.pyz", tmp_path / "other.pyz"
    build.write(str(program))
    other_pythons(program, other)
    unpack = BUILD + "print(build.unpack('.'))"
    for path, there in ((program, True), (other, False)):
        argv = [sys.executable, "-I", "-S", "-c", unpack, str(path)]
        folder = tmp_path / subprocess.check_output(argv, cwd=tmp_path, text=True).strip()
        cached = Path(importlib.util.cache_from_source(str(folder / "dstack_agent/program/supervisor.py")))
        assert cached.exists() is there, "what isn't for this Python is left out"
        assert [path for path in folder.rglob("*.pyc") if path.parent.name != "__pycache__"] == []


@pytest.mark.slow
def test_it_runs_alone_and_rebuilds_itself(tmp_path: Path) -> None:
    program = tmp_path / "agent.pyz"
    build.write(str(program))
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(program), "facts"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cpus"] >= 1
    rebuild = BUILD + "build.write(sys.argv[2])"
    subprocess.run([sys.executable, "-I", "-S", "-c", rebuild, str(program), str(tmp_path / "again")], check=True)
    assert (tmp_path / "again").read_bytes() == program.read_bytes()


@pytest.mark.slow
def test_sources_are_laid_out_once_and_changed_ones_apart(tmp_path: Path) -> None:
    """Otherwise a new agent would start its supervisors from the old one's sources."""
    one, two = tmp_path / "one.pyz", tmp_path / "two.pyz"
    build.write(str(one))
    two.write_bytes(one.read_bytes())
    with zipfile.ZipFile(two, "a") as archive:
        archive.writestr("dstack_agent/more.py", "")
    words = """
import os, sys; sys.path.insert(0, sys.argv[1])
from dstack_agent.program import build
was, place = os.listdir('.'), build.unpacked_path('.')
assert os.listdir('.') == was, 'who asks for the place writes nothing'
assert build.unpack('.') == place
print(place)"""
    first, again, second = (
        subprocess.check_output([sys.executable, "-I", "-S", "-c", words, str(program)], cwd=tmp_path, text=True)
        for program in (one, one, two)
    )
    assert first == again != second
    assert (tmp_path / second.strip() / "dstack_agent" / "more.py").exists()


@pytest.mark.slow
def test_wrong_arguments_are_explained(tmp_path: Path) -> None:
    build.write(str(tmp_path / "agent.pyz"))
    done = subprocess.run([sys.executable, str(tmp_path / "agent.pyz")], capture_output=True, text=True)
    assert (done.returncode, "--data and --instance" in done.stderr) == (2, True)


@pytest.mark.slow
def test_the_module_writes_it_where_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = tmp_path / "agent.pyz"
    monkeypatch.setattr(sys, "argv", ["build", str(written)])
    runpy.run_path(build.__file__, run_name="__main__")
    assert zipfile.is_zipfile(written)
    for arguments in (["build"], ["build", str(written), "more"]):
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit, match="usage"):
            runpy.run_path(build.__file__, run_name="__main__")
