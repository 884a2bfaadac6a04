"""A cluster with an engine's containers, in a process of its own: for whoever is in another network.

    python -m tests.backends.kubernetes.fake SOCKET FOLDER [PORT]

It writes FOLDER/kubeconfig, an administrator's, when it can be reached, and ends with SIGTERM. The account of the
documentation is there as well (`account.of_account`).
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from pathlib import Path

from chalicelib.agent.runtimes.docker_client import DockerClient
from tests.backends.kubernetes.account import add_account
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.fake.engine import HOST, Engine

TICK = 0.1


def now() -> int:
    return time.time_ns() // 1000


def cluster_of(client: DockerClient, folder: Path) -> Cluster:
    engine = Engine(client, folder, now)
    cluster = Cluster(now, "engine", engine)
    engine.store = cluster.store
    cluster.balancers.addresses = [HOST]
    cluster.add_node("node-1", cpu="4", memory="8Gi")
    add_account(cluster)
    return cluster


def ticking(cluster: Cluster, done: threading.Event) -> None:
    """Containers end without asking the API server."""
    while not done.wait(TICK):
        cluster.settle()


def main(arguments: list[str]) -> int:
    client, folder, done = DockerClient(arguments[0]), Path(arguments[1]), threading.Event()
    cluster = cluster_of(client, folder)
    signal.signal(signal.SIGTERM, lambda *_: done.set())
    with cluster.serving(int(arguments[2]) if len(arguments) > 2 else 0):
        written = folder / "kubeconfig.new"
        written.write_text(json.dumps(cluster.kubeconfig()))
        written.rename(folder / "kubeconfig")
        ticking(cluster, done)
    for pod in cluster.store.all("pods"):
        cluster.kubelet.runtime.remove(pod)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
