"""A small process for each task. It outlives the agent and the server, and alone owns the task's output and exit
status.

It is forked twice into a new session, so it survives the end of the agent's process group. It never talks to the
server: it reads requests from the task's folder and writes state and output there. An agent that was away misses
nothing; it reads the folder when it is back. If the supervisor itself is killed, the agent starts it again: a container
is adopted; a plain process ended with its supervisor and is reported as such.
"""

from __future__ import annotations

import collections
import os
import select
import signal
import time
from typing import Any, Deque, Dict, Optional, Tuple

from ..kernel import process_tree
from ..kernel.spool import SpoolWriter
from ..kernel.task_runtime import Began, Interrupted, TaskError, TaskRuntime, Work, micros
from ..kernel.tasks import FINAL, FULL, TaskFolder, make_pipe
from ..runtimes import repositories, steps
from ..sessions import logins
from ..volumes.volumes import TaskVolumes

NOTICE_EVERY = 0.05  # seconds between notices of new output to the agent
RETRY_EVERY = 1.0  # seconds between attempts to write to a full disk
KILL_AGAIN = 2.0
HELD_EVERY = 2.0  # seconds between attempts to unmount what somebody uses


def run(folder: TaskFolder, runtime: TaskRuntime) -> None:
    """A supervisor's whole life; returns when the task is over."""
    if not folder.launch():
        return  # removed meanwhile
    ended = folder.state().get("state") == FINAL
    sessions = logins.TaskLogins(None) if ended else logins.begin(folder, runtime)
    lock = folder.take_lock()
    if lock is None:
        return  # another one looks after this task
    if folder.over():
        return
    process_tree.become_subreaper()
    Supervisor(folder, runtime, sessions).run()


def detach() -> bool:
    """Fork twice into a new session; True in the process that goes on."""
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
        self._spec: Dict[str, Any] = launch["spec"]
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
        self._cause = ""  # why the task is being ended from outside: the reason to report
        self._grace_at = float("inf")  # when a polite signal has had enough time …
        self._kill_at = float("inf")  # … and when any signal has
        self._limit_at = float("inf")
        self._backlog: Deque[Tuple[int, bytes]] = collections.deque()
        self._flush_at = 0.0
        self._noticed_at = 0.0
        self._unnoticed = False

    def run(self) -> None:
        if self._state.get("state") != FINAL:
            self._run()
        while self._state.get("held"):
            self._release_later()

    def _run(self) -> None:
        status: Optional[int] = None
        reason, message = "", ""
        try:
            if self._state.get("state") != "running":  # what already runs must be ended, not abandoned
                self._pause(0)
                self._volumes.mount(self._pause, lambda text: self._report("preparing", message=text))
            work = self._runtime.begin(self._began())
            status = self._watch(work)
            self._store(work.finish())
            self._flush_to_the_last()
            message = self._words(work, status)
        except Interrupted:
            pass
        except TaskError as problem:
            reason, message = problem.reason, problem.message
        except Exception as problem:  # whatever it was, the task must end with a reason, not hang without one
            reason, message = "executor_error", "the agent failed to run the task: %r" % problem
        repositories.erase(self._folder)  # of a task that ended before it was prepared
        reason = self._cause or reason or ("done_by_runner" if status == 0 else "container_exited_with_error")
        self._volumes.leave()
        held = self._volumes.release()
        message = "; ".join(filter(None, [message, *self._volumes.troubles]))
        ended = {"exit_status": status, "reason": reason, "log_end": self._spool.end}
        self._report(FINAL, message=message, **ended, **_held_report(held))

    def _release_later(self) -> None:
        """The task has ended, but somebody keeps one of its disks: a stranger, or a session in its container."""
        logins.end(self._folder)
        select.select([], [], [], HELD_EVERY)
        held = _held_report(self._volumes.release(0.0))
        if any(self._state.get(name) != value for name, value in held.items()):
            self._report(FINAL, **held)

    def _began(self) -> Began:
        earlier = dict(self._state)
        given = (self._spool.end, self._report, self._pause, self._volumes, self._gpus)
        return Began(self._folder, self._spec, earlier, *given)

    # The task runs ----------------------------------------------------------------------------------------------

    def _watch(self, work: Work) -> int:
        if self._spec.get("max_duration"):
            ran = (micros() - self._state.get("running_at", micros())) / 1e6
            self._limit_at = time.monotonic() + self._spec["max_duration"] - ran
        self._obey(work)
        while True:
            self._wait(work)
            self._store(b"" if self._backlog else work.read())
            if self._unnoticed:
                self._notice()
            status = work.ended()
            if status is not None:
                return status
            self._obey(work)
            self._enforce(work)

    def _wait(self, work: Work) -> None:
        now = time.monotonic()
        deadlines = [self._limit_at, self._grace_at, self._kill_at, work.wake_at()]
        if self._unnoticed:
            deadlines.append(self._noticed_at + NOTICE_EVERY)
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
            self._grace_at, self._kill_at = float("inf"), now + KILL_AGAIN
        elif now >= self._grace_at:
            work.signal_firmly()
            self._grace_at = float("inf")

    def _pause(self, seconds: float) -> None:
        """Wait while the task isn't running yet; a request to end it ends the wait."""
        until = time.monotonic() + seconds
        while True:
            request = self._folder.request()
            if request.get("abort") or request.get("stop"):
                self._cause = "aborted_by_user" if request.get("abort") else "terminated_by_user"
                raise Interrupted()
            left = until - time.monotonic()
            if left <= 0:
                return
            if select.select([self._requests], [], [], left)[0]:
                drain(self._requests)

    def _words(self, work: Work, status: int) -> str:
        words = self._end(work, status)
        name = steps.name(self._spec, work.step()) if words and not self._cause and self._spec.get("steps") else ""
        return "%s in %s" % (words, name) if name else words

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
                pass  # not a signal's number: a plain exit status above 128
        return "exited with status %d" % status

    # What is on disk --------------------------------------------------------------------------------------------

    def _store(self, data: bytes) -> None:
        if data:
            self._backlog.append((micros(), data))
        self._flush()

    def _flush(self) -> None:
        """Write what is buffered. While the disk is full nothing more is read, so the task blocks in its own write: no
        byte is lost, and requests are still obeyed."""
        try:
            while self._backlog:
                self._spool.append(*self._backlog[0])
                self._backlog.popleft()
                self._notice()
        except OSError as problem:
            if problem.errno not in FULL:
                raise
            self._flush_at = time.monotonic() + RETRY_EVERY

    def _flush_to_the_last(self) -> None:
        """The task has ended: wait for disk space for the rest of its output, unless its user aborts it."""
        self._flush()
        while self._backlog and not self._folder.request().get("abort"):
            select.select([self._requests], [], [], RETRY_EVERY)
            drain(self._requests)
            self._flush()

    def _notice(self) -> None:
        now = time.monotonic()
        self._unnoticed = now < self._noticed_at + NOTICE_EVERY
        if not self._unnoticed:
            self._noticed_at = now
            self._folder.tell_agent()

    def _report(self, state: str, **fields: Any) -> None:
        if state == "running":
            fields.setdefault("running_at", self._state.get("running_at") or micros())
            fields.setdefault("boot", process_tree.boot())
            fields.setdefault("mounted", self._volumes.ids)
            self._logins.settle()  # so that whoever reads that the task runs also reads how to log in
        self._state.update(fields, state=state, at=micros())
        while not self._wrote_state():
            time.sleep(RETRY_EVERY)
        self._folder.tell_agent()

    def _wrote_state(self) -> bool:
        try:
            self._folder.write_state(self._state)
        except OSError as problem:
            if problem.errno not in FULL:
                raise
            return False
        return True


def patience_of(spec: Dict[str, Any], grace: Optional[float]) -> float:
    """Seconds from the polite signal to the kill: what the server says now, or else what it said in the spec, where
    None is no limit. There is no default: the server knows it, and always says it."""
    asked = spec.get("stop_duration") if grace is None else grace
    return float("inf") if asked is None else float(asked)


def _held_report(held: Dict[str, str]) -> Dict[str, Any]:
    """What can't be unmounted yet, and why, as it is reported."""
    return {"held": list(held), "held_by": "; ".join(held.values())}


def drain(fd: int) -> None:
    """If anything is left, the next `select` returns at once."""
    try:
        os.read(fd, 65536)
    except BlockingIOError:
        return
