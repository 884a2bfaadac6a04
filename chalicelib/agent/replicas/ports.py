"""The port of a service's replica on a host whose network its jobs share: the service's own if it is free, or another.

A port that was given out stays free until its replica listens there, and another agent on this host mustn't give it out
again. So it is held by an abstract socket: its name belongs to one network, as a port does, and is free again as soon
as its holder is gone. A restarted agent holds the ports that its tasks were given before.
"""

from __future__ import annotations

import errno
import socket
import zlib
from typing import Dict, Iterator, Optional

from ..kernel.task_runtime import TaskError
from ..runtimes import listening

FIRST, LAST = 20000, 29999  # below those that the kernel gives to connections


class HostPorts:
    def __init__(self, first: int = FIRST, last: int = LAST) -> None:
        self._first, self._last = first, last
        self._held: Dict[str, socket.socket] = {}

    def give(self, task: str, wanted: int) -> int:
        """A free port, for this task alone. Raises TaskError."""
        self.release(task)
        for port in self._candidates(task, wanted):
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
            % (wanted, self._first, self._last),
        )

    def reserve(self, task: str, port: int) -> None:
        """It was given to this task before, which may listen there by now."""
        if task not in self._held:
            holder = _hold(port)
            if holder is not None:
                self._held[task] = holder

    def release(self, task: str) -> None:
        holder = self._held.pop(task, None)
        if holder is not None:
            holder.close()

    def _candidates(self, task: str, wanted: int) -> Iterator[int]:
        """Tasks begin to look at different places, or each would try those of all the others."""
        yield wanted
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
