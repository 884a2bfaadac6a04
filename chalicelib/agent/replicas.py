"""The services' replicas on this machine: how each is reached, and what is reported of it.

What looks after them - whether each listens, how its probes go, what waits inside its model server - is `replica_loop`,
which starts with the first: most machines have none. Nothing here is on disk: an agent that was restarted looks again,
and the control plane keeps what was reported.
"""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, TypeVar

from . import networks
from .records import record
from .task_runtime import TaskRuntime

if TYPE_CHECKING:
    from .replica_loop import ReplicaLoop

T = TypeVar("T")
RuntimeOf = Callable[[str], Tuple[TaskRuntime, Any]]  # raises OSError for a task that doesn't run


class PortWay:
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
        return self._within(lambda network: networks.connecting(network, self.port, place))

    def enter(self) -> None:
        """Its network is known from now on. May ask the engine, as the first connection does otherwise."""
        self._within(lambda network: None)

    def straight(self) -> str:
        """The address at which this machine itself reaches the port; empty if there is none."""
        runtime, folder = self._runtime_of(self._task)
        address, pid = runtime.address(folder), runtime.network(folder)
        if not address or pid is None:
            return ""
        try:
            with socket.create_connection((address, self.port), 1.0) as made:
                return address if networks.arrived(pid, made.getsockname()) else ""
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
                with networks.held(lambda: runtime.network(folder)) as found:
                    self._networks.append(None if found is None else os.dup(found))
            return None if self._networks[0] is None else os.dup(self._networks[0])


@record
class WatchedReplica:
    task: str
    spec: Dict[str, Any]
    way: PortWay
    host_port: Optional[int] = None
    listens: bool = False
    address: str = ""
    queue: Optional[int] = None
    streaks: Optional[List[int]] = None  # of its probes, once one had a response
    workers: Optional[str] = None  # of a router: which list of workers these are
    cleared: Optional[str] = None  # the last such list beside whose workers the router had no others
    urls: Tuple[str, ...] = ()

    def told(self) -> Dict[str, Any]:
        said = {"listens": self.listens, "host_port": self.host_port, "queue": self.queue}
        said.update(address=self.address or None, probes=self.streaks, workers=self.workers)
        said.update(cleared=self.cleared)
        return {name: value for name, value in said.items() if value is not None}


class WatchedReplicas:
    """Called on the agent's own thread, but for `way`."""

    def __init__(self, runtime_of: RuntimeOf, changed: Callable[[str], None], log: Callable[[str], None]) -> None:
        """`changed`: there is something new to tell of this task; called on another thread."""
        self._runtime_of, self._changed, self._log = runtime_of, changed, log
        self._known: Dict[str, Optional[WatchedReplica]] = {}  # every running task; None: it is no service's
        self._loop: "Optional[ReplicaLoop]" = None

    def watch(self, task: str, launch: Callable[[], Dict[str, Any]]) -> None:
        """It runs. `launch`: what it was started with, which is asked for once."""
        if task in self._known:
            return
        started = launch()
        spec = started.get("spec") or {}
        self._known[task] = None
        if spec.get("service_port"):
            port = started.get("host_port")
            way = PortWay(task, int(port or spec["service_port"]), self._runtime_of)
            self._known[task] = replica = WatchedReplica(task, spec, way, port)
            if spec.get("router"):
                replica.workers = ""
            self._running().begin(replica)

    def forget(self, task: str) -> None:
        """It has ended."""
        replica = self._known.pop(task, None)
        if replica is not None:
            replica.way.close()
            self._running().end(task)

    def route(self, task: str, workers: str, urls: List[str]) -> bool:
        """From now on a router has these workers. False: it doesn't run."""
        replica = self._known.get(task)
        if replica is None or replica.workers is None:
            return False
        replica.workers, replica.urls = workers, tuple(urls)
        return True

    def told(self, task: str) -> Dict[str, Any]:
        """What its report has besides."""
        replica = self._known.get(task)
        return {} if replica is None else replica.told()

    def way(self, task: str, port: int) -> Optional[PortWay]:
        replica = self._known.get(task)
        return replica.way if replica is not None and replica.way.port == port else None

    def close(self) -> None:
        for task in list(self._known):
            self.forget(task)
        if self._loop is not None:
            self._loop.close()

    def _running(self) -> "ReplicaLoop":
        if self._loop is None:
            from .replica_loop import ReplicaLoop

            self._loop = ReplicaLoop(self._changed, self._log)
        return self._loop
