"""The services' replicas on this machine: how each is reached, and what is reported of it.

What looks after them - whether each listens, how its probes go, what waits inside its model server - is `replica_loop`,
which starts with the first: most machines have none. Nothing here is on disk: an agent that was restarted looks again,
and the control plane keeps what was reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from ..kernel.lazy import LazyModule

if TYPE_CHECKING:
    from . import watched_replica
    from .replica_loop import ReplicaLoop
    from .watched_replica import RuntimeOf, WatchedPort, WatchedReplica
else:
    watched_replica = LazyModule(".replicas.watched_replica")


class WatchedReplicas:
    """Called on the agent's own thread, but for `port`."""

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
            watched_port = watched_replica.WatchedPort(task, int(port or spec["service_port"]), self._runtime_of)
            self._known[task] = replica = watched_replica.WatchedReplica(task, spec, watched_port, port)
            if spec.get("router"):
                replica.workers = ""
            self._running().begin(replica)

    def forget(self, task: str) -> None:
        """It has ended."""
        replica = self._known.pop(task, None)
        if replica is not None:
            replica.port.close()
            self._running().end(task)

    def route(self, task: str, workers: str, urls: List[str]) -> bool:
        """From now on a router has these workers. False: it doesn't run."""
        replica = self._known.get(task)
        if replica is None or replica.workers is None:
            return False
        replica.workers, replica.urls = workers, tuple(urls)
        return True

    def report(self, task: str) -> Dict[str, Any]:
        """What its report has besides."""
        replica = self._known.get(task)
        return {} if replica is None else replica.report()

    def port(self, task: str, port: int) -> Optional[WatchedPort]:
        replica = self._known.get(task)
        return replica.port if replica is not None and replica.port.port == port else None

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
