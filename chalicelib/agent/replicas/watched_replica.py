"""A replica that the agent follows: connections to its port, and its state."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, TypeVar, cast

from ..kernel import networks
from ..kernel.records import record
from ..kernel.task_runtime import TaskRuntime

if TYPE_CHECKING:
    from ...contract.agent import ReplicaReport
    from ..kernel.tasks import LaunchedTask

T = TypeVar("T")
RuntimeOf = Callable[[str], Tuple[TaskRuntime, Any]]  # raises OSError for a task that doesn't run


class WatchedPort:
    """Connections to a replica's port in its network, whose descriptor stays open. For any thread."""

    def __init__(self, task: str, port: int, runtime_of: RuntimeOf) -> None:
        self._task, self.port, self._runtime_of = task, port, runtime_of
        self._lock, self._closed = threading.Lock(), False
        self._networks: List[Optional[int]] = []  # empty until the network is known; None is the machine's own

    def connect(self) -> socket.socket:
        """A connection to the port. Raises OSError."""
        return self._within(lambda network: networks.connect(network, self.port))

    def connecting(self, place: int) -> socket.socket:
        """Start a non-blocking connection to an address of `networks.LOOPBACK`, by its index. Raises OSError."""
        return self._within(lambda network: networks.start_connecting(network, self.port, place))

    def enter(self) -> None:
        """Find the replica's network, which may query the engine. The first connection does so otherwise."""
        self._within(lambda network: None)

    def direct_address(self) -> str:
        """The address at which this machine reaches the port directly; empty if it doesn't."""
        runtime, folder = self._runtime_of(self._task)
        address, pid = runtime.address(folder), runtime.network(folder)
        if not address or pid is None:
            return ""
        try:
            with socket.create_connection((address, self.port), 1.0) as connection:
                return address if networks.has_connection(pid, connection.getsockname()) else ""
        except OSError:  # the replica listens on its loopback only, or its network isn't reachable
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
        """A descriptor of the network, which the caller closes; None for the machine's own."""
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
    spec: LaunchedTask
    port: WatchedPort
    host_port: Optional[int] = None
    listens: bool = False
    address: str = ""
    queue: Optional[int] = None
    streaks: Optional[List[int]] = None  # of its probes; None before the first response
    workers: Optional[str] = None  # of a router: the id of its list of workers
    cleared: Optional[str] = None  # the last such id for which the router had no other workers
    urls: Tuple[str, ...] = ()

    def report(self) -> ReplicaReport:
        report: Dict[str, Any] = {"listens": self.listens, "host_port": self.host_port, "queue": self.queue}
        report.update(address=self.address or None, probes=self.streaks, workers=self.workers)
        report.update(cleared=self.cleared)
        return cast("ReplicaReport", {name: value for name, value in report.items() if value is not None})
