"""The check of a job's ports in a shared network of its host: each must be free when the job starts.

A container has a network of its own, unless its job runs on several nodes. So its ports can't collide, and none is
published on the host: they are reached through the job's SSH server or a stream. A job in its host's network would
notice a port in use only after its preparations, with an error of its own; here it ends before it starts, with a clear
reason.
"""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

from ..kernel.task_runtime import TaskError

if TYPE_CHECKING:
    from ..kernel.tasks import LaunchedTask


def check(spec: LaunchedTask) -> None:
    taken = [str(port) for port in spec.get("ports") or () if not free(int(port))]
    if taken:
        advice = "" if spec.get("node_ssh") else ", or run the job in a container, which has a network of its own"
        raise TaskError(
            "ports_binding_failed",
            "in use on this host, whose network its jobs share: port %s; choose another%s" % (", ".join(taken), advice),
        )


def free(port: int) -> bool:
    """Is the port free on all addresses?"""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that are closing don't occupy a port
        try:
            probe.bind(("", port))
        except OSError as problem:
            return problem.errno != errno.EADDRINUSE  # whether the job may listen there is its own matter
    return True
