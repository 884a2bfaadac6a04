"""The genuine dstack in the environment that this is installed in, by pip, in either order: both work, and the command
that both have is said to be whose it is.

What the genuine one needs is found where the tests' own copy of it has it (`.venvs/peer`). Nothing is fetched.
"""

from __future__ import annotations

import subprocess
import zipfile
from importlib.metadata import Distribution, MetadataPathFinder
from pathlib import Path

import pytest

from tests.harness.installed import environment, pip, wheel
from tests.harness.server import ROOT, Server

PEER = ROOT / ".venvs" / "peer"
LATER = "{type: task, name: later, commands: [ls], schedule: {cron: '0 0 1 1 *'}}"
NOTE = "dstack 0.22.5 is installed beside it."
ASK = """
import sys
from dstack.api import Client
client = Client.from_config(project_name="main", server_url=sys.argv[1], user_token=sys.argv[2])
print([run.name for run in client.runs.list()])
"""


@pytest.fixture(scope="module")
def peers_site() -> Path:
    found = next(iter(PEER.glob("lib/python*/site-packages")), None)
    if found is None:
        pytest.skip(f"{PEER} isn't there; `make test` makes it")
    return found


@pytest.fixture(scope="module")
def genuine(peers_site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its wheel, made again of its installed files."""
    context = MetadataPathFinder.Context(name="dstack", path=[str(peers_site)])
    (one,) = MetadataPathFinder.find_distributions(context)
    return packed(one, tmp_path_factory.mktemp("genuine"))


def packed(one: Distribution, folder: Path) -> Path:
    wheel = folder / f"dstack-{one.version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in one.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                archive.write(str(one.locate_file(file)), str(file))
    return wheel


def output(*command: str | Path, env: dict[str, str]) -> str:
    done = subprocess.run(command, env=env, cwd=env["HOME"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_both_work_and_it_is_said_which_is_which(peers_site: Path, genuine: Path, tmp_path: Path) -> None:
    home, both, programs = tmp_path / "home", tmp_path / "both", tmp_path / "both" / "bin"
    site = environment(both)
    pip(both, wheel())
    (site / "peer.pth").write_text(f"{peers_site}\n")
    home.mkdir()
    (home / "later.dstack.yml").write_text(LATER)
    server = Server(home, flags=("--no-local-fleet",))
    try:
        server.start("-y")
        env = server.environment()
        output(programs / "dstack-serverless", "apply", "-f", "later.dstack.yml", "-y", "-d", env=env)
        pip(both, genuine)
        assert "later" in output(programs / "dstack-serverless", "ps", env=env)
        assert output(programs / "python", "-c", ASK, server.url, server.token, env=env) == "['later']\n"
        assert NOTE in output(programs / "dstack-serverless", "--version", env=env)
        assert NOTE not in output(programs / "dstack", "--version", env=env)
        script = output(programs / "dstack-serverless", "completion", "bash", env=env)
        assert script.rstrip().endswith(" dstack-serverless"), "it completes the name that it was called by"
        assert output(programs / "dstack-serverless", "--help", env=env).startswith("Usage: dstack-serverless ")
        pip(both, wheel())
        assert "later" in output(programs / "dstack", "ps", env=env)
        assert NOTE in output(programs / "dstack", "--version", env=env)
    finally:
        server.close()
