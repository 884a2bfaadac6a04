"""A cluster beside an engine, and a server that has it as a backend, in the engine's network."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.backends.kubernetes.fake.engine import HOST
from tests.e2e.hosts.network import Namespace
from tests.harness.docker import DockerEngine
from tests.harness.server import ROOT, Server, until

IMAGE = "test/applets:1"
FLEET = "type: fleet\nname: cluster\nnodes: 0..{most}\nbackends: [kubernetes]\n"
REACHED_BY_PODS = {"DSTACK_SERVER_HOST": HOST, "no_proxy": f"{HOST},127.0.0.1"}  # a server's environment


@contextmanager
def cluster_beside(engine: DockerEngine, place: Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """The kubeconfig of a cluster with one node."""
    command = [*place.prefix, sys.executable, "-m", "tests.backends.kubernetes.fake", engine.socket, str(folder)]
    with process_with_kubeconfig(command, folder) as found:
        yield found


@contextmanager
def process_with_kubeconfig(command: list[str], folder: Path) -> Iterator[dict[str, Any]]:
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        until("the cluster to come up", lambda: (folder / "kubeconfig").exists() or process.poll() is not None)
        yield json.loads((folder / "kubeconfig").read_text())
    finally:
        process.terminate()
        process.wait()


def add_cluster(server: Server, kubeconfig: dict[str, Any], most: int = 2, **context: Any) -> None:
    """To a server that runs: the backend, and a fleet of `most` pods at once. `context`: further options of it."""
    backend = {
        "type": "kubernetes",
        "kubeconfig": {"data": yaml.safe_dump(kubeconfig)},
        "contexts": [{"name": kubeconfig["current-context"], "init_image": IMAGE, **context}],
    }
    (server.home / "kubernetes.yml").write_text(yaml.safe_dump(backend))
    (server.home / "fleet.dstack.yml").write_text(FLEET.format(most=most))
    assert "Backend kubernetes is added" in server.cli("backend", "add", "-f", str(server.home / "kubernetes.yml"))
    server.cli("apply", "-y", "-d", "-f", str(server.home / "fleet.dstack.yml"))
