"""The carrier with Debian's packages: it starts without anything around it, and has all that the agent imports."""

from __future__ import annotations

import ast
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.agent.program import build
from tests.harness.carriers import carrier
from tests.harness.debian import NotHere

pytestmark = pytest.mark.slow

AGENT = Path(build.__file__).parents[1]
MOST = 12 << 20  # bytes


def imported() -> Iterator[str]:
    """Modules of the standard library that the agent names anywhere, those for other versions of Python left out; what
    only type checkers import is no module of the agent's."""
    for path in AGENT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                if not node.module.startswith("chalicelib"):
                    yield node.module
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "LazyModule":
                name = str(ast.literal_eval(node.args[0]))
                if not name.startswith("."):
                    yield name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        content = carrier()
    except NotHere as problem:
        pytest.skip(str(problem))
    assert len(content) <= MOST
    root = tmp_path_factory.mktemp("root")
    with tarfile.open(fileobj=io.BytesIO(content)) as packed:
        packed.extractall(root / "moved")  # our own
    shutil.copytree(AGENT, root / "moved/agent", ignore=shutil.ignore_patterns("__pycache__"))
    return root


def test_no_licence_refers_to_a_text_that_isnt_there(folder: Path) -> None:
    texts = [path.read_text() for path in (folder / "moved/licences").iterdir() if path.is_file()]
    named = [each for text in texts for each in re.findall(r"/common-licenses/(\{[^}]+\}|[\w.-]+)", text)]
    names = {name.strip(" .") for each in named for name in each.strip("{}").split(",")}
    assert {"GPL-2", "LGPL-2.1", "Apache-2.0", "MPL-1.1"} <= names
    assert names == {path.name for path in (folder / "moved/licences/common-licenses").iterdir()}


def started(root: Path, program: str, *args: str) -> subprocess.CompletedProcess[str]:
    """In a file system that has nothing but the carrier, if root may make one."""
    apart = os.getuid() == 0
    place = "/moved" if apart else f"{root}/moved"
    argv = [f"{place}/lib/loader", "--library-path", f"{place}/lib", f"{place}/bin/{program}", *args]
    into = [shutil.which("chroot") or "/usr/sbin/chroot", str(root)] if apart else []
    return subprocess.run([*into, *argv], capture_output=True, text=True, env={}, timeout=120)


def ran(root: Path, script: str) -> str:
    done = started(root, "python3", "-I", "-S", "-c", script)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("program", ["sshd", "ssh-keygen"])
def test_no_library_of_its_ssh_server_is_missing(folder: Path, program: str) -> None:
    (folder / "dev").mkdir(exist_ok=True)
    (folder / "dev/null").touch()
    done = started(folder, program, "-?")
    assert done.returncode != 127 and "shared librar" not in done.stderr, done.stderr
    assert "usage: " in done.stderr or "No user exists for uid" in done.stderr, done.stderr


def test_all_that_the_agent_imports_is_there(folder: Path) -> None:
    modules = sorted({name for name in imported() if name != "__future__"})
    assert {"ssl", "ctypes", "termios", "asyncio", "zipfile", "urllib.request"} <= set(modules)
    own = [".".join(path.relative_to(AGENT.parent).with_suffix("").parts) for path in AGENT.rglob("*.py")]
    own = [name for name in own if not name.endswith(("__main__", "__init__"))]
    script = (
        "import importlib, os, sys; sys.path.insert(0, os.path.dirname(os.path.dirname(sys.executable)))\n"
        f"for name in {modules + own!r}: importlib.import_module(name)\n"
        "print(len(sys.modules))"
    )
    assert int(ran(folder, script)) > len(modules + own)


def test_the_agent_starts_itself_again_through_its_loader(folder: Path) -> None:
    script = (
        "import os, subprocess, sys; sys.path.insert(0, os.path.dirname(os.path.dirname(sys.executable)))\n"
        "from agent.kernel import interpreter, route\n"
        "done = subprocess.run([*interpreter.command(), '-c', 'import ssl, sys; print(sys.flags.isolated)'])\n"
        "print(route._trusting().cert_store_stats()['x509_ca'] > 100, done.returncode)"
    )
    assert sorted(ran(folder, script).split()) == ["0", "1", "True"]


def test_on_a_machine_with_its_own_python_there_is_none() -> None:
    from chalicelib.agent.kernel import interpreter

    assert interpreter.command() == [sys.executable, "-I", "-S"] and interpreter.authorities() == ""
