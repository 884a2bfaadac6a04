"""The wheel alone: built, installed where nothing else of ours is to be found, and taken on the README's tour.

Its dependencies are those of this environment, by links, and only the ones that a plain install brings: what needs an
extra fails here. Nothing is fetched.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from chalicelib.agent.program.build import build
from tests.harness.installed import build_wheel, install, metadata, plain_install
from tests.harness.server import PATIENCE, ROOT, HttpError, Server

# nobody needs them all
EXTRAS = {"aws-lambda-powertools", "boto3", "google-cloud-compute", "grpcio", "kubernetes", "protobuf", "pynamodb"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def bin_folder(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment, with the wheel and what a plain install of it brings."""
    return install(wheel, tmp_path_factory.mktemp("fresh"))


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
    others = {name for name in names if ".dist-info/" not in name and not name.endswith(".py")}
    others.remove("chalicelib/carrier/packages.lock")
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


def test_nothing_of_the_repository_is_found_but_through_it(bin_folder: Path, tmp_path: Path) -> None:
    code = "import app, chalicelib, cli, functions as f; print(*(one.__file__ for one in (app, chalicelib, cli, f)))"
    done = subprocess.run([bin_folder / "python", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert all(Path(place).is_relative_to(bin_folder.parent) for place in done.stdout.split())
    missing = subprocess.run(
        [bin_folder / "python", "-c", "import tests"], cwd=tmp_path, capture_output=True, text=True
    )
    assert "No module named 'tests'" in missing.stderr


def test_the_agents_program_comes_out_of_it_byte_for_byte(bin_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "agent.pyz"
    subprocess.run([bin_folder / "python", "-m", "chalicelib.agent.program.build", out], cwd=tmp_path, check=True)
    assert out.read_bytes() == build()


def test_the_readmes_tour(bin_folder: Path, tmp_path: Path) -> None:
    user = Server(tmp_path / "home", env={"DSTACK_SERVER_PORT": "0", "DSTACK_AGENT_RUNTIME": "process"})
    empty = tmp_path / "empty"
    user.home.mkdir()
    empty.mkdir()
    environment = user.environment()
    environment["PATH"] = f"{bin_folder}:{environment['PATH']}"
    server: subprocess.Popen[str] | None = None
    output: dict[str, str] = {}
    try:
        for line in tour():
            if line.endswith(" &"):
                server = subprocess.Popen(
                    shlex.split(line[:-2]), cwd=empty, env=environment, stdout=subprocess.PIPE, text=True
                )
                assert server.stdout is not None
                assert any("is the default" in printed for printed in iter(server.stdout.readline, ""))
                continue
            done = subprocess.run(["sh", "-c", line], cwd=empty, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, f"{line}:\n{done.stdout}{done.stderr}"
            output[line.split()[1]] = done.stdout + done.stderr
    finally:
        if server is not None:
            server.terminate()
            server.wait(timeout=PATIENCE)
        user.close()
    assert "Hello from hello" in output["apply"] and "Hello from hello" in output["logs"]
    assert "exited (0)" in output["ps"]
    assert "hello" in output["event"]


def test_what_needs_an_sdk_says_which_extra_brings_it(bin_folder: Path, tmp_path: Path) -> None:
    """From the command line and over the API; and the server goes on."""
    user = Server(tmp_path / "home", flags=("--no-local-fleet",), command=(str(bin_folder / "dstack"),), fork=False)
    user.home.mkdir()
    aws = {"type": "aws", "creds": {"type": "access_key", "access_key": "AKIA", "secret_key": "x"}}
    try:
        user.start()
        add = [str(bin_folder / "dstack"), "backend", "add", "aws", "--access-key", "AKIA", "--secret-key", "-"]
        environment = user.environment()
        added = subprocess.run(add, cwd=user.home, env=environment, capture_output=True, text=True, input="x\n")
        assert added.returncode == 1 and added.stderr.count("\n") <= 2, added
        assert "pip install 'dstack-serverless[aws]'" in added.stderr
        with pytest.raises(HttpError, match=r"dstack-serverless\[aws\]") as refused:
            user.call("/api/project/main/backends/create", aws)
        assert refused.value.status == 400
        assert not any("Traceback" in line for line in user.lines)
    finally:
        user.close()
