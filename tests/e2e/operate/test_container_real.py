"""The Dockerfile and the Compose file in infra/install, built and run by a real engine from a base made here."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from tests.harness import docker, images, installed
from tests.harness.debian import NotHere, install
from tests.harness.docker import DockerEngine
from tests.harness.images import Image
from tests.harness.server import PATIENCE, ROOT, until

pytestmark = pytest.mark.slow
INSTALL = ROOT / "infra/install"
BASE, IMAGE = "test/server-base:1", "test/dstack-server:1"
CURL = "curl --silent --fail --max-time 10"


@dataclass
class Place:
    engine: DockerEngine
    folder: Path

    def docker(self, *words: str) -> str:
        return self._run("docker", *words)

    def compose(self, *words: str) -> str:
        return self._run("docker-compose", "--project-name=team", f"--file={INSTALL}/compose.yml", *words)

    def _run(self, *argv: str) -> str:
        env = {"HOME": str(self.folder), "PATH": os.environ["PATH"], "DOCKER_HOST": f"unix://{self.engine.socket}"}
        env |= {"DOCKER_BUILDKIT": "0", "DSTACK_IMAGE": IMAGE}
        done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def get(self, path: str, token: str = "") -> Any:
        """From the machine that the engine is on; None unless it is answered."""
        authorised = ["--header", f"Authorization: Bearer {token}"] if token else []
        argv = ["nsenter", f"--net=/run/netns/{self.engine.folder.name}", *CURL.split(), *authorised]
        done = subprocess.run([*argv, f"http://127.0.0.1:3000{path}"], capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else None


def base_image(wheel: Path) -> Image:
    """What the Dockerfile needs of its base: Python, pip, and, because there is no network, what the wheel requires."""

    def make(root: Path) -> None:
        images._make_python(root)
        (site,) = [path for path in root.glob("**/lib/python3.*") if (path / "os.py").exists()]
        programs = [Path(shutil.which(tool) or f"/bin/{tool}") for tool in ("mkdir", "chown", "rm")]
        for name in libraries:
            for file in distribution(name).files or ():
                source = Path(str(file.locate()))
                if ".." in file.parts or "__pycache__" in file.parts or not source.is_file():
                    continue
                place = site / "site-packages" / file
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, place)
                programs += [source] if ".so" in source.name else []
        for tool in programs[:3]:
            shutil.copy(tool.resolve(), root / "bin" / tool.name)
        for library in images.libraries_of(programs):
            place = root / library.relative_to("/")
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library.resolve(), place)
        (root / "tmp").chmod(0o1777)

    plain, libraries = images.python_image(), sorted({"pip", "setuptools", *installed.brought(wheel, "server")})
    pinned = hashlib.sha256(" ".join(f"{name}=={distribution(name).version}" for name in libraries).encode())
    archive = images._once(f"server-base-{plain.archive.stem}-{pinned.hexdigest()[:12]}", make)
    path = f"{sys.base_prefix}/bin:{plain.env['PATH']}"  # where pip puts programs
    return replace(plain, name=BASE, archive=archive, env={**plain.env, "PATH": path})


@pytest.fixture(scope="module")
def place(docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Place:
    try:
        if not shutil.which("docker-compose"):
            install("docker-compose")
    except NotHere as problem:
        pytest.skip(f"no Compose: {problem}")
    folder, wheel = tmp_path_factory.mktemp("container"), installed.wheel()
    shutil.copy(wheel, folder)
    docker.bring(docker_engine, base_image(wheel))
    made = Place(docker_engine, folder)
    words = ["build", "--network=none", f"--file={INSTALL}/Dockerfile", f"--build-arg=BASE={BASE}"]
    made.docker(*words, f"--tag={IMAGE}", str(folder))
    return made


def test_it_is_ready_keeps_its_data_over_a_restart_and_stops_cleanly(place: Place) -> None:
    place.compose("up", "--detach")
    until("the server to be ready", lambda: (place.get("/readyz") or {}).get("ready"))
    token = place.compose("exec", "-T", "dstack", "cat", "/data/admin.token").strip()
    assert place.compose("exec", "-T", "dstack", "id", "-u").strip() == "10001"
    place.compose("exec", "-T", "dstack", *health())
    before = place.get("/api/v1/projects", token)
    assert before["items"][0]["name"] == "main"
    place.compose("restart")
    until("the server to be back", lambda: (place.get("/readyz") or {}).get("ready"))
    assert place.get("/api/v1/projects", token) == before
    place.compose("stop")
    container = place.compose("ps", "--quiet").strip()
    state = json.loads(place.docker("inspect", "--format={{json .State}}", container))
    assert state["ExitCode"] == 0 and not state["OOMKilled"]
    assert place.compose("logs").count('"The server has stopped"') == 2
    place.compose("down", "--volumes")


def health() -> list[str]:
    """The command by which the Dockerfile has the engine check it."""
    lines = (INSTALL / "Dockerfile").read_text().splitlines()
    (line,) = [line.strip() for line in lines if line.strip().startswith("CMD [")]
    found: list[str] = json.loads(line.removeprefix("CMD "))
    return found
