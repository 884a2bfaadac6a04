"""Containers that the machine's network needs beside a job on several nodes: some install libraries on the machine and
end before the job starts, others carry its traffic and end after it.

They are the network's, not the job's: privileged, with all GPUs, and without the job's variables or logins.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable, Dict, List

from ..kernel.task_runtime import TaskContext, TaskError
from .docker_client import DockerClient, DockerError, DockerUnreachable, container_name, split_image
from .visibility import NVIDIA_CAPABILITIES

if TYPE_CHECKING:
    from ...contract.agent import TaskSidecar

LABEL = "dstack.sidecar"  # of which task
INSTALL_SECONDS, READY_SECONDS = 600.0, 120.0
MOST_PRINTED = 65536  # bytes of what one printed that are looked at
SHOWN = 400  # characters of what a failed one printed


class Waited(Exception):
    """It has been waited for long enough."""


def start(
    docker: DockerClient, context: TaskContext, labels: Dict[str, str], own: str, clock: Callable[[], float]
) -> None:
    """Start those that the task's spec names, in their order. `labels`: of the task's container; `own`: the one that
    all containers of this agent have."""
    known = context.spec.get("interconnect")
    wanted = known.get("sidecars") if known else None
    if not wanted:
        return
    for found in docker.labelled(own):
        if LABEL in found["Labels"]:  # nodes have a machine to themselves, so it is of a job that has ended
            docker.remove(found["Id"])
    for number, sidecar in enumerate(wanted):
        name = "%s-%d" % (container_name(context.folder.task), number)
        try:
            _run(docker, context, name, sidecar, dict(labels, **{LABEL: context.folder.task}), clock)
        except DockerError as problem:
            if isinstance(problem, DockerUnreachable):
                raise
            raise _failed(sidecar, problem.message) from None


def remove(docker: DockerClient, task: str) -> None:
    for found in docker.labelled("%s=%s" % (LABEL, task)):
        docker.remove(found["Id"])


def _run(
    docker: DockerClient,
    context: TaskContext,
    name: str,
    sidecar: TaskSidecar,
    labels: Dict[str, str],
    clock: Callable[[], float],
) -> None:
    _bring(docker, context, sidecar["image"])
    docker.call("POST", "/containers/create", {"name": name}, body(sidecar, labels, bool(context.gpus)))
    docker.call("POST", "/containers/%s/start" % name)
    installs, ready = bool(sidecar.get("installs")), str(sidecar.get("ready") or "").lower().encode("utf-8")
    printed = b""
    if installs or ready:
        idle = _patient(context, INSTALL_SECONDS if installs else READY_SECONDS, clock)
        try:
            for part in docker.output(name, idle):
                idle()
                printed = (printed + part)[-MOST_PRINTED:]
                if ready and ready in printed.lower():
                    return
        except Waited:
            if installs:
                raise _failed(sidecar, "it hasn't ended after %d s" % INSTALL_SECONDS) from None
            return  # it runs: perhaps a newer one says it in other words
    state = (docker.container(name) or {}).get("State") or {}
    if (not installs and not state.get("Running")) or state.get("ExitCode"):
        text = printed.decode("utf-8", "replace").strip()[-SHOWN:] or "it printed nothing"
        raise _failed(sidecar, "it ended with status %s: %s" % (state.get("ExitCode"), text))


def _bring(docker: DockerClient, context: TaskContext, image: str) -> None:
    name, tag = split_image(image)
    if tag != "latest" and docker.image(image) is not None:
        return
    idle = functools.partial(context.pause, 0)
    for line in docker.lines("POST", "/images/create", {"fromImage": name, "tag": tag}, {}, idle):
        idle()
        if line.get("error"):
            raise DockerError(500, line["error"])


def body(sidecar: TaskSidecar, labels: Dict[str, str], gpus: bool) -> Dict[str, Any]:
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


def _patient(context: TaskContext, seconds: float, clock: Callable[[], float]) -> Callable[[], None]:
    until = clock() + seconds

    def idle() -> None:
        context.pause(0)
        if clock() > until:
            raise Waited

    return idle


def _failed(sidecar: TaskSidecar, why: str) -> TaskError:
    what = "the network's container %s, which runs beside the job, failed: %s" % (sidecar["image"], why)
    return TaskError("creating_container_error", what)
