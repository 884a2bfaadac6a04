"""The wheel with the other versions of Python that this machine has: every module of it is imported, and a task runs.

`.ci/pythons.py` makes their environments, as `make test` asks it to. Where there is none, this is played with the
Python that runs the tests.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.harness.installed import pip, wheel
from tests.harness.server import ROOT, Server

FOUND = sorted((ROOT / ".venvs").glob("python3.*")) or [Path(sys.prefix)]
IMPORT = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"


@pytest.mark.parametrize("environment", FOUND, ids=lambda path: path.name)
def test_it_is_imported_and_a_task_runs(environment: Path, tmp_path: Path) -> None:
    home, programs = tmp_path / "home", installed(environment, tmp_path / "venv")
    home.mkdir()
    with zipfile.ZipFile(wheel()) as archive:
        modules = [name for name in archive.namelist() if name.endswith(".py") and not name.endswith("__main__.py")]
    names = [name.removesuffix(".py").replace("/", ".").removesuffix(".__init__") for name in modules]
    every = [programs / "python", "-P", "-W", "error::SyntaxWarning", "-c", IMPORT, *names]
    done = subprocess.run(every, cwd=home, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")

    dstack = str(programs / "dstack")
    server = Server(home, env={"DSTACK_AGENT_RUNTIME": "process"}, command=(dstack,), fork=False)
    (home / "hello.dstack.yml").write_text("{type: task, name: hello, commands: [echo Hello from $DSTACK_RUN_NAME]}")
    try:
        server.start("-y")
        apply = [dstack, "apply", "-f", "hello.dstack.yml", "-y"]
        done = subprocess.run(apply, cwd=home, env=server.environment(), capture_output=True, text=True)
        assert done.returncode == 0 and "Hello from hello" in done.stdout, done.stdout + done.stderr
        assert not any("Traceback" in line or "Warning" in line for line in server.lines)
    finally:
        server.close()


def installed(environment: Path, folder: Path) -> Path:
    """The programs of a new environment with the wheel, and with the packages of this one."""
    python = environment / "bin" / "python"
    subprocess.run([python, "-m", "venv", "--without-pip", "--symlinks", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (packages,) = environment.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(f"{packages}\n")
    pip(folder, wheel())
    return folder / "bin"
