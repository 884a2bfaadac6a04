"""The agent's loop: one thread that owns the session and the roster, two that talk to the server, a few for slow work.

The loop sleeps in one select on the pipe that supervisors write to; the other threads use it, too, to wake the loop.
Everything that must survive is on disk before it is acted on, so the loop can be killed at any point.
"""

from __future__ import annotations

import functools
import os
import random
import select
import socket
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Optional, Set, Union

from ..gateway.role import GatewayRole
from ..kernel import namespaces
from ..kernel.lazy import LazyModule
from ..kernel.link import Link, LinkError
from ..kernel.log import log
from ..kernel.slow_work import SlowWork
from ..kernel.task_runtime import ALONE, CONTAINER, TaskError, TaskRuntime, isolation, micros
from ..kernel.tasks import make_pipe, read_text, write_atomic
from ..replicas.replicas import WatchedReplicas
from . import chunks
from .address import Address
from .commands import (
    Abort,
    Carry,
    Command,
    Dial,
    End,
    PutLog,
    Rekey,
    Remove,
    Reroute,
    SaveCredential,
    Skip,
    Start,
    Stop,
    Trim,
)
from .epochs import Epochs
from .health import HealthChecks
from .inventory import Inventory
from .message_sender import MessageSender
from .notices import Notice
from .periodic import Intervals, Periodic
from .roster import Roster, archives_of
from .session import AgentSession, Message

if TYPE_CHECKING:
    from ...contract.agent import GatewayReport, HostFacts, HostGpu, StreamOrder
    from ..kernel import networks
    from ..streams import log_stream, streams
    from ..streams.log_stream import LogStreams
    from ..streams.streams import AgentStreams, StreamFactory
    from ..volumes import volumes
    from . import metrics
else:
    metrics = LazyModule(".program.metrics")
    networks = LazyModule(".kernel.networks")
    log_stream = LazyModule(".streams.log_stream")
    streams = LazyModule(".streams.streams")
    volumes = LazyModule(".volumes.volumes")

END_SECONDS = 5.0  # to wait for the SSH servers of ended jobs when the agent ends
ADDRESS_EVERY = 0.5  # seconds between two reads of an unreachable server's address
FETCH_TRIES = 30


class AgentProgram:
    def __init__(
        self,
        data: str,
        instance: str,
        session: AgentSession,
        roster: Roster,
        runtimes: Dict[str, TaskRuntime],
        inventory: Inventory,
        intervals: Intervals = Intervals(),  # noqa: B008 - it is immutable
        notices: Optional[Callable[[], Notice]] = None,
    ) -> None:
        self._data, self._session, self._roster = data, session, roster
        self._runtimes, self._inventory = runtimes, inventory
        self._address = Address(data)
        self.replicas = WatchedReplicas(roster.runtime, self._replica_changed, log)
        self.gateway = GatewayRole(data, roster.program, self._gateway_changed, log)
        self._wake_path = os.path.join(data, "wake")
        self._wake = make_pipe(self._wake_path)
        self._inbox: Deque[Callable[[], None]] = deque()  # work from other threads for the loop
        outdated = Epochs(data).outdated
        self._push = MessageSender("push", self._delivered, self._address.via, outdated)
        self._poll = MessageSender("poll", self._delivered, self._address.via, outdated)
        self._slow = SlowWork(8)
        self._launching: Set[str] = set()
        self._log_port: Optional[socket.socket] = None  # listens in the machine's own network, for the first task's log
        self._log_served: Dict[str, bool] = {}  # tasks whose log is served in their network; False: to be retried
        self._removing: Set[str] = set()
        self._deleting: Set[str] = set()
        self._gpus: List[HostGpu] = []
        self._notices, self._polling_notices = notices, False
        self._measuring = self._examining = False
        self._health = HealthChecks(
            self._storages, [runtime.problem for runtime in runtimes.values()], inventory.run, inventory.root
        )
        self._alone = any(runtime.isolation == ALONE for runtime in runtimes.values())
        self._removed_at: Optional[float] = None  # when the only task of such a machine was removed
        self._leaving = False  # the server knows of that removal
        self._unreachable = False  # the last message got no response
        self._stopping = False
        now = time.monotonic()
        self._checks, self._measurements, self._fact_updates, self._health_checks = (
            Periodic(seconds, now) for seconds in intervals
        )

    @functools.cached_property
    def streams(self) -> "AgentStreams":
        found = streams.AgentStreams(lambda: self._address.read()[0], log, via=self._address.via)
        found.serve("port", streams.port_opener(self._roster.runtime, self.replicas.port))
        found.serve("ssh", streams.ssh_opener(self._roster.runtime))
        found.serve("logs", self._log_opener)
        return found

    @functools.cached_property
    def logs(self) -> "LogStreams":
        found = log_stream.LogStreams(self.streams.loop, self._roster.folder)
        if self._log_port is not None:
            found.serve_on(self._log_port)
        return found

    def _log_opener(self, task: str, order: StreamOrder) -> "StreamFactory":
        return self.logs.opener(task, order)

    def stop(self) -> None:
        """Leave the loop; tasks keep running, and the next agent finds them."""
        self._stopping = True
        self._nudge()

    def interrupt(self) -> None:
        """The provider ends this machine now. Called by a signal handler."""
        self._hand_over(lambda: self._session.interruption_announced(micros()))

    def run(self) -> bool:
        """Run until stopped (returns False) or until the instance has ended, with nothing left here (True)."""
        self._push.start()
        self._poll.start()
        self._took_facts(self._inventory.facts(isolation(self._runtimes)))
        if any(runtime.isolation != CONTAINER for runtime in self._runtimes.values()):
            self._log_port = networks.log_port()
        for task in self._roster.tasks():
            self._refresh(task)
        self._check(time.monotonic())
        self._slow.submit(self._sweep, set(self._roster.tasks()))
        self._examine()
        self._session.gateway_changed(self.gateway.begin())
        while not self._stopping and not self._is_over():
            self._step()
        self.gateway.close()
        if "streams" in vars(self):  # created with the first task
            self.streams.loop.close()
        if self._log_port is not None:
            self._log_port.close()
        self.replicas.close()
        self._end_logins()
        return not self._stopping

    def _is_over(self) -> bool:
        """Has the instance ended, with nothing left here? One for a single task ends with that task."""
        ended = self._session.ended or self._leaving
        return ended and not self._session.tasks() and self.gateway.removed()

    def _gateway_changed(self, report: Optional[GatewayReport]) -> None:
        self._hand_over(lambda: self._session.gateway_changed(report))

    def _end_logins(self) -> None:
        """End the SSH servers of ended tasks, whose log nobody serves any more."""
        ended = [task for task in self._roster.tasks() if self._roster.ended(task)]
        self._roster.end_logins(ended)
        until = time.monotonic() + END_SECONDS
        while time.monotonic() < until and not all(self._roster.over(task) for task in ended):
            time.sleep(0.02)

    def _step(self) -> None:
        now = time.monotonic()
        until = min(self._talk(now), self._checks.next_at)
        if self._unreachable:
            until = min(until, now + ADDRESS_EVERY)
        if select.select([self._wake], [], [], max(0.0, until - time.monotonic()))[0]:
            self._take_wakeups()
        while self._inbox:
            self._inbox.popleft()()
        now = time.monotonic()
        if self._unreachable and self._address.refresh():
            log("the server is at %s now" % self._address.current[0])
            self._session.token = self._address.current[1] or self._session.token
            self._session.server_moved(now)
        if self._checks.begin(now):
            self._check(now)

    def _talk(self, now: float) -> float:
        """Send the messages that are due; returns when to call again."""
        while True:
            action = self._session.next(now)
            if not isinstance(action, Message):
                return action
            self._address.refresh()
            (self._poll if action.wait else self._push).send(self._address.current[0], action)

    # Reports of other threads and supervisors -------------------------------------------------------------------

    def _nudge(self) -> None:
        try:
            os.write(self._wake, b"\n")
        except BlockingIOError:
            return  # full of wake-ups: the loop will wake anyway

    def _hand_over(self, action: Callable[[], None]) -> None:
        self._inbox.append(action)
        self._nudge()

    def _delivered(self, message: Message, outcome: Any) -> None:
        self._hand_over(lambda: self._outcome(message, outcome))

    def _take_wakeups(self) -> None:
        data = b""
        while True:
            try:
                part = os.read(self._wake, 65536)
            except BlockingIOError:
                break
            data += part
        for task in {line for line in data.decode("ascii", "replace").split("\n") if line}:
            if os.path.isdir(self._roster.folder(task).path):
                self._refresh(task)

    def _refresh(self, task: str) -> None:
        """Report a task to the session; its state is read before its log, so an end never precedes the last output."""
        report = self._roster.report(task)
        if report["state"] == "running":
            self.replicas.watch(task, self._roster.folder(task).launch)
            report = {**report, **self.replicas.report(task)}
        else:
            self.replicas.forget(task)
        end = self._roster.log(task).end()
        if task not in self._session.tasks():
            self._session.task_changed({**report, "state": "preparing"})
        self._session.log_grew(task, end, time.monotonic())
        self._session.task_changed(report)
        self.logs.grew(task)
        if report["state"] == "running" and task not in self._log_served:
            self._serve_log(task)
        if task in self._removing:
            self._try_remove(task)

    def _replica_changed(self, task: str) -> None:
        self._hand_over(lambda: self._refresh_running(task))

    def _refresh_running(self, task: str) -> None:
        if task in self._session.tasks() and os.path.isdir(self._roster.folder(task).path):
            self._refresh(task)

    def _check(self, now: float) -> None:
        """Check the tasks for dead supervisors and a full disk, and start the other periodic work that is due."""
        self._roster.reap()
        for task in self._session.tasks():
            if not os.path.isdir(self._roster.folder(task).path):
                continue
            if task not in self._launching | self._deleting and self._roster.orphaned(task):
                self._launch(task)
            self._cap(task)
            if self._log_served.get(task) is False:
                self._serve_log(task)
            self._refresh(task)
        if self._notices is not None and not self._polling_notices:
            self._polling_notices = True
            self._slow.submit(self._logged, self._poll_notice, self._notices)
        if not self._measuring and self._measurements.begin(now):
            self._measuring = True
            self._slow.submit(self._logged, self._measure)
        if self._health_checks.begin(now):
            self._examine()
        if self._fact_updates.begin(now):
            self._slow.submit(self._logged, self._find_facts)

    def _serve_log(self, task: str) -> None:
        """Serve a task's log in its network, in another thread because the engine may be slow."""
        self._log_served[task] = True
        self._slow.submit(self._logged, self._serve_log_slowly, task)

    def _serve_log_early(self, task: str) -> None:
        """Serve a task's log in the machine's own network, before the task is reported as running."""
        if not self._roster.takes_logins(task) or not self._roster.on_host_network(task):
            return
        try:
            self._log_served[task] = self.logs.serve(task, None, lambda: self._roster.roots(task))
        except OSError as problem:
            log("serving the log of %s: %s" % (task, problem))
            self._log_served[task] = False

    def _serve_log_slowly(self, task: str) -> None:
        if not self._roster.takes_logins(task):
            return
        try:
            runtime, folder = self._roster.runtime(task)
            with networks.open_network(lambda: runtime.network(folder)) as network:
                served = self.logs.serve(task, network, lambda: self._roster.roots(task))
        except OSError as problem:
            log("serving the log of %s: %s" % (task, problem))
            served = False
        if not served:
            self._hand_over(lambda: self._log_unserved(task))

    def _log_unserved(self, task: str) -> None:
        if task in self._log_served:
            self._log_served[task] = False  # retried at the next check

    def _cap(self, task: str) -> None:
        dropped = self._roster.cap_log(task, len(self._session.tasks()))
        if dropped:
            message = "%s: %d bytes of output dropped: the spool is full, and the server isn't accepting any"
            log(message % (task, dropped))
            self._session.log_shrank(task, self._roster.log(task).end(), time.monotonic())

    def _skip(self, command: Skip) -> None:
        spool = self._roster.log(command.task)
        spool.skip(command.offset, command.end, micros())
        self._session.log_shrank(command.task, spool.end(), time.monotonic())

    def _put(self, command: PutLog) -> None:
        routed = "this machine's requests go through a head node, which leads to the server alone"
        problem = routed if self._address.via() else chunks.put(command.url, command.headers, command.chunk.payload)
        if problem:
            log("output of %s couldn't be stored: %s" % (command.chunk.task, problem))
        self._hand_over(lambda: self._session.put_done(command.chunk, problem, time.monotonic()))

    def _measure(self) -> None:
        try:
            samples = metrics.sample(self._roster.running(), self._runtimes, self._inventory.gpu_usage)
            self._hand_over(lambda: self._session.measured(samples))
        finally:
            self._measuring = False

    def _poll_notice(self, poll: Callable[[], Notice]) -> None:
        try:
            notice = poll()
            if notice is not None:
                self._hand_over(lambda: self._session.interruption_announced(notice))
        finally:
            self._polling_notices = False

    def _storages(self) -> Dict[str, str]:
        """The folders whose disks are checked, with their purposes. While the machine is being added no runtime is
        queried, because engines start several processes to answer."""
        added = os.path.exists(os.path.join(self._data, "credential"))
        found = {name: runtime.storage() for name, runtime in self._runtimes.items() if added}
        return {self._data: "the agent's", **{path: name for name, path in found.items() if path}}

    def _examine(self) -> None:
        if not self._examining:
            self._examining = True
            self._slow.submit(self._logged, self._find_troubles)

    def _find_troubles(self) -> None:
        try:
            vendors = set() if self._inventory.simulated else {gpu["vendor"] for gpu in self._gpus}
            troubles = self._health.check(vendors)
            self._hand_over(lambda: self._session.health_changed(troubles, time.monotonic()))
        finally:
            self._examining = False

    def _find_facts(self) -> None:
        facts = self._inventory.facts(isolation(self._runtimes))
        self._hand_over(lambda: self._took_facts(facts))

    def _took_facts(self, facts: HostFacts) -> None:
        self._gpus = facts.get("gpus", [])
        self._session.facts_changed(facts)

    def _sweep(self, known: Set[str]) -> None:
        """Delete what tasks without a folder have left: containers before volumes, because they use them."""
        for runtime in self._runtimes.values():
            self._logged(runtime.sweep, known)
        self._logged(self._sweep_volumes)

    def _sweep_volumes(self) -> None:
        if os.path.isdir(namespaces.VOLUMES):
            for problem in volumes.sweep(self._data):
                log(problem)

    @staticmethod
    def _logged(action: Callable[..., None], *arguments: Any) -> None:
        """Run an action in another thread, and log its exception, which would be lost otherwise."""
        try:
            action(*arguments)
        except Exception as problem:
            log("%s failed: %r" % (getattr(action, "__qualname__", action), problem))

    # The server's commands --------------------------------------------------------------------------------------

    def _outcome(self, message: Message, outcome: Any) -> None:
        now = time.monotonic()
        if isinstance(outcome, LinkError):
            log("sync %d: %s" % (message.seq, outcome))
            self._unreachable = True
            if outcome.moved_to:
                self._address.follow(outcome.moved_to)  # the next step finds that it has changed
            if outcome.problem == "unacceptable":
                log("sync %d: message dropped: the server would never accept it" % message.seq)
            for command in self._session.failed(message, outcome.problem, now, outcome.retry_after):
                self._obey(command)
            return
        try:
            commands = self._session.answered(message, outcome, now)
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            log("sync %d: unexpected response: %r" % (message.seq, problem))
            self._session.failed(message, "network", now)
            return
        self._unreachable = False
        self._leaving = self._leaving or (self._removed_at is not None and message.sent_at > self._removed_at)
        for command in commands:
            self._obey(command)

    def _obey(self, command: Command) -> None:
        _log_command(command)
        try:
            if isinstance(command, Start):
                self._start(command)
            elif isinstance(command, Stop):
                self._roster.stop(command.task, command.grace)
            elif isinstance(command, Abort):
                self._roster.abort(command.task)
            elif isinstance(command, Remove):
                self._remove(command.task)
            elif isinstance(command, (Trim, Skip, PutLog)):
                self._obey_log_command(command)
            elif isinstance(command, Dial):
                self.streams.dial(command.order)
            elif isinstance(command, (SaveCredential, Rekey, Reroute)):
                self._obey_update(command)
            elif isinstance(command, Carry):
                self.gateway.want(command.gateway)
            elif isinstance(command, End):
                self.gateway.want(None)
                for task in self._session.tasks():
                    self._remove(task)
        except OSError as problem:
            log("%s %s: %s" % (type(command).__name__.lower(), getattr(command, "task", ""), problem))

    def _obey_log_command(self, command: Union[Trim, Skip, PutLog]) -> None:
        if isinstance(command, Trim):
            self._roster.log(command.task).trim(command.offset)
        elif isinstance(command, Skip):
            self._skip(command)
        else:
            self._slow.submit(self._logged, self._put, command)

    def _obey_update(self, command: Union[SaveCredential, Rekey, Reroute]) -> None:
        if isinstance(command, Reroute):
            if self.replicas.route(command.task, command.workers, command.urls):
                self._refresh(command.task)
        elif isinstance(command, SaveCredential):
            write_atomic(os.path.join(self._data, "credential"), command.credential, durable=True)
        elif self._roster.rekey(command.task, command.access, command.keys):
            self._refresh(command.task)

    def _start(self, command: Start) -> None:
        try:
            self._roster.create(command.task, command.spec, self._gpus)
        except (OSError, TaskError) as problem:
            message = problem.message if isinstance(problem, TaskError) else "the task can't be stored: %s" % problem
            self._session.task_changed(
                {"id": command.task, "state": "exited", "reason": "executor_error", "message": message}
            )
            return
        self._serve_log_early(command.task)
        self._refresh(command.task)
        self._launch(command.task)

    def _launch(self, task: str) -> None:
        if archives_of(self._roster.folder(task)):
            self._launching.add(task)
            self._slow.submit(self._logged, self._launch_slowly, task)
            return
        try:
            self._roster.launch(task, self._fetch)
        except OSError as problem:  # no space for its log, or no more processes: retried at the next check
            log("starting %s: %s" % (task, problem))

    def _launch_slowly(self, task: str) -> None:
        try:
            self._roster.launch(task, self._fetch)
        except (TaskError, OSError) as problem:
            trouble = problem if isinstance(problem, TaskError) else TaskError("executor_error", "files: %s" % problem)
            self._roster.give_up(task, trouble)
        finally:
            self._hand_over(lambda: self._launched(task))

    def _launched(self, task: str) -> None:
        self._launching.discard(task)
        self._refresh(task)

    def _fetch(self, url: str, place: str) -> None:
        """Fetch one archive of a task. Retried while the server is unreachable, but not if it refuses."""
        link, partial = Link(self._address.via), place + ".part"
        for attempt in range(FETCH_TRIES):
            try:
                with open(partial, "wb") as out:
                    link.fetch(self._address.read()[0], url, self._session.credential, out)
                os.rename(partial, place)
                return
            except LinkError as problem:
                if problem.problem == "refused" or "HTTP 4" in str(problem) or attempt == FETCH_TRIES - 1:
                    raise TaskError("executor_error", "files: %s can't be fetched: %s" % (url, problem)) from None
                log("fetching %s: %s" % (url, problem))
            finally:
                link.close()
            time.sleep(min(10.0, 2.0**attempt))

    def _remove(self, task: str) -> None:
        self._removing.add(task)
        if not os.path.isdir(self._roster.folder(task).path):
            self._removed(task)
            return
        if not self._roster.over(task):
            self._roster.abort(task)
        self._try_remove(task)

    def _try_remove(self, task: str) -> None:
        if task in self._deleting or task in self._launching or not self._roster.over(task) or self.logs.reading(task):
            return  # its supervisor reports the end, and the next check finds it in any case
        self._deleting.add(task)
        self._log_served.pop(task, None)
        self.logs.unserve(task)
        self._slow.submit(self._logged, self._delete, task)

    def _delete(self, task: str) -> None:
        try:
            self._roster.remove(task)
        except Exception:
            self._hand_over(lambda: self._deleting.discard(task))  # retried at the next check
            raise
        self._hand_over(lambda: self._removed(task))

    def _removed(self, task: str) -> None:
        self._removing.discard(task)
        self._deleting.discard(task)
        self.replicas.forget(task)
        self._session.task_removed(task)
        if self._alone:
            self._removed_at = time.monotonic()
            self._session.hurry()  # it ends once this is answered


def _log_command(command: Command) -> None:
    subject = getattr(command, "task", "")
    if isinstance(command, Dial):
        subject = "%s to %s of %s" % tuple(command.order.get(name) for name in ("id", "target", "task"))
    if not isinstance(command, (Trim, PutLog)):
        log("%s %s" % (type(command).__name__.lower(), subject))


def new_session(data: str, instance: str, roster: Roster, version: str, wait: float) -> AgentSession:
    credential = (read_text(os.path.join(data, "credential")) or "").strip()
    token = (read_text(os.path.join(data, "token")) or "").strip()
    jitter = random.Random()
    return AgentSession(
        instance=instance,
        boot=os.urandom(8).hex(),
        credential=credential,
        token=token,
        read_log=roster.read_log,
        agent=version,
        wait=wait,
        jitter=lambda: 0.5 + jitter.random() / 2,
        wall=micros,
    )
