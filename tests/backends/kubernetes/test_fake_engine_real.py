"""The fake's pods as real containers: of an engine, from their images."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.backends.kubernetes.fake.__main__ import cluster_of, ticking
from tests.backends.kubernetes.fake.cluster import Cluster
from tests.backends.kubernetes.fake.engine import POD
from tests.backends.kubernetes.objects import pod, secret
from tests.harness.docker import DockerEngine
from tests.harness.images import BUSYBOX
from tests.harness.server import PATIENCE

pytestmark = pytest.mark.slow

HERE = "default"


@pytest.fixture
def real(docker_engine: DockerEngine, tmp_path: Path) -> Iterator[tuple[Cluster, Any]]:
    from kubernetes import client, config

    cluster, done = cluster_of(docker_engine.api, tmp_path), threading.Event()
    ticks = threading.Thread(target=ticking, args=(cluster, done))
    with cluster.serving():
        ticks.start()
        with config.new_client_from_config_dict(cluster.kubeconfig()) as api:
            yield cluster, client.CoreV1Api(api)
        done.set()
        ticks.join()
    for found in docker_engine.api.labelled(POD):
        docker_engine.api.remove(found["Id"])


def until(what: str, holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.05)
    return found


def phase(core: Any, name: str, *phases: str) -> Any:
    def reached() -> Any:
        found = core.read_namespaced_pod(name, HERE)
        return found if found.status.phase in phases else None

    return until(f"{name} to be {phases}", reached)


def shell(script: str, **more: Any) -> dict[str, Any]:
    return {"image": BUSYBOX, "command": ["/bin/sh", "-c", script], **more}


def test_a_pod_is_a_container_with_all_that_it_asked_for(real: tuple[Cluster, Any]) -> None:
    _, core = real
    core.create_namespaced_secret(HERE, secret("s", token="abc", file="in a file"))
    mounts = [{"name": "shared", "mountPath": "/shared"}, {"name": "secret", "mountPath": "/secret", "readOnly": True}]
    reference = {"secretKeyRef": {"name": "s", "key": "token"}}
    main = shell(
        'echo "$(cat /shared/made) $TOKEN $(cat /secret/file) $(id -u):$(id -g) $(pwd)"; exit 3',
        env=[{"name": "TOKEN", "valueFrom": reference}],
        volumeMounts=mounts,
        workingDir="/tmp",
        securityContext={"runAsUser": 1234, "runAsGroup": 4321, "readOnlyRootFilesystem": True},
    )
    core.create_namespaced_pod(
        HERE,
        pod(
            "a",
            container=main,
            initContainers=[{"name": "first", **shell("echo made >/shared/made", volumeMounts=mounts[:1])}],
            volumes=[{"name": "shared", "emptyDir": {}}, {"name": "secret", "secret": {"secretName": "s"}}],
        ),
    )
    ended = phase(core, "a", "Succeeded", "Failed").status
    assert core.read_namespaced_pod_log("a", HERE) == "made abc in a file 1234:4321 /tmp\n"
    assert (ended.phase, ended.container_statuses[0].state.terminated.exit_code) == ("Failed", 3)
    core.delete_namespaced_pod("a", HERE)
    assert core.list_namespaced_pod(HERE).items == []


def test_commands_ports_and_signals_reach_it(real: tuple[Cluster, Any], docker_engine: DockerEngine) -> None:
    from kubernetes.stream import portforward, stream

    _, core = real
    script = "trap 'exit 5' TERM; nc -ll -p 8123 -e /bin/cat & echo up; while :; do sleep 1; done"
    core.create_namespaced_pod(HERE, pod("a", container=shell(script)))
    phase(core, "a", "Running")
    until("its port", lambda: "up" in core.read_namespaced_pod_log("a", HERE))
    command = ["/bin/sh", "-c", "cat; exit 4"]
    wanted = {"command": command, "stdin": True, "stdout": True, "stderr": True, "binary": True}
    opened = stream(core.connect_get_namespaced_pod_exec, "a", HERE, _preload_content=False, **wanted)
    opened.write_stdin(b"hello")
    opened.close_channel(0)
    opened.run_forever(timeout=PATIENCE)
    assert (opened.read_channel(1), opened.returncode) == (b"hello", 4)
    forwarded = portforward(core.connect_get_namespaced_pod_portforward, "a", HERE, ports="8123")
    sock = forwarded.socket(8123)
    sock.settimeout(PATIENCE)
    sock.sendall(b"echo this\n")
    assert sock.recv(100) == b"echo this\n"
    sock.close()
    core.delete_namespaced_pod("a", HERE, grace_period_seconds=20)
    until("it to go", lambda: core.list_namespaced_pod(HERE).items == [])
    until("its container to go", lambda: docker_engine.api.labelled(POD) == [])


def test_what_cannot_start_says_why(real: tuple[Cluster, Any]) -> None:
    _, core = real
    core.create_namespaced_pod(HERE, pod("image", image="test/nowhere:1"))
    core.create_namespaced_pod(HERE, pod("command", image=BUSYBOX, container={"command": ["/nothing"]}))
    core.create_namespaced_pod(HERE, pod("root", image=BUSYBOX, securityContext={"runAsNonRoot": True}))

    def waiting(name: str) -> Any:
        (status,) = core.read_namespaced_pod(name, HERE).status.container_statuses or [None]
        return status and status.state.waiting

    until("the image's error", lambda: waiting("image") and waiting("image").reason == "ErrImagePull")
    assert "test/nowhere:1" in waiting("image").message
    (failed,) = phase(core, "command", "Failed").status.container_statuses
    assert failed.state.terminated.reason == "StartError" and "/nothing" in failed.state.terminated.message
    until("the user's error", lambda: waiting("root") and waiting("root").reason == "CreateContainerConfigError")
    assert waiting("root").message == "container has runAsNonRoot and image will run as root"
