"""Containers that the machine's network needs beside a job on several nodes: some install libraries on the machine and
end before the job starts, others carry its traffic and end after it.

They are the network's, not the job's: privileged, with all GPUs, and without the job's variables or logins.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List

from ..kernel.task_runtime import TaskContext, TaskError
from .docker_client import DockerClient, DockerError, DockerUnreachable, container_name, split_image
from .visibility import NVIDIA_CAPABILITIES

LABEL = "dstack.sidecar"  # of which task
INSTALL_SECONDS, READY_SECONDS = 600.0, 120.0
SHOWN = 400  # characters of what a failed one printed


class Waited(Exception):
    """It has been waited for long enough."""


def start(docker: DockerClient, context: TaskContext, labels: Dict[str, str], own: str) -> None:
    """Start those that the task's spec names, in their order. `labels`: of the task's container; `own`: the one that
    all containers of this agent have."""
    wanted = (context.spec.get("interconnect") or {}).get("sidecars") or ()
    if not wanted:
        return
    for found in docker.labelled(own):
        if LABEL in found["Labels"]:  # nodes have a machine to themselves, so it is of a job that has ended
            docker.remove(found["Id"])
    for number, sidecar in enumerate(wanted):
        name = "%s-%d" % (container_name(context.folder.task), number)
        try:
            _run(docker, context, name, sidecar, dict(labels, **{LABEL: context.folder.task}))
        except DockerError as problem:
            if isinstance(problem, DockerUnreachable):
                raise
            raise _failed(sidecar, problem.message) from None


def remove(docker: DockerClient, task: str) -> None:
    for found in docker.labelled("%s=%s" % (LABEL, task)):
        docker.remove(found["Id"])


def _run(
    docker: DockerClient, context: TaskContext, name: str, sidecar: Dict[str, Any], labels: Dict[str, str]
) -> None:
    image, tag = split_image(sidecar["image"])
    if tag == "latest" or docker.image(sidecar["image"]) is None:
        for line in docker.lines("POST", "/images/create", {"fromImage": image, "tag": tag}, {}, _patient(context)):
            if line.get("error"):
                raise DockerError(500, line["error"])
    docker.call("POST", "/containers/create", {"name": name}, body(sidecar, labels, bool(context.gpus)))
    docker.call("POST", "/containers/%s/start" % name)
    installs, ready = bool(sidecar.get("installs")), str(sidecar.get("ready") or "")
    said = b""
    if installs or ready:
        try:
            for part in docker.output(name, _patient(context, INSTALL_SECONDS if installs else READY_SECONDS)):
                said += part
                if ready and ready.lower().encode("utf-8") in said.lower():
                    return
        except Waited:
            if installs:
                raise _failed(sidecar, "it hasn't ended after %d s" % INSTALL_SECONDS) from None
            return  # it runs: perhaps a newer one says it in other words
    state = (docker.container(name) or {}).get("State") or {}
    if (not installs and not state.get("Running")) or state.get("ExitCode"):
        printed = said.decode("utf-8", "replace").strip()[-SHOWN:]
        raise _failed(sidecar, "it ended with status %s: %s" % (state.get("ExitCode"), printed or "it printed nothing"))


def body(sidecar: Dict[str, Any], labels: Dict[str, str], gpus: bool) -> Dict[str, Any]:
    """Of the engine's create call. A folder that the machine lacks is made by the engine."""
    binds: List[str] = ["%s:%s" % pair for pair in sorted((sidecar.get("mounts") or {}).items())]
    host: Dict[str, Any] = {"Privileged": True, "NetworkMode": "host", "Binds": binds}
    if gpus:
        host["DeviceRequests"] = [{"Count": -1, "Capabilities": [NVIDIA_CAPABILITIES]}]
    variables = ["%s=%s" % item for item in sorted((sidecar.get("env") or {}).items())]
    entrypoint = {"Entrypoint": [sidecar["entrypoint"]]} if sidecar.get("entrypoint") else {}
    return {
        **entrypoint,
        "Image": sidecar["image"],
        "Cmd": list(sidecar.get("args") or ()),
        "Env": variables,
        "Tty": True,
        "Labels": labels,
        "HostConfig": host,
    }


def _patient(context: TaskContext, seconds: float = INSTALL_SECONDS) -> Callable[[], None]:
    until = time.monotonic() + seconds

    def idle() -> None:
        context.pause(0)
        if time.monotonic() > until:
            raise Waited

    return idle


def _failed(sidecar: Dict[str, Any], why: str) -> TaskError:
    what = "the network's container %s, which runs beside the job, failed: %s" % (sidecar["image"], why)
    return TaskError("creating_container_error", what)
