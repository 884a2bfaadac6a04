"""The reconciler's thread in the embedded server: sleeps until something is due or it is woken.

One thread, because two passes would only meet each other's version conditions. Effects (calls to clouds) run in a
small separate pool, so that a slow provider never delays a placement.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

from chalicelib.domain.instants import SECOND, Micros
from chalicelib.engine.ports import Clock
from chalicelib.errors import StorageFull
from chalicelib.planning.kernel.plan import Effect
from chalicelib.planning.kernel.workflows import DoStep

log = logging.getLogger(__name__)

# Seconds after a pass in which wake-ups gather for the next one: as long as the pass took, because each looks at all
# fleets, whether for one job or for fifty; at least, and at most:
GATHER, LONGEST_GATHER = 0.05, 1.0
STEPS = 48  # threads for steps on hosts: half of them for one project alone
FULL_DISK = 10.0  # seconds between tries to write to a full disk
LONGEST_SLEEP = 60.0  # seconds; the longest delay that a lost hint can cause


class Passes(Protocol):
    def run(self, units: Iterable[str]) -> object: ...


class ReconcileLoop:
    """Wake-ups gather while a pass runs and in a pause after it, and the next pass takes them all: load grows the
    batch, not the queue."""

    def __init__(
        self,
        clock: Clock,
        next_due: Callable[[], Micros | None],
        *,
        gather: float = GATHER,
        full_disk: float = FULL_DISK,
    ) -> None:
        self._clock, self._next_due, self._gather, self._full_disk = clock, next_due, gather, full_disk
        self._changed = threading.Condition()
        self._hints: dict[str, None] = {}  # in the order of the wake-ups
        self._stopping = False
        self._thread: threading.Thread | None = None

    def wake(self, units: Iterable[str]) -> None:
        with self._changed:
            self._hints.update(dict.fromkeys(units))
            self._changed.notify()

    def start(self, passes: Passes) -> None:
        self._thread = threading.Thread(target=self._work, args=(passes,), name="reconciler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the current pass; what is due stays due in the store."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout=30)

    def _work(self, passes: Passes) -> None:
        while True:
            with self._changed:
                if not self._hints and not self._stopping:
                    self._changed.wait(self._patience())
                if self._stopping:
                    return
                hints, self._hints = self._hints, {}
            begun = self._clock.now()
            try:
                passes.run(hints)
                pause = max(self._gather, min(LONGEST_GATHER, (self._clock.now() - begun) / SECOND))
            except StorageFull as error:
                log.error("nothing can be decided: %s", error)
                pause = self._full_disk
                with self._changed:
                    self._hints = {**hints, **self._hints}
            except Exception:  # a last resort: passes isolate their units, so this means the store itself is failing
                log.exception("a reconciler pass failed; retrying in a second")
                pause = 1.0
                with self._changed:
                    self._hints = {**hints, **self._hints}
            with self._changed:
                self._changed.wait_for(lambda: self._stopping, timeout=pause)

    def _patience(self) -> float:
        due = self._next_due()
        if due is None:
            return LONGEST_SLEEP
        return min(LONGEST_SLEEP, max(0.0, (due - self._clock.now()) / SECOND))


class Ticker:
    """Runs `work` periodically on its own thread; first after one period, or at once. Failures are logged and don't
    stop it."""

    def __init__(self, every: float, work: Callable[[], object], *, at_once: bool = False) -> None:
        self.every, self.work, self._at_once = every, work, at_once
        self._stopping, self._worked = threading.Event(), threading.Event()
        self._wanted = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._tick, name="ticker", daemon=True).start()

    def wait_first(self, patience: float) -> bool:
        """Wait up to this many seconds for the first turn to end; returns whether it did."""
        return self._worked.wait(patience)

    def now(self) -> None:
        """Have another turn at once, or after the present one."""
        self._wanted.set()

    def rest(self, seconds: float) -> bool:
        """For `work`, a pause in its turn; returns whether to go on: not if the next turn is wanted."""
        return not self._wanted.wait(seconds)

    def stop(self) -> None:
        self._stopping.set()
        self._wanted.set()

    def _tick(self) -> None:
        pause = 0.0 if self._at_once else self.every
        while True:
            self._wanted.wait(pause)
            self._wanted.clear()  # first: who stops it sets this last
            if self._stopping.is_set():
                return
            try:
                self.work()
            except StorageFull as error:
                log.error("the task that runs every %g s failed: %s", self.every, error)
            except Exception:
                log.exception("the task that runs every %g s failed", self.every)
            self._worked.set()
            pause = self.every


class Threads(Protocol):
    """What runs a pool's calls; the pool itself sees to it that they aren't too many."""

    def submit(self, work: Callable[..., object], /, *given: Any) -> object: ...

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None: ...


class Pooled(Protocol):
    @property
    def unit(self) -> str: ...

    @property
    def project_id(self) -> str: ...


T = TypeVar("T", bound=Pooled)


class FairPool(Generic[T]):
    """Executes tasks on a few threads, those of a unit one at a time and in their order.

    Projects take turns, so that one that orders a thousand machines doesn't keep another's first one waiting. And each
    takes at most half of the threads that the others leave: a project's host may hold a thread for minutes.
    """

    def __init__(self, threads: int, pool: Threads) -> None:
        self._pool = pool
        self._free, self._working = threads, Counter[str]()  # threads, and how many each project has
        self._lock = threading.Condition()
        self._waiting: dict[str, list[T]] = {}  # by unit, from its first task to the end of its last
        self._turns: dict[str, deque[str]] = {}  # by project: its units that no thread has yet; whose turn it is first
        self._execute: Callable[[T], object] | None = None
        self._stopped = False

    @property
    def started(self) -> bool:
        return self._execute is not None

    def start(self, execute: Callable[[T], object]) -> None:
        """Execute what is waiting, and from now on whatever is submitted."""
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
        """Has it tasks that are under way or waiting?"""
        with self._lock:
            return unit in self._waiting

    def settle(self, patience: float) -> bool:
        """Wait up to this many seconds until there are no tasks; returns whether that came."""
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
            except Exception:  # an effect stays committed, and a schedule comes again
                log.exception("executing %s failed", task)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
        self._pool.shutdown(wait=True, cancel_futures=True)


class EffectPool(FairPool[Effect]):
    """Of committed effects, in the order of their commits."""

    def __init__(self, threads: int = 16) -> None:
        super().__init__(threads, ThreadPoolExecutor(threads, thread_name_prefix="effect"))


class EffectPools:
    """Two pools. A step on a host is a login that mostly waits for the network, and twenty hosts are added in the time
    of one only if each has a thread; calls to clouds are short, and cost this server more. So steps have many threads
    of their own, which cost memory, and calls have few. A workflow has only steps, so no unit has effects in both."""

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
