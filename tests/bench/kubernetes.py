"""Jobs on a Kubernetes cluster: the tests' API server, scheduler and kubelet, in a process of their own.

How soon a job prints its first line, in real containers of an engine (no figure where none can run); what 200 pods take
of the server's CPU, from the submission until all run; and what watching 1,000 pods takes on which nothing happens.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from chalicelib.backends.kubernetes.backend import KubernetesBackend
from chalicelib.backends.kubernetes.config import KubernetesBackendConfig
from chalicelib.domain.instances import Handle
from chalicelib.errors import Gone
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.bench.measure import report, running_server, server_pid, submit, task, threads_cpu_of
from tests.e2e.hosts.network import Namespace
from tests.e2e.kubernetes.cluster import IMAGE, REACHED_BY_PODS, add_cluster, cluster_beside
from tests.harness import docker
from tests.harness.debian import NotHere
from tests.harness.images import applets_image
from tests.harness.server import Server, until
from tests.runtime.live import log_of, wait_for

RUNS = 5
PODS, IDLE = 200, 1_000
SETTLING, SECONDS = 5, 60  # the server says something to a watch every minute
SMALL = {"cpu": "1..", "memory": "0.1GB..", "disk": None}


def main() -> None:
    try:
        lines = first_lines()
    except NotHere as problem:
        print(f"kubernetes: no engine, so no first line: {problem}", file=sys.stderr)
        lines = []
    with scripted_cluster() as cluster, running_server("--no-local-fleet") as server:
        add_cluster(server, cluster.kubeconfig, most=PODS)
        placed, watched = placed_and_watched(server, cluster)
    with scripted_cluster() as cluster:
        cluster.ask("more")
        idle = idle_watch(cluster)
    figures = {"placed_cpu_ms": [placed], "watched": watched, "idle_core_percent": [idle], "seconds": SECONDS}
    report("kubernetes", **({"first_line_s": lines} if lines else {}), **figures)


# --- in an engine's containers ----------------------------------------------------------------------------------------


def first_lines() -> list[float]:
    with ExitStack() as stack:
        engine = stack.enter_context(docker.start())
        docker.bring(engine, applets_image())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        place = Namespace(engine.folder.name)
        (folder / "cluster").mkdir()
        (folder / "home").mkdir()
        kubeconfig = stack.enter_context(cluster_beside(engine, place, folder / "cluster"))
        server = Server(
            folder / "home",
            env=REACHED_BY_PODS,
            network=place.path,
            opener=place.opener(),
            program="tests.e2e.kubernetes.plane",
        )
        stack.callback(server.close)
        server.start()
        add_cluster(server, kubeconfig, most=2 * RUNS)
        return [first_line(server, f"first-{number}") for number in range(RUNS + 1)][1:]  # the first makes the carrier


def first_line(server: Server, name: str) -> float:
    begun = time.perf_counter()
    submit(server, task(name, "echo here", image=IMAGE, resources=SMALL))
    until(f"the first line of {name}", lambda: "here" in log_of(server, name), every=0.02)
    found = time.perf_counter() - begun
    wait_for(server, name, "done")
    until(f"the pod of {name} to go", lambda: not machines(server))  # or the node is full before the last run
    return found


def machines(server: Server) -> list[Any]:
    (fleet,) = server.call("/api/project/main/fleets/list", {})
    return [each for each in fleet["instances"] if each["status"] != "terminated"]


# --- pods without containers ------------------------------------------------------------------------------------------


class ScriptedCluster(NamedTuple):
    """A cluster in another process, whose pods run without doing anything."""

    kubeconfig: dict[str, Any]
    ask: Callable[[str], Any]  # `running`: how many pods do; `more`: make idle ones; `calls`: what the server was asked


@contextmanager
def scripted_cluster() -> Iterator[ScriptedCluster]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve_cluster, args=(theirs,), daemon=True)
    process.start()

    def ask(what: str) -> Any:
        ours.send(what)
        return ours.recv()

    try:
        yield ScriptedCluster(ours.recv(), ask)
    finally:
        process.kill()
        process.join()


def serve_cluster(pipe: Connection) -> None:
    cluster = Cluster(lambda: time.time_ns() // 1000, "scripted")
    for number in range(20):
        cluster.add_node(f"node-{number}", cpu="1000", memory="4000Gi", ephemeral_storage="9000Gi", pods="1000")
    with cluster.serving():
        pipe.send(cluster.kubeconfig())
        while what := pipe.recv():
            if what == "more":
                add_idle(cluster)
            with cluster.store.changed:
                cluster.settle()
                names = [call.operation.name for call in cluster.calls]
                running = sum(pod["status"]["phase"] == "Running" for pod in cluster.store.all("pods"))
            pipe.send(dict(Counter(names)) if what == "calls" else running)


def add_idle(cluster: Cluster) -> None:
    """Pods of another installation in the same namespace."""
    for number in range(IDLE):
        cluster.add(
            "Pod",
            f"idle-{number}",
            "default",
            metadata={"labels": {"dstack-instance": f"idle-{number}", "dstack-install": "idle"}},
            spec={"containers": [{"name": "job", "image": "it", "resources": {"requests": {"cpu": "1"}}}]},
        )


def placed_and_watched(server: Server, cluster: ScriptedCluster) -> tuple[float, int]:
    """CPU milliseconds of the server a pod, and how many of them it has seen running."""
    pid = server_pid(server)
    submit(server, task("warm", "true", image="it", resources=SMALL))
    until("the first pod to run", lambda: cluster.ask("running") >= 1)
    before = threads_cpu_of(pid)
    for number in range(PODS - 1):
        submit(server, task(f"pod-{number}", "true", image="it", resources=SMALL))
    until("all pods to run", lambda: cluster.ask("running") >= PODS, seconds=300, every=0.5)
    time.sleep(SETTLING)
    spent = (threads_cpu_of(pid) - before) * 1000 / (PODS - 1)
    (fleet,) = server.call("/api/project/main/fleets/list", {})
    return spent, sum(bool(each["hostname"]) for each in fleet["instances"])


def idle_watch(cluster: ScriptedCluster) -> float:
    """Percent of a core that the watch of a thousand pods takes on which nothing happens, in this process."""
    raw = {"type": "kubernetes", "kubeconfig": {"data": yaml.safe_dump(cluster.kubeconfig)}}
    backend = KubernetesBackend(KubernetesBackendConfig.model_validate(raw))
    backend.watch(lambda changes: None, "idle")
    before = cluster.ask("calls").get("watch pods", 0)
    list(backend.list_owned())
    with suppress(Gone):
        backend.describe([Handle(kind="vm", id="none", data={"region": cluster.kubeconfig["current-context"]})])
    until("the watch to begin", lambda: cluster.ask("calls").get("watch pods", 0) > before)
    time.sleep(SETTLING)
    begun, spent = time.monotonic(), time.process_time()
    time.sleep(SECONDS)
    found = (time.process_time() - spent) / (time.monotonic() - begun) * 100
    backend.close()
    return found


if __name__ == "__main__":
    main()
