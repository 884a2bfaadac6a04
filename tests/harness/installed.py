"""The program as pip installs it: the wheel alone, where nothing else of ours is to be found.

Its dependencies are those of this environment, by links, and only the ones that a plain install brings: what needs an
extra fails here. Nothing is fetched.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.harness.server import ROOT

PACKAGED = ("app.py", "chalicelib", "cli", "functions", "pyproject.toml", "README.md", "LICENSE")


@cache
def program() -> Path:
    """`dstack`, installed once for what is in the checkout now."""
    folder = Path(tempfile.gettempdir()) / f"dstack-installed-{_digest()[:16]}"
    with _alone(folder.with_suffix(".lock")):
        found = folder / "bin" / "dstack"
        if not found.exists():
            with tempfile.TemporaryDirectory() as out:
                install(build_wheel(Path(out)), folder)
    return found


def build_wheel(out: Path) -> Path:
    pip("wheel", "--no-build-isolation", "--wheel-dir", str(out), str(ROOT))
    (built,) = out.iterdir()
    return built


def install(wheel: Path, folder: Path) -> Path:
    """The folder of programs of a new environment."""
    venv.create(folder, symlinks=True, clear=True)
    pip("--python", str(folder / "bin" / "python"), "install", str(wheel))
    (site,) = folder.glob("lib/python*/site-packages")
    for name in plain_install(wheel):
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (site / top).symlink_to(Path(str(found.locate_file(top))))
    return folder / "bin"


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", *arguments]
    done = subprocess.run([*command, "--no-deps", "--no-index"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def plain_install(wheel: Path) -> set[str]:
    """The distributions that come with the wheel without extras."""
    found: set[str] = set()
    todo = [str(line) for line in metadata(wheel).get_all("Requires-Dist") or ()]
    while todo:
        need = Requirement(todo.pop())
        name = re.sub(r"[-_.]+", "-", need.name).lower()
        if name in found or (need.marker is not None and not need.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        todo += needs(name)
    return found


@cache
def needs(name: str) -> list[str]:
    return distribution(name).requires or []


def _digest() -> str:
    """Of all that a wheel is made of."""
    found = hashlib.sha256(sys.executable.encode())
    for name in PACKAGED:
        files = sorted((ROOT / name).rglob("*")) if (ROOT / name).is_dir() else [ROOT / name]
        for path in files:
            if path.is_file() and "__pycache__" not in path.parts:
                found.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return found.hexdigest()


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Several processes run tests."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
