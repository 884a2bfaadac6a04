"""Ports for services' replicas on a host whose network its jobs share: the service's own if it is free, or another.

An assigned port stays free until its replica listens there, and another agent on this host must not assign it again. So
an abstract socket reserves it: like a port, its name belongs to one network, and it is free again as soon as its holder
has ended. A restarted agent reserves its tasks' ports again.
"""

from __future__ import annotations

import errno
import socket
import zlib
from typing import Dict, Iterator, Optional

from ..kernel.task_runtime import TaskError
from ..runtimes import listening

FIRST, LAST = 20000, 29999  # below the kernel's ports for outgoing connections


class HostPorts:
    def __init__(self, first: int = FIRST, last: int = LAST) -> None:
        self._first, self._last = first, last
        self._held: Dict[str, socket.socket] = {}

    def assign(self, task: str, preferred: int) -> int:
        """Assign a free port to this task. Raises TaskError."""
        self.release(task)
        for port in self._candidates(task, preferred):
            holder = _hold(port)
            if holder is None:
                continue
            if listening.free(port):
                self._held[task] = holder
                return port
            holder.close()
        raise TaskError(
            "ports_binding_failed",
            "port %d is in use on this host, whose network its jobs share, and so are all from %d to %d"
            % (preferred, self._first, self._last),
        )

    def reserve(self, task: str, port: int) -> None:
        """Reserve a port that was assigned to this task before."""
        if task not in self._held:
            holder = _hold(port)
            if holder is not None:
                self._held[task] = holder

    def release(self, task: str) -> None:
        holder = self._held.pop(task, None)
        if holder is not None:
            holder.close()

    def _candidates(self, task: str, preferred: int) -> Iterator[int]:
        """The ports to try. Each task starts at another one, so that it rarely tries those of other tasks."""
        yield preferred
        count = self._last - self._first + 1
        start = zlib.crc32(task.encode("utf-8"))
        for step in range(count):
            yield self._first + (start + step) % count


def _hold(port: int) -> Optional[socket.socket]:
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        holder.bind("\0dstack-service-port-%d" % port)
    except OSError as problem:
        holder.close()
        if problem.errno != errno.EADDRINUSE:
            raise
        return None
    return holder
