"""Hosts: the agent's own session, tasks that only pass the time, and a network that loses, delays and repeats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import orjson

from chalicelib.agent.program.commands import Abort, Carry, Command, End, Remove, SaveCredential, Start, Stop
from chalicelib.agent.program.session import AgentSession, Message
from chalicelib.backends.simulated.cloud import Boot
from chalicelib.contract import agent as contract
from chalicelib.domain.instants import Micros
from chalicelib.errors import DstackError, Forbidden
from chalicelib.usecases.agents.calls import has_news
from tests.simulation.edges import Away
from tests.simulation.plane import Site
from tests.simulation.world import Crash, Invariant, World

RPC_TIMEOUT = 30.0
MEASURED = 30.0  # seconds between two samples of a GPU

STARTED_ONCE = Invariant("started once", "a job is started once, unless what was started is lost with its host")


@dataclass
class Task:
    """What really happened to a job on a host."""

    id: str
    host: str
    state: str = "preparing"
    exit_status: int | None = None
    log: bytes = b""
    exit_reason: str = ""
    lost: bool = False  # with its host's disk
    disks: tuple[str, ...] = ()  # volumes that are mounted for it
    held: bool = False  # exited, and they can't be unmounted yet
    running_at: Micros | None = None
    connections: int | None = None  # of sessions in it; None: nobody counts them
    idle_since: Micros | None = None  # its last session ended


@dataclass(frozen=True)
class Work:
    """What a run's task does if left alone. It fails `failures` times and then succeeds."""

    seconds: float = 5.0
    failures: int = 0
    log: int = 100
    pulls: bool = False
    starts: float = 1.0  # how long it takes to start, as a multiple of the usual time
    session: float | None = None  # how long somebody is logged in, from its start on; None: nobody counts sessions
    gpu: int | None = None  # percent that its GPU is busy


@dataclass
class Carried:
    """A gateway's replica on a host. Its program outlives the agent."""

    order: contract.GatewayOrder
    state: Literal["starting", "running"] = "starting"
    ending: bool = False
    busy: dict[str, Micros] = field(default_factory=dict)  # requests under way, by job: until when
    configuration: Mapping[str, Any] = field(default_factory=dict)  # what it was last told to serve
    busy_since: Micros | None = None  # the plane has heard that it has requests
    reported_at: Micros = 0  # what it last reported

    def report(self) -> contract.GatewayReport:
        return {**self.order, "state": self.state, "message": ""}


class Hosts:
    """Every host, and the truth about every task that ever started on one."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.site: Site
        self.tasks: dict[str, Task] = {}
        self.work: dict[tuple[str, str], Work] = {}  # by project and run
        self.hosts: dict[str, Host] = {}  # by machine, or by instance without one
        self._killed: set[str] = set()
        self._failed: dict[tuple[str, str], int] = {}
        self.mounting: Callable[[Task, Mapping[str, Any]], None] = lambda task, disk: None  # may object

    def fails(self, run: tuple[str, str], work: Work) -> bool:
        self._failed[run] = self._failed.get(run, 0) + 1
        return self._failed[run] <= work.failures

    def launch(self, boot: Boot) -> None:
        _, instance_id, token = boot.settings
        has = boot.resources
        facts = {"cpus": has.cpus, "memory_mib": has.memory_mib, "disk_mib": has.disk.size_mib, "arch": "x86"}
        if boot.container:
            facts["runtimes"] = ["inside"]

        def up() -> None:
            if boot.machine_id not in self._killed and boot.machine_id not in self.hosts:
                self.add(boot.machine_id, instance_id, token, facts)

        self.world.after(boot.delay / 1_000_000, up)

    def kill(self, machine_id: str) -> None:
        self._killed.add(machine_id)
        if machine_id in self.hosts:
            self.hosts[machine_id].dead = True

    def add(self, name: str, instance_id: str, token: str, facts: dict[str, Any]) -> Host:
        host = Host(self, name, instance_id, token, {"runtimes": ["process"], **facts, "hostname": name})
        self.hosts[name] = host
        host.boot()
        return host

    def begin(self, task_id: str, host: str) -> Task:
        if task_id in self.tasks and not self.tasks[task_id].lost:
            raise STARTED_ONCE.broken(f"job {task_id} starts on {host} and did on {self.tasks[task_id].host}")
        self.tasks[task_id] = Task(task_id, host)
        return self.tasks[task_id]


class Host:
    """One agent. It can be restarted (its disk stays), cut off for a while, or die with its machine."""

    def __init__(self, hosts: Hosts, name: str, instance_id: str, token: str, facts: dict[str, Any]) -> None:
        self.hosts, self.world, self.name, self.instance_id = hosts, hosts.world, name, instance_id
        self.token, self.facts, self.credential = token, facts, ""
        self.dead = False
        self.cut_off_until = 0.0
        self.troubles: list[tuple[str, str]] | None = None  # what is wrong with it; None: it never looked
        self.tasks: dict[str, Task] = {}
        self.carried: Carried | None = None
        self.session: AgentSession

    def boot(self) -> None:
        boot_id = self.world.rng.randbytes(8).hex()
        self.session = AgentSession(
            self.instance_id, boot_id, self.credential, self._read_log, agent="sim", token=self.token, wait=20.0
        )
        self.session.facts_changed(cast("contract.HostFacts", dict(self.facts)))
        if self.troubles is not None:
            self.session.health_changed(self.troubles, self.world.seconds())
        for task in self.tasks.values():
            self._report(task)
            self.session.log_grew(task.id, len(task.log), self.world.seconds())
        if self.carried is not None:
            self._go_on(self.carried)
        self.pump()

    def forget(self) -> None:
        """Its disk is gone: what it knew, and every task."""
        for task in self.tasks.values():
            task.lost = True
        self.tasks, self.credential, self.carried = {}, "", None

    def pump(self) -> None:
        """Send what is due, and come back when the session says."""
        session = self.session

        def go() -> None:
            if self.dead or session is not self.session:
                return
            due = session.next(self.world.seconds())
            if isinstance(due, Message):
                self._send(session, due)
                go()
            elif due != float("inf"):
                self._wait(session, due)

        go()

    def _wait(self, session: AgentSession, due: float) -> None:
        """One alarm at a time is enough: an earlier one replaces the later."""
        if getattr(session, "alarm", float("inf")) <= due:
            return
        session.alarm = due  # type: ignore[attr-defined]

        def ring() -> None:
            if getattr(session, "alarm", None) == due:
                del session.alarm  # type: ignore[attr-defined]
                self.pump()

        self.world.after(max(0.0, due - self.world.seconds()) + 1e-6, ring)

    # --- the network -------------------------------------------------------------------------------------------------

    def _send(self, session: AgentSession, message: Message) -> None:
        world, body = self.world, orjson.dumps(message.body)
        trip = world.some(0.01, 0.2)
        if self._cut_off() or world.chance(0.05):
            world.after(RPC_TIMEOUT, lambda: self._failed(session, message, "timeout"))
            return
        lost = world.chance(0.05)
        world.after(trip, lambda: self._deliver(session, message, body, lost=lost))
        if world.chance(0.08):  # and once more, perhaps much later
            world.note("replay")
            credential = message.credential
            world.after(world.some(0.1, 150), lambda: self._replay(credential, body))

    def _deliver(self, session: AgentSession, message: Message, body: bytes, *, lost: bool, held: float = 0.0) -> None:
        world, site = self.world, self.hosts.site
        try:
            answer = site.parts.sync(site.plane, self.instance_id, message.credential, body)
        except Crash:
            lost = True
        except Forbidden:
            world.after(0.05, lambda: self._failed(session, message, "refused"))
            return
        except (DstackError, Away) as error:
            text = str(error)
            world.after(0.05, lambda: self._failed(session, message, text))
            return
        if lost:
            world.note("reply lost")
            world.after(RPC_TIMEOUT, lambda: self._failed(session, message, "timeout"))
        elif message.wait and not held and site.plane.pace.long_poll and not has_news(answer):
            self._hold(session, message, body)
        else:
            world.after(0.01, lambda: self._answered(session, message, answer))

    def _hold(self, session: AgentSession, message: Message, body: bytes) -> None:
        """A long poll: tried again, once, when there is news or its time is up."""
        over = False

        def again() -> None:
            nonlocal over
            if not over:
                over = True
                self._deliver(session, message, body, lost=False, held=1.0)

        self.hosts.site.polls.setdefault(self.instance_id, []).append(again)
        self.world.after(message.wait, again)

    def _replay(self, credential: str, body: bytes) -> None:
        site = self.hosts.site
        try:
            site.parts.sync(site.plane, self.instance_id, credential, body)
        except (Crash, Away, DstackError):
            self.world.note("replay refused")

    def _cut_off(self) -> bool:
        return self.world.seconds() < self.cut_off_until

    def _failed(self, session: AgentSession, message: Message, problem: str) -> None:
        if session is self.session and not self.dead:
            session.failed(message, problem, self.world.seconds())
            self.pump()

    def _answered(self, session: AgentSession, message: Message, answer: contract.SyncReply) -> None:
        if session is not self.session or self.dead:
            return
        for command in session.answered(message, answer, self.world.seconds()):
            self._obey(command)
        self.pump()

    # --- tasks -------------------------------------------------------------------------------------------------------

    def _obey(self, command: Command) -> None:
        if isinstance(command, SaveCredential):
            self.credential = command.credential
        elif isinstance(command, Start):
            self._start(command)
        elif isinstance(command, Stop | Abort):
            grace = (command.grace or 5.0) if isinstance(command, Stop) else 0.0
            reason = "terminated_by_user" if isinstance(command, Stop) else "aborted_by_user"
            if task := self.tasks.get(command.task):
                self._after(self.world.some(0, min(grace, 20.0)), lambda: self._exit(task, 143, reason))
        elif isinstance(command, Remove):
            self.tasks.pop(command.task, None)
            self.session.task_removed(command.task)
        elif isinstance(command, Carry):
            self._carry(command.gateway)
        elif isinstance(command, End):
            self.tasks.clear()
            self.carried = None

    def _start(self, command: Start) -> None:
        run = command.spec["project"], command.spec["env"]["DSTACK_RUN_NAME"]
        work = self.hosts.work.get(run, Work())
        task = self.tasks[command.task] = self.hosts.begin(command.task, self.name)
        disks = [each for each in command.spec["volumes"] if each["kind"] == "disk"]
        for disk in disks:
            self.hosts.mounting(task, disk)
        task.disks = tuple(disk["volume"] for disk in disks)
        status = int(self.hosts.fails(run, work))
        delay = self.world.some(0.1, 2.0)
        if work.pulls:
            self._after(delay, lambda: self._move(task, "pulling"))
            delay += self.world.some(0.1, 5.0)
        delay *= work.starts
        self._after(delay, lambda: self._move(task, "running"))
        for part in range(1, 4):  # the last part just before it ends
            self._after(delay + work.seconds * part / 3, lambda: self._write(task, work.log // 3))
        if work.session is not None:
            self._after(delay, lambda: self._session(task, 1))
            self._after(delay + work.session, lambda: self._session(task, 0))
        if work.gpu is not None:
            self._after(delay, lambda: self._measure(task, work))
        reason = "container_exited_with_error" if status else "done_by_runner"
        self._after(delay + work.seconds, lambda: self._exit(task, status, reason))

    def _after(self, delay: float, do: Callable[[], None]) -> None:
        self.world.after(delay, lambda: None if self.dead else do())

    def _move(self, task: Task, state: str) -> None:
        if task.state != "exited" and self.tasks.get(task.id) is task:
            task.state = state
            task.running_at = self.world.now() if state == "running" else None
            self._report(task)
            self.pump()

    def _session(self, task: Task, connections: int) -> None:
        if task.state == "running" and self.tasks.get(task.id) is task:
            task.connections, task.idle_since = connections, None if connections else self.world.now()
            self._report(task)
            self.pump()

    def _measure(self, task: Task, work: Work) -> None:
        """How busy its GPU is, every so often."""
        if task.state == "running" and self.tasks.get(task.id) is task:
            used = {"cpu_usage_micro": 0, "memory_usage_bytes": 0, "memory_working_set_bytes": 0}
            point = {"task": task.id, "at": self.world.now(), "gpus": [{"util_percent": work.gpu}], **used}
            self.session.measured([cast("contract.MetricPoint", point)])
            self._after(MEASURED, lambda: self._measure(task, work))

    def _write(self, task: Task, size: int) -> None:
        if task.state == "running" and self.tasks.get(task.id) is task:
            task.log += self.world.rng.randbytes(size)
            self.session.log_grew(task.id, len(task.log), self.world.seconds())
            self.pump()

    def _exit(self, task: Task, status: int, reason: str) -> None:
        if task.state == "exited" or self.tasks.get(task.id) is not task:
            return
        task.exit_status = status if task.state == "running" else None
        task.state, task.exit_reason = "exited", reason
        if task.disks and self.world.chance(0.3):
            task.held = True
            self._after(self.world.some(1, 60), lambda: self._unmounted(task))
        self._report(task)
        self.pump()

    def _unmounted(self, task: Task) -> None:
        task.held = False
        if self.tasks.get(task.id) is task:
            self._report(task)
            self.pump()

    def _report(self, task: Task) -> None:
        report: dict[str, Any] = {"id": task.id, "state": task.state, "at": self.world.now()}
        if task.state == "exited":
            report.update(exit_status=task.exit_status, reason=task.exit_reason, log_end=len(task.log))
            report.update(held=list(task.disks) if task.held else [])
        elif task.state == "running":
            report.update(mounted=list(task.disks))
            if task.connections is not None:
                report.update(connections=task.connections, idle_since=task.idle_since)
        self.session.task_changed(cast("contract.TaskReport", report))

    def _read_log(self, task_id: str, offset: int, limit: int) -> tuple[int, list[tuple[int, bytes]]]:
        data = self.tasks[task_id].log[offset : offset + limit]
        return offset, [(self.world.now(), data)] if data else []

    # --- a gateway's replica -----------------------------------------------------------------------------------------

    @property
    def door(self) -> Carried | None:
        """What takes requests here."""
        serves = self.carried is not None and self.carried.state == "running" and not self.dead
        return self.carried if serves else None

    def _carry(self, order: contract.GatewayOrder | None) -> None:
        carried = self.carried
        if order is None and carried is not None:
            carried.ending = True
            self._after(self.world.some(0.1, 10), lambda: self._drop(carried))
        elif order is None:
            self.session.gateway_changed(None)
        elif carried is None or carried.ending or carried.order != order:
            self.world.note("gateway carried")
            self.carried = begun = Carried(order)
            self.session.gateway_changed(begun.report())
            self._after(self.world.some(0.5, 60), lambda: self._serve(begun))

    def _drop(self, carried: Carried) -> None:
        if self.carried is carried and carried.ending:
            self.carried = None
            self.session.gateway_changed(None)
            self.pump()

    def _serve(self, carried: Carried) -> None:
        if self.carried is carried:
            carried.state = "running"
            self.session.gateway_changed(carried.report())
            self.pump()

    def _go_on(self, carried: Carried) -> None:
        """The agent starts: it says at once that there is a replica, and how that is once it has looked. The end of
        one, cut short, is asked for again."""
        carried.ending = False
        self.session.gateway_changed({**carried.report(), "state": "starting"})
        self._after(1.0 if carried.state == "running" else 20.0, lambda: self._serve(carried))
