"""The wheel alone: built, installed where nothing else of ours is to be found, and taken on the README's tour.

Its dependencies are those of this environment, by links, and only the ones that a plain install brings: what needs an
extra fails here. Nothing is fetched.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from chalicelib.agent.build import build
from tests.harness.server import PATIENCE, ROOT, Server

# nobody needs them all
EXTRAS = {"aws-lambda-powertools", "boto3", "google-cloud-compute", "kubernetes", "pynamodb"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-build-isolation", "--wheel-dir", str(out), str(ROOT))
    (built,) = out.iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a fresh environment's programs, with the wheel and what a plain install of it brings."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, symlinks=True)
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


def tour() -> list[str]:
    """The README's block for an installed tool, without its first line: that is how this test came to run."""
    blocks = re.findall(r"```shell\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (block,) = [block for block in blocks if "pipx install" in block]
    lines: list[str] = block.splitlines()
    assert lines[0].startswith("pipx install")
    return lines[1:]


def test_it_holds_the_program_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry_points,) = [archive.read(name).decode() for name in names if name.endswith("/entry_points.txt")]
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"app.py", "chalicelib", "cli", "functions"}
    others = [name for name in names if ".dist-info/" not in name and not name.endswith(".py")]
    assert all(name.startswith("chalicelib/agent/gateway/") and name.endswith((".conf", ".lua")) for name in others)
    assert entry_points.split() == ["[console_scripts]", "dstack", "=", "cli.main:main"]


def test_it_says_what_it_is(wheel: Path) -> None:
    found = metadata(wheel)
    assert found["License-Expression"] == "Apache-2.0" and found["License-File"] == "LICENSE"
    assert found["Requires-Python"] == ">=3.11"
    assert str(found.get_payload()).strip() == (ROOT / "README.md").read_text().strip()


def test_a_plain_install_brings_no_providers_sdk(wheel: Path) -> None:
    assert not plain_install(wheel) & EXTRAS
    optional = [Requirement(line) for line in metadata(wheel).get_all("Requires-Dist") or () if "extra ==" in line]
    assert {need.name for need in optional} == EXTRAS


def test_nothing_of_the_repository_is_found_but_through_it(installed: Path, tmp_path: Path) -> None:
    code = "import app, chalicelib, cli, functions as f; print(*(one.__file__ for one in (app, chalicelib, cli, f)))"
    done = subprocess.run([installed / "python", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert all(Path(place).is_relative_to(installed.parent) for place in done.stdout.split())
    missing = subprocess.run([installed / "python", "-c", "import tests"], cwd=tmp_path, capture_output=True, text=True)
    assert "No module named 'tests'" in missing.stderr


def test_the_agents_program_comes_out_of_it_byte_for_byte(installed: Path, tmp_path: Path) -> None:
    out = tmp_path / "agent.pyz"
    subprocess.run([installed / "python", "-m", "chalicelib.agent.build", out], cwd=tmp_path, check=True)
    assert out.read_bytes() == build()


def test_the_readmes_tour(installed: Path, tmp_path: Path) -> None:
    user = Server(tmp_path / "home", env={"DSTACK_SERVER_PORT": "0", "DSTACK_AGENT_RUNTIME": "process"})
    empty = tmp_path / "empty"
    user.home.mkdir()
    empty.mkdir()
    environment = user.environment()
    environment["PATH"] = f"{installed}:{environment['PATH']}"
    server: subprocess.Popen[str] | None = None
    said: dict[str, str] = {}
    try:
        for line in tour():
            if line.endswith(" &"):
                server = subprocess.Popen(
                    shlex.split(line[:-2]), cwd=empty, env=environment, stdout=subprocess.PIPE, text=True
                )
                assert server.stdout is not None
                assert any("is the default" in told for told in iter(server.stdout.readline, ""))
                continue
            done = subprocess.run(["sh", "-c", line], cwd=empty, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, f"{line}:\n{done.stdout}{done.stderr}"
            said[line.split()[1]] = done.stdout + done.stderr
    finally:
        if server is not None:
            server.terminate()
            server.wait(timeout=PATIENCE)
        user.close()
    assert "Hello from hello" in said["apply"] and "Hello from hello" in said["logs"]
    assert "exited (0)" in said["ps"]
    assert "hello" in said["event"]
