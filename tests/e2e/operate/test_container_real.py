"""The Dockerfile, the Compose file and the Helm chart in infra/install: a server built and run by a real engine, from a
base made here, while a job runs on a host."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import distribution
from pathlib import Path
from site import getsitepackages
from typing import Any

import pytest

from tests.backends.kubernetes.fake.__main__ import cluster_of, ticking
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.e2e.hosts.site import Site, or_skipped
from tests.e2e.hosts.spec import HostSpec
from tests.e2e.operate import test_helm_real
from tests.e2e.operate.counting import Counting, ready, user_at
from tests.harness import docker, images, installed
from tests.harness.debian import NotHere, install
from tests.harness.docker import DockerEngine
from tests.harness.images import Image
from tests.harness.server import PATIENCE, ROOT, TOKEN, until

pytestmark = pytest.mark.slow
INSTALL = ROOT / "infra/install"
BASE, IMAGE = "test/server-base:1", "test/dstack-server:1"
SPACE = "dstack"  # the chart's namespace


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


def base_image(wheel: Path) -> Image:
    """What the Dockerfile needs of its base: Python, pip, and, because there is no network, what the wheel requires."""

    def make(root: Path) -> None:
        images._make_python(root)
        packages = root / getsitepackages([sys.base_prefix])[-1].lstrip("/")
        for refusal in root.glob("**/EXTERNALLY-MANAGED"):  # of a distribution's Python, to its pip
            refusal.unlink()
        programs = [Path(shutil.which(tool) or f"/bin/{tool}") for tool in ("mkdir", "chown", "rm")]
        for name in libraries:
            for file in distribution(name).files or ():
                source = Path(str(file.locate()))
                if ".." in file.parts or not source.is_file():
                    continue
                place = packages / file
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, place)  # what was compiled of it counts by its date
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
    archive = images._once(f"server-base-3-{plain.archive.stem}-{pinned.hexdigest()[:12]}", make)
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


@pytest.fixture(scope="module")
def site(place: Place) -> Iterator[Site]:
    """A host that the engine's containers reach."""
    with or_skipped([], head=HostSpec("head"), control=place.engine.folder.name) as booted:
        yield booted


def test_it_keeps_its_data_and_its_jobs_over_a_restart_and_stops_cleanly(
    place: Place, site: Site, tmp_path: Path
) -> None:
    user = user_at(site.control, tmp_path / "home", "http://127.0.0.1:3000")
    place.compose("up", "--detach")
    until("the server to be ready", lambda: ready(user))
    job = Counting(site, site.head, user, place.compose("exec", "-T", "dstack", "cat", "/data/admin.token").strip())
    container = place.docker("ps", "--quiet", "--filter=label=com.docker.compose.project=team").strip()
    assert place.docker("exec", container, "id", "-u").strip() == "10001"
    place.docker("exec", container, *health())
    place.compose("restart")
    until("the server to be back", lambda: ready(user))
    job.goes_on()
    job.end()
    job.leave()
    place.compose("stop")
    state = json.loads(place.docker("inspect", "--format={{json .State}}", container))
    assert state["ExitCode"] == 0 and not state["OOMKilled"]
    assert place.compose("logs").count('"The server has stopped"') == 2
    place.compose("down", "--volumes")


@dataclass
class Chart:
    """The chart in a cluster, whose pods the engine runs."""

    cluster: Cluster
    folder: Path

    def helm(self, *words: str) -> None:
        where = ["--namespace", SPACE, "--kubeconfig", f"{self.folder}/kubeconfig"]
        test_helm_real.run(self.folder, *words, *where, "--wait", "--timeout", f"{PATIENCE:.0f}s")

    @property
    def pod(self) -> dict[str, Any]:
        return self.cluster.pod("gpu-0", SPACE)

    @property
    def url(self) -> str:
        return f"http://{self.pod['status']['podIP']}:3000"

    def exits(self) -> list[int]:
        """How the server's containers have ended, in all that the cluster has ever said of pods."""
        shown = [change.new for change in self.cluster.store.since(0) if change.plural == "pods" and change.new]
        found = {
            each["metadata"]["uid"]: status["state"]["terminated"]["exitCode"]
            for each in shown
            for status in each["status"].get("containerStatuses", ())
            if "terminated" in status["state"]
        }
        return list(found.values())


@pytest.fixture
def chart(place: Place, tmp_path: Path) -> Iterator[Chart]:
    """In a namespace with the strictest of Kubernetes' standards for pods."""
    cluster, done = cluster_of(place.engine.api, tmp_path), threading.Event()
    cluster.add_namespace(SPACE, **{"pod-security.kubernetes.io/enforce": "restricted"})
    default = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    cluster.add("StorageClass", "standard", provisioner="test", metadata=default)
    cluster.add("Secret", "admin", SPACE, stringData={"token": TOKEN})
    ticks = threading.Thread(target=ticking, args=(cluster, done))
    with cluster.serving():
        (tmp_path / "kubeconfig").write_text(json.dumps(cluster.kubeconfig()))
        ticks.start()
        try:
            yield Chart(cluster, tmp_path)
        finally:
            done.set()
            ticks.join()
            for pod in cluster.store.all("pods"):
                cluster.kubelet.runtime.remove(pod)


def test_the_charts_pod_keeps_its_data_and_its_jobs_when_it_is_made_anew(
    place: Place, site: Site, chart: Chart, tmp_path: Path
) -> None:
    repository, _, tag = IMAGE.rpartition(":")
    image = ["--set", f"image.repository={repository},image.tag={tag},adminTokenSecret=admin"]
    chart.helm("install", "gpu", f"{INSTALL}/helm", *image)
    user, first = user_at(site.control, tmp_path / "home", chart.url), chart.pod
    assert ready(user), "Helm waits for its readiness"
    job = Counting(site, site.head, user, TOKEN)
    chart.helm("upgrade", "gpu", f"{INSTALL}/helm", *image, "--set", "env.DSTACK_RETAIN_LOGS=30")
    assert chart.pod["metadata"]["uid"] != first["metadata"]["uid"]
    user.url = chart.url
    job.goes_on()
    job.end()
    chart.helm("uninstall", "gpu")
    until("the pod to go with its set", lambda: not chart.cluster.store.all("pods", SPACE))
    assert chart.exits() == [0, 0]
    claims = [each["metadata"]["name"] for each in chart.cluster.store.all("persistentvolumeclaims", SPACE)]
    assert claims == ["data-gpu-0"], "which is the user's to delete"


def health() -> list[str]:
    """The command by which the Dockerfile has the engine check it."""
    lines = (INSTALL / "Dockerfile").read_text().splitlines()
    (line,) = [line.strip() for line in lines if line.strip().startswith("CMD [")]
    found: list[str] = json.loads(line.removeprefix("CMD "))
    return found
