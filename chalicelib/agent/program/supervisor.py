"""A task's supervisor: a small process that outlives the agent, and alone owns the task's output and exit status.

It is forked twice into a new session, so it survives the end of the agent's process group. It never talks to the
server: it reads requests from the task's folder and writes state and output there, where an agent that was restarted
finds them. If the supervisor itself is killed, the agent starts another, which adopts a container; a plain process has
ended with its supervisor, and is reported as ended.
"""

from __future__ import annotations

import collections
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Any, Deque, Dict, Optional, Tuple

from ..kernel import process_tree
from ..kernel.spool import SpoolWriter
from ..kernel.task_runtime import Interrupted, TaskContext, TaskError, TaskRuntime, Work, micros
from ..kernel.tasks import FINAL, FULL, TaskFolder, make_pipe
from ..runtimes import repositories, steps
from ..sessions import logins
from ..volumes.volumes import TaskVolumes

if TYPE_CHECKING:
    from ..kernel.tasks import LaunchedTask

NOTICE_EVERY = 0.05  # seconds between notices of new output to the agent
RETRY_EVERY = 1.0  # seconds between attempts to write to a full disk
KILL_EVERY = 2.0  # seconds between kills of a task that hasn't ended
HELD_EVERY = 2.0  # seconds between attempts to unmount disks that are in use


def run(folder: TaskFolder, runtime: TaskRuntime) -> None:
    """Supervise a task until it is over."""
    if not folder.launch():
        return  # removed meanwhile
    ended = folder.state().get("state") == FINAL
    sessions = logins.TaskLogins(None) if ended else logins.begin(folder, runtime)
    lock = folder.take_lock()
    if lock is None:
        return  # another supervisor runs this task
    if folder.over():
        return
    process_tree.become_subreaper()
    Supervisor(folder, runtime, sessions).run()


def detach() -> bool:
    """Fork twice into a new session. Returns True in the detached process, False in the caller's."""
    if os.fork():
        return False
    os.setsid()
    if os.fork():
        os._exit(0)
    return True


class Supervisor:
    def __init__(self, folder: TaskFolder, runtime: TaskRuntime, sessions: logins.TaskLogins) -> None:
        launch = folder.launch()
        self._logins = sessions
        self._folder, self._runtime = folder, runtime
        self._spec = launch["spec"]
        self._gpus = launch.get("gpus") or []
        self._volumes = TaskVolumes(folder, self._spec.get("volumes") or [])
        self._state = dict(folder.state(), id=folder.task)
        with open(os.path.join(folder.path, "pid"), "w") as file:
            file.write(str(os.getpid()))
        self._requests = make_pipe(folder.wake)
        self._children, wakeup = os.pipe()
        for fd in (self._children, wakeup):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._spool = SpoolWriter(folder.log)
        self._cause = ""  # the reason to report for a task that is being ended from outside
        self._grace_at = float("inf")  # when to send SIGTERM
        self._kill_at = float("inf")
        self._limit_at = float("inf")  # when `max_duration` is over
        self._backlog: Deque[Tuple[int, bytes]] = collections.deque()
        self._flush_at = 0.0
        self._notified_at = 0.0
        self._unnotified = False  # there is output of which the agent isn't notified yet

    def run(self) -> None:
        if self._state.get("state") != FINAL:
            self._run()
        while self._state.get("held"):
            self._retry_release()

    def _run(self) -> None:
        status: Optional[int] = None
        reason, message = "", ""
        try:
            if self._state.get("state") != "running":  # else it must be adopted or ended, not abandoned
                self._pause(0)
                self._volumes.mount(self._pause, lambda text: self._report("preparing", message=text))
            work = self._runtime.begin(self._context())
            status = self._watch(work)
            self._store(work.finish())
            self._flush_all()
            message = self._end_message(work, status)
        except Interrupted:
            pass
        except TaskError as problem:
            reason, message = problem.reason, problem.message
        except Exception as problem:  # even after a bug the task must end, with a reason
            reason, message = "executor_error", "the agent failed to run the task: %r" % problem
        repositories.erase(self._folder)  # in case the task ended before the clone
        reason = self._cause or reason or ("done_by_runner" if status == 0 else "container_exited_with_error")
        self._volumes.leave()
        held = self._volumes.release()
        message = "; ".join(filter(None, [message, *self._volumes.troubles]))
        ended = {"exit_status": status, "reason": reason, "log_end": self._spool.end}
        self._report(FINAL, message=message, **ended, **_held_report(held))

    def _retry_release(self) -> None:
        """Retry to unmount a disk of the ended task that is in use, by a stranger or by a session in its container."""
        logins.end(self._folder)
        select.select([], [], [], HELD_EVERY)
        held = _held_report(self._volumes.release(0.0))
        if any(self._state.get(name) != value for name, value in held.items()):
            self._report(FINAL, **held)

    def _context(self) -> TaskContext:
        earlier = dict(self._state)
        services = (self._spool.end, self._report, self._pause, self._volumes, self._gpus)
        return TaskContext(self._folder, self._spec, earlier, *services)

    # The running task -------------------------------------------------------------------------------------------

    def _watch(self, work: Work) -> int:
        most = self._spec.get("max_duration")
        if most:
            ran = (micros() - self._state.get("running_at", micros())) / 1e6
            self._limit_at = time.monotonic() + most - ran
        self._obey(work)
        while True:
            self._wait(work)
            self._store(b"" if self._backlog else work.read())
            if self._unnotified:
                self._notify_output()
            status = work.ended()
            if status is not None:
                return status
            self._obey(work)
            self._enforce(work)

    def _wait(self, work: Work) -> None:
        now = time.monotonic()
        deadlines = [self._limit_at, self._grace_at, self._kill_at, work.wake_at()]
        if self._unnotified:
            deadlines.append(self._notified_at + NOTICE_EVERY)
        if self._backlog:
            deadlines.append(self._flush_at)
        timeout = min(deadlines) - now
        sources = [self._requests, self._children]
        if not self._backlog and work.fileno() != -1:
            sources.append(work.fileno())
        ready = select.select(sources, [], [], None if timeout == float("inf") else max(0.0, timeout))[0]
        for fd in (self._requests, self._children):
            if fd in ready:
                drain(fd)

    def _obey(self, work: Work) -> None:
        request = self._folder.request()
        now = time.monotonic()
        if request.get("abort") and self._cause != "aborted_by_user":
            self._cause, self._kill_at = "aborted_by_user", now
        elif request.get("stop") and not self._cause:
            self._end_politely(work, "terminated_by_user", request.get("grace"))

    def _end_politely(self, work: Work, cause: str, grace: Optional[float]) -> None:
        now, patience = time.monotonic(), patience_of(self._spec, grace)
        self._cause, self._limit_at = cause, float("inf")
        self._grace_at, self._kill_at = now + patience / 2, now + patience
        work.signal_politely()

    def _enforce(self, work: Work) -> None:
        now = time.monotonic()
        if now >= self._limit_at and not self._cause:
            self._end_politely(work, "max_duration_exceeded", None)
        if now >= self._kill_at:
            work.kill()
            self._grace_at, self._kill_at = float("inf"), now + KILL_EVERY
        elif now >= self._grace_at:
            work.signal_firmly()
            self._grace_at = float("inf")

    def _pause(self, seconds: float) -> None:
        """Wait before the task runs. Raises Interrupted when a request to end it arrives."""
        until = time.monotonic() + seconds
        while True:
            request = self._folder.request()
            if request.get("abort") or request.get("stop"):
                self._cause = "aborted_by_user" if request.get("abort") else "terminated_by_user"
                raise Interrupted()
            remaining = until - time.monotonic()
            if remaining <= 0:
                return
            if select.select([self._requests], [], [], remaining)[0]:
                drain(self._requests)

    def _end_message(self, work: Work, status: int) -> str:
        message = self._end(work, status)
        name = steps.name(self._spec, work.step()) if message and not self._cause and self._spec.get("steps") else ""
        return "%s in %s" % (message, name) if name else message

    def _end(self, work: Work, status: int) -> str:
        if status == 137 and work.out_of_memory():
            return "killed: it used more memory than its limit of %d MiB" % (self._spec.get("memory_bytes", 0) >> 20)
        if self._cause == "max_duration_exceeded":
            return "ended after max_duration, %s seconds" % self._spec["max_duration"]
        if self._cause or not status:
            return ""
        if status > 128:
            try:
                return "killed by signal %s" % signal.Signals(status - 128).name
            except ValueError:
                pass  # no signal: a plain exit status above 128
        return "exited with status %d" % status

    # Output and state -------------------------------------------------------------------------------------------

    def _store(self, data: bytes) -> None:
        if data:
            self._backlog.append((micros(), data))
        self._flush()

    def _flush(self) -> None:
        """Write the backlog. While the disk is full no output is read, so the task blocks in its own write: no byte is
        lost, and requests are still obeyed."""
        try:
            while self._backlog:
                self._spool.append(*self._backlog[0])
                self._backlog.popleft()
                self._notify_output()
        except OSError as problem:
            if problem.errno not in FULL:
                raise
            self._flush_at = time.monotonic() + RETRY_EVERY

    def _flush_all(self) -> None:
        """Write the rest of an ended task's output, waiting for disk space unless the user aborts the task."""
        self._flush()
        while self._backlog and not self._folder.request().get("abort"):
            select.select([self._requests], [], [], RETRY_EVERY)
            drain(self._requests)
            self._flush()

    def _notify_output(self) -> None:
        now = time.monotonic()
        self._unnotified = now < self._notified_at + NOTICE_EVERY
        if not self._unnotified:
            self._notified_at = now
            self._folder.notify_agent()

    def _report(self, state: str, **fields: Any) -> None:
        if state == "running":
            fields.setdefault("running_at", self._state.get("running_at") or micros())
            fields.setdefault("boot", process_tree.boot())
            fields.setdefault("mounted", self._volumes.ids)
            self._logins.settle()  # first, so that the report of a running task says how to log in
        self._state.update(fields, state=state, at=micros())
        while not self._try_write_state():
            time.sleep(RETRY_EVERY)
        self._folder.notify_agent()

    def _try_write_state(self) -> bool:
        try:
            self._folder.write_state(self._state)
        except OSError as problem:
            if problem.errno not in FULL:
                raise
            return False
        return True


def patience_of(spec: LaunchedTask, grace: Optional[float]) -> float:
    """Seconds from the polite signal to the kill: the request's `grace`, else the spec's `stop_duration`, in which the
    server has filled in the default; None means no limit."""
    seconds = spec.get("stop_duration") if grace is None else grace
    return float("inf") if seconds is None else float(seconds)


def _held_report(held: Dict[str, str]) -> Dict[str, Any]:
    """The fields of a report for disks that can't be unmounted yet."""
    return {"held": list(held), "held_by": "; ".join(held.values())}


def drain(fd: int) -> None:
    """Read a pipe once; if more is in it, the next `select` returns at once."""
    try:
        os.read(fd, 65536)
    except BlockingIOError:
        return
