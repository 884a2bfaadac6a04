"""The program as pip or uv installs it: the wheel alone, where nothing else of ours is to be found.

Its dependencies are those of this environment, by links, and only the ones that the chosen extras bring: what needs
another fails here. Nothing is fetched.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Collection, Iterator
from email.message import Message
from email.parser import Parser
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.harness.server import ROOT

NAME, PACKAGE = "dstack-serverless", "dstack_serverless"
SCRIPTS = ("dstack", "dstack-serverless")
PACKAGED = (".ci/wheel.py", "chalicelib", "cli", "dstack_serverless", "pyproject.toml", "README.md", "LICENSE")


@cache
def program() -> Path:
    """`dstack` with its server, installed and compiled once for what is in the checkout now."""
    folder, built = Path(tempfile.gettempdir()) / f"dstack-installed-{_digest()}", wheel()
    with _alone(folder.with_suffix(".lock")):
        found = folder / "bin" / "dstack"
        if not found.exists():
            site = environment(folder, "server")
            pip(folder, built)
            subprocess.run([folder / "bin" / "python", "-m", "compileall", "-q", site / PACKAGE], check=True)
    return found


@cache
def wheel() -> Path:
    """The wheel, built once for what is in the checkout now."""
    folder = Path(tempfile.gettempdir()) / f"dstack-wheel-{_digest()}"
    with _alone(folder.with_suffix(".lock")):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as out:
                Path(build_wheel(Path(out), ROOT)).parent.rename(folder)
                Path(out).mkdir()  # to be removed
    (built,) = folder.iterdir()
    return built


def build_wheel(out: Path, source: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(out)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("*.whl")
    return built


def install(folder: Path, *extras: str) -> Path:
    """The folder of programs of a new environment with the program and what these extras bring. By links, too, to what
    `program` installed: so nothing is compiled again."""
    site, whole = environment(folder, *extras), program().parents[1]
    for part in _site(whole).glob(f"{PACKAGE}*"):
        (site / part.name).symlink_to(part)
    for name in SCRIPTS:
        text = (whole / "bin" / name).read_text()
        (folder / "bin" / name).write_text(text.replace(str(whole), str(folder)))
        (folder / "bin" / name).chmod(0o755)
    return folder / "bin"


def _site(folder: Path) -> Path:
    (site,) = folder.glob("lib/python*/site-packages")
    return site


def environment(folder: Path, *extras: str) -> Path:
    """A new one with all that the program and these extras bring, but for the program. Returns where packages are."""
    venv.create(folder, symlinks=True, clear=True)
    site = _site(folder)
    for name in brought(wheel(), *extras):
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).is_symlink():  # several have a part of the package `google`
                (site / top).symlink_to(Path(str(found.locate_file(top))))
    return site


def pip(folder: Path, wheel: Path) -> None:
    """Install it into an environment, with whatever does so here (`.ci/venv.py`)."""
    python, ours = str(folder / "bin" / "python"), ROOT / ".venvs" / "uv" / "bin" / "uv"
    if uv := shutil.which("uv") or (ours.exists() and str(ours)):
        command = [uv, "pip", "install", "--python", python, "--offline", "--no-cache"]
    else:
        command = [sys.executable, "-m", "pip", "--python", python, "install", "--no-compile"]
    command += ["--quiet", "--no-deps", "--no-index", "--force-reinstall", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def brought(wheel: Path, *extras: str) -> set[str]:
    """The distributions that come with the wheel and these extras of it."""
    found: set[str] = set()
    todo = [need.name for need in direct(wheel, *extras)]
    while todo:
        name = plain(todo.pop())
        if name not in found:
            found.add(name)
            todo += [need.name for need in map(Requirement, needs(name)) if _applies(need, ())]
    return found


def direct(wheel: Path, *extras: str) -> list[Requirement]:
    """What the wheel itself requires. An extra may name other extras."""
    chosen, size = set(extras), -1
    while len(chosen) > size:
        size = len(chosen)
        wanted = [need for need in requirements(wheel) if _applies(need, chosen)]
        chosen.update(extra for need in wanted if need.name == NAME for extra in need.extras)
    return [need for need in wanted if need.name != NAME]


def requirements(wheel: Path) -> list[Requirement]:
    return [Requirement(str(line)) for line in metadata(wheel).get_all("Requires-Dist") or ()]


def _applies(need: Requirement, extras: Collection[str]) -> bool:
    return need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *extras))


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def needs(name: str) -> list[str]:
    return distribution(name).requires or []


@cache
def _digest() -> str:
    """Of all that a wheel is made of."""
    found = hashlib.sha256(sys.executable.encode())
    for name in PACKAGED:
        files = sorted((ROOT / name).rglob("*")) if (ROOT / name).is_dir() else [ROOT / name]
        for path in files:
            if path.is_file() and "__pycache__" not in path.parts:
                found.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return found.hexdigest()[:16]


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Several processes run tests."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
