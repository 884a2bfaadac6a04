"""A replica that is watched: how its port is reached, and what is known of it."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar

from ..kernel import networks
from ..kernel.records import record
from ..kernel.task_runtime import TaskRuntime

T = TypeVar("T")
RuntimeOf = Callable[[str], Tuple[TaskRuntime, Any]]  # raises OSError for a task that doesn't run


class WatchedPort:
    """Connections to a replica's port, in its network, which stays open meanwhile. From any thread."""

    def __init__(self, task: str, port: int, runtime_of: RuntimeOf) -> None:
        self._task, self.port, self._runtime_of = task, port, runtime_of
        self._lock, self._closed = threading.Lock(), False
        self._networks: List[Optional[int]] = []  # the one, once it is known; None is the machine's own

    def connect(self) -> socket.socket:
        """Raises OSError."""
        return self._within(lambda network: networks.connect(network, self.port))

    def connecting(self, place: int) -> socket.socket:
        """One that doesn't block, on its way to a place of `networks.LOOPBACK`. Raises OSError."""
        return self._within(lambda network: networks.start_connecting(network, self.port, place))

    def enter(self) -> None:
        """Its network is known from now on. May ask the engine, as the first connection does otherwise."""
        self._within(lambda network: None)

    def direct_address(self) -> str:
        """The address at which this machine itself reaches the port; empty if there is none."""
        runtime, folder = self._runtime_of(self._task)
        address, pid = runtime.address(folder), runtime.network(folder)
        if not address or pid is None:
            return ""
        try:
            with socket.create_connection((address, self.port), 1.0) as made:
                return address if networks.has_connection(pid, made.getsockname()) else ""
        except OSError:  # it listens on its own loopback only, or that network isn't ours
            return ""

    def close(self) -> None:
        with self._lock:
            self._closed = True
            while self._networks:
                network = self._networks.pop()
                if network is not None:
                    os.close(network)

    def _within(self, make: Callable[[Optional[int]], T]) -> T:
        network = self._network()
        try:
            return make(network)
        finally:
            if network is not None:
                os.close(network)

    def _network(self) -> Optional[int]:
        """A descriptor of the caller's own."""
        with self._lock:
            if self._closed:
                raise OSError("the job has ended")
            if not self._networks:
                runtime, folder = self._runtime_of(self._task)
                with networks.open_network(lambda: runtime.network(folder)) as found:
                    self._networks.append(None if found is None else os.dup(found))
            return None if self._networks[0] is None else os.dup(self._networks[0])


@record
class WatchedReplica:
    task: str
    spec: Dict[str, Any]
    port: WatchedPort
    host_port: Optional[int] = None
    listens: bool = False
    address: str = ""
    queue: Optional[int] = None
    streaks: Optional[List[int]] = None  # of its probes, once one had a response
    workers: Optional[str] = None  # of a router: which list of workers these are
    cleared: Optional[str] = None  # the last such list beside whose workers the router had no others
    urls: Tuple[str, ...] = ()

    def report(self) -> Dict[str, Any]:
        said: Dict[str, Any] = {"listens": self.listens, "host_port": self.host_port, "queue": self.queue}
        said.update(address=self.address or None, probes=self.streaks, workers=self.workers)
        said.update(cleared=self.cleared)
        return {name: value for name, value in said.items() if value is not None}
