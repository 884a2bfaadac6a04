"""Thread pools in which the embedded server executes effects, shared fairly among projects."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

from chalicelib.planning.kernel.plan import Effect
from chalicelib.planning.kernel.workflows import DoStep

log = logging.getLogger(__name__)

STEPS = 48  # threads for steps on hosts: half of them for one project alone


class Threads(Protocol):
    """Runs a pool's calls; the pool itself limits their number."""

    def submit(self, work: Callable[..., object], /, *given: Any) -> object: ...

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None: ...


class Pooled(Protocol):
    @property
    def unit(self) -> str: ...

    @property
    def project_id(self) -> str: ...


T = TypeVar("T", bound=Pooled)


class FairPool(Generic[T]):
    """Executes tasks on a few threads, those of one unit in order and one at a time.

    Projects take turns, so that a project that orders a thousand machines doesn't delay another's first one. And each
    project gets at most half of the threads that the others leave, because a host may occupy a thread for minutes.
    """

    def __init__(self, threads: int, pool: Threads) -> None:
        self._pool = pool
        self._free, self._working = threads, Counter[str]()  # threads, and how many each project has
        self._lock = threading.Condition()
        self._waiting: dict[str, list[T]] = {}  # by unit, from its first task to the end of its last
        self._turns: dict[str, deque[str]] = {}  # by project, in the order of their turns: units without a thread
        self._execute: Callable[[T], object] | None = None
        self._stopped = False

    @property
    def started(self) -> bool:
        return self._execute is not None

    def start(self, execute: Callable[[T], object]) -> None:
        """Execute the waiting tasks, and from now on all that are submitted."""
        with self._lock:
            self._execute = execute
            self._begin()

    def submit(self, task: T) -> None:
        with self._lock:
            queue = self._waiting.get(task.unit)
            if queue is not None:
                if task not in queue:
                    queue.append(task)
                return
            self._waiting[task.unit] = [task]
            self._turns.setdefault(task.project_id, deque()).append(task.unit)
            self._begin()

    def busy(self, unit: str) -> bool:
        """Whether it has tasks that are under way or waiting."""
        with self._lock:
            return unit in self._waiting

    def settle(self, patience: float) -> bool:
        """Wait up to this many seconds until there are no tasks. Returns whether there are none."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._waiting, patience)

    def _begin(self) -> None:
        """Give free threads to the projects whose turn it is. Called with the lock held."""
        while self._execute is not None and not self._stopped:
            project = next((one for one in self._turns if self._working[one] < self._free), None)
            if project is None:
                return
            units = self._turns.pop(project)
            unit = units.popleft()
            if units:
                self._turns[project] = units  # behind the others
            self._free -= 1
            self._working[project] += 1
            self._pool.submit(self._turn, project, unit, self._execute)

    def _turn(self, project: str, unit: str, execute: Callable[[T], object]) -> None:
        self._drain(unit, execute)
        with self._lock:
            self._free += 1
            self._working[project] -= 1
            if not self._working[project]:
                del self._working[project]
            self._begin()

    def _drain(self, unit: str, execute: Callable[[T], object]) -> None:
        while True:
            with self._lock:
                queue = self._waiting[unit]
                if not queue:
                    del self._waiting[unit]
                    self._lock.notify_all()
                    return
                task = queue.pop(0)
            try:
                execute(task)
            except Exception:  # an effect stays committed, and a schedule repeats its work
                log.exception("executing %s failed", task)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
        self._pool.shutdown(wait=True, cancel_futures=True)


class EffectPool(FairPool[Effect]):
    """A pool for committed effects, in the order of their commits."""

    def __init__(self, threads: int = 16) -> None:
        super().__init__(threads, ThreadPoolExecutor(threads, thread_name_prefix="effect"))


class EffectPools:
    """Two pools: few threads for calls to clouds, which are short and use this server's CPU, and many for steps on
    hosts, which are logins that mostly wait for the network: twenty hosts are added in the time of one only if each has
    a thread. A workflow has only steps, so no unit has effects in both pools."""

    def __init__(self, calls: EffectPool | None = None, steps: EffectPool | None = None) -> None:
        self._calls, self._steps = calls or EffectPool(), steps or EffectPool(STEPS)

    def start(self, execute: Callable[[Effect], object]) -> None:
        self._calls.start(execute)
        self._steps.start(execute)

    def submit(self, effect: Effect) -> None:
        (self._steps if isinstance(effect, DoStep) else self._calls).submit(effect)

    def stop(self) -> None:
        self._calls.stop()
        self._steps.stop()
