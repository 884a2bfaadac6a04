"""The services' replicas on this machine: their ports and reports.

`replica_loop` follows them: whether each listens, its probes, its model server's queue. It starts with the first
replica, because most machines have none. Nothing is on disk: a restarted agent checks again, and the control plane has
the reports so far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Dict, List, Optional

from ..kernel.lazy import LazyModule

if TYPE_CHECKING:
    from ...contract.agent import ReplicaReport
    from ..kernel.tasks import Launch
    from . import watched_replica
    from .replica_loop import ReplicaLoop
    from .watched_replica import RuntimeOf, WatchedPort, WatchedReplica
else:
    watched_replica = LazyModule(".replicas.watched_replica")


class WatchedReplicas:
    """For the agent's loop, except `port`, which any thread may call."""

    def __init__(self, runtime_of: RuntimeOf, changed: Callable[[str], None], log: Callable[[str], None]) -> None:
        """`changed` is called, on another thread, when there is a new report of a task."""
        self._runtime_of, self._changed, self._log = runtime_of, changed, log
        self._replicas: Dict[str, Optional[WatchedReplica]] = {}  # by running task; None if it isn't a replica
        self._loop: "Optional[ReplicaLoop]" = None

    def watch(self, task: str, launch: Callable[[], Launch]) -> None:
        """A task runs. `launch` returns its launch record, and is called once for a task."""
        if task in self._replicas:
            return
        started = launch()
        spec = started.get("spec")
        self._replicas[task] = None
        if spec and spec.get("service_port"):
            port = started.get("host_port")
            watched_port = watched_replica.WatchedPort(task, int(port or spec["service_port"]), self._runtime_of)
            self._replicas[task] = replica = watched_replica.WatchedReplica(task, spec, watched_port, port)
            if spec.get("router"):
                replica.workers = ""
            self._started_loop().begin(replica)

    def forget(self, task: str) -> None:
        """A task has ended."""
        replica = self._replicas.pop(task, None)
        if replica is not None:
            replica.port.close()
            self._started_loop().end(task)

    def route(self, task: str, workers: str, urls: List[str]) -> bool:
        """Set the workers of a router. False if it doesn't run."""
        replica = self._replicas.get(task)
        if replica is None or replica.workers is None:
            return False
        replica.workers, replica.urls = workers, tuple(urls)
        return True

    def report(self, task: str) -> ReplicaReport:
        """The fields of a task's report that are about a replica."""
        replica = self._replicas.get(task)
        return {} if replica is None else replica.report()

    def port(self, task: str, port: int) -> Optional[WatchedPort]:
        replica = self._replicas.get(task)
        return replica.port if replica is not None and replica.port.port == port else None

    def close(self) -> None:
        for task in list(self._replicas):
            self.forget(task)
        if self._loop is not None:
            self._loop.close()

    def _started_loop(self) -> "ReplicaLoop":
        if self._loop is None:
            from .replica_loop import ReplicaLoop

            self._loop = ReplicaLoop(self._changed, self._log)
        return self._loop
