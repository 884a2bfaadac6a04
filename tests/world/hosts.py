"""Machines with their agents: the agent's own session, tasks that only pass the time, and the network between them and
the plane. Nothing here decides: the session says what to send, repeat or start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import orjson

from chalicelib.agent.program import chunks
from chalicelib.agent.program.commands import Abort, Carry, Command, End, PutLog, Remove, SaveCredential, Start, Stop
from chalicelib.agent.program.session import AgentSession, Message
from chalicelib.agent.runtimes import steps
from chalicelib.backends.simulated.cloud import Boot
from chalicelib.contract import agent as contract
from chalicelib.domain.instants import SECOND
from chalicelib.errors import DstackError, Forbidden
from chalicelib.usecases.agents.calls import has_news
from tests.world.time import Time

TRIP = 0.01  # seconds that a message takes to arrive
INSTALLING = 20.0  # seconds from when a machine is told to carry a gateway until that takes requests
STARTING = 0.1  # seconds from the order to a task's first step
GRACE = 5.0

Sync = Callable[[str, str, bytes], dict[str, Any]]  # instance, credential, message → response; raises DstackError


@dataclass
class Task:
    """What really happened to a job on a host."""

    id: str
    host: str
    spec: contract.Task
    state: str = "preparing"
    exit_status: int | None = None
    step: int = 0  # which of its commands it began last
    log: list[tuple[int, bytes]] = field(default_factory=list)  # when, and what
    reason: str = ""
    listens: bool = True  # a service's replica, once it runs …
    passes: bool = True  # … and so do all its probes, from the first
    queue: int | None = None  # requests that wait in its engine

    @property
    def output(self) -> bytes:
        return b"".join(data for _, data in self.log)


class Work(Protocol):
    """What tasks do."""

    def begin(self, host: Host, task: Task) -> None:
        """Schedule what will happen to it, with `host.schedule`."""

    def stop_requested(self, host: Host, task: Task, grace: float, reason: str) -> None:
        """It ends within `grace` seconds; at once if that is 0."""


class Network:
    """A reliable network to the plane. One that loses and repeats messages overrides `send`."""

    def __init__(self, time: Time, sync: Sync, *, long_poll: bool) -> None:
        self.time, self._sync, self._long_poll = time, sync, long_poll
        self._held: dict[str, list[Callable[[], None]]] = {}

    def send(self, host: Host, session: AgentSession, message: Message) -> None:
        body = orjson.dumps(message.body)
        self.time.after(TRIP, lambda: self.deliver(host, session, message, body))

    def deliver(self, host: Host, session: AgentSession, message: Message, body: bytes) -> None:
        """The plane's response, now or, if it holds calls, as soon as it has news."""
        end = self.time.at + round(message.wait * SECOND)
        answered = False

        def attempt() -> None:
            nonlocal answered
            if answered:
                return
            try:
                answer = self._sync(host.instance_id, message.credential, body)
            except DstackError as error:
                answered = True
                problem = "refused" if isinstance(error, Forbidden) else str(error)
                self.time.after(TRIP, lambda: host.failed(session, message, problem))
                return
            if self._long_poll and self.time.at < end and not has_news(answer):
                self._held.setdefault(host.instance_id, []).append(attempt)
                return
            answered = True
            self.time.after(TRIP, lambda: host.answered(session, message, cast("contract.SyncReply", answer)))

        attempt()
        if not answered:
            self.time.after(message.wait, attempt)

    def ring(self, instance_ids: Iterable[str]) -> None:
        """There is news for these: their held calls are tried again."""
        for instance_id in instance_ids:
            for attempt in self._held.pop(instance_id, []):
                self.time.after(0.0, attempt)


class Hosts:
    """Every host, and the truth about every task that ever started on one. Launches what the cloud sells."""

    def __init__(self, time: Time, network: Network, work: Work) -> None:
        self.time, self.network, self.work = time, network, work
        self.hosts: dict[str, Host] = {}  # by machine, or by instance without one
        self.tasks: dict[str, Task] = {}
        self._killed: set[str] = set()

    def launch(self, boot: Boot) -> None:
        _, instance_id, token = boot.settings
        has = boot.resources
        facts = {
            "cpus": has.cpus,
            "memory_mib": has.memory_mib,
            "disk_mib": has.disk.size_mib,
            "arch": "x86",
            "gpus": [
                {"id": f"gpu-{number}", "vendor": gpu.vendor, "name": gpu.name, "memory_mib": gpu.memory_mib}
                for number, gpu in enumerate(has.gpus)
            ],
            "addresses": [boot.internal_ip],
            **({"runtimes": ["inside"]} if boot.container else {}),
        }

        def up() -> None:
            if boot.machine_id not in self._killed and boot.machine_id not in self.hosts:
                self.add(boot.machine_id, instance_id, token, facts)

        self.time.after(boot.delay / SECOND, up)

    def kill(self, machine_id: str) -> None:
        self._killed.add(machine_id)
        if machine_id in self.hosts:
            self.hosts[machine_id].dead = True

    def add(self, name: str, instance_id: str, token: str, facts: dict[str, Any]) -> Host:
        host = Host(self, name, instance_id, token, {"runtimes": ["process"], **facts, "hostname": name})
        self.hosts[name] = host
        host.boot()
        return host

    def begin(self, task_id: str, spec: contract.Task, host: str) -> Task:
        assert task_id not in self.tasks, f"job {task_id} began on {host}, after it had on {self.tasks[task_id].host}"
        self.tasks[task_id] = Task(task_id, host, spec)
        return self.tasks[task_id]


class Host:
    """One machine with its agent. It can be restarted (its disk stays), or die."""

    def __init__(self, hosts: Hosts, name: str, instance_id: str, token: str, facts: dict[str, Any]) -> None:
        self.hosts, self.time, self.name, self.instance_id = hosts, hosts.time, name, instance_id
        self.token, self.facts, self.credential = token, facts, ""
        self.dead = False
        self.carried: contract.GatewayOrder | None = None  # the gateway's replica here
        self.boots = 0
        self.tasks: dict[str, Task] = {}
        self.session: AgentSession
        self._alarm: float

    def boot(self) -> None:
        self.boots += 1
        self._alarm = float("inf")
        boot_id = f"{self.name}-{self.boots}"
        self.session = AgentSession(
            self.instance_id, boot_id, self.credential, self._read_log, agent="world", token=self.token, wait=20.0
        )
        self.session.facts_changed(cast("contract.HostFacts", self.facts))
        for task in self.tasks.values():
            self._report(task)
            self.session.log_grew(task.id, len(task.output), self.time.seconds())
        self.pump()

    def pump(self) -> None:
        """Send what is due, and come back when the session says."""
        session = self.session
        while not self.dead and session is self.session:
            due = session.next(self.time.seconds())
            if not isinstance(due, Message):
                self._wake_at(session, due)
                return
            self.hosts.network.send(self, session, due)

    def _wake_at(self, session: AgentSession, due: float) -> None:
        """One alarm at a time is enough: an earlier one replaces the later."""
        if due >= self._alarm:
            return
        self._alarm = due

        def ring() -> None:
            if session is self.session and self._alarm == due:
                self._alarm = float("inf")
                self.pump()

        self.time.after(max(0.0, due - self.time.seconds()) + 1e-6, ring)

    # --- what the network brings -------------------------------------------------------------------------------------

    def failed(self, session: AgentSession, message: Message, problem: str) -> None:
        if session is self.session and not self.dead:
            session.failed(message, problem, self.time.seconds())
            self.pump()

    def answered(self, session: AgentSession, message: Message, answer: contract.SyncReply) -> None:
        if session is not self.session or self.dead:
            return
        for command in session.answered(message, answer, self.time.seconds()):
            self._obey(command)
        self.pump()

    def _obey(self, command: Command) -> None:
        if isinstance(command, SaveCredential):
            self.credential = command.credential
        elif isinstance(command, Start):
            begun = self.tasks[command.task] = self.hosts.begin(command.task, command.spec, self.name)
            self.hosts.work.begin(self, begun)
        elif isinstance(command, Stop | Abort):
            if task := self.tasks.get(command.task):
                stopped = isinstance(command, Stop)
                grace = (command.grace or GRACE) if isinstance(command, Stop) else 0.0
                reason = "terminated_by_user" if stopped else "aborted_by_user"
                self.hosts.work.stop_requested(self, task, grace, reason)
        elif isinstance(command, PutLog):
            problem = chunks.put(command.url, command.headers, command.chunk.payload)
            self.session.put_done(command.chunk, problem, self.time.seconds())
        elif isinstance(command, Remove):
            self.tasks.pop(command.task, None)
            self.session.task_removed(command.task)
        elif isinstance(command, Carry):
            self._carry(command.gateway)
        elif isinstance(command, End):
            self.tasks.clear()

    def _carry(self, wanted: contract.GatewayOrder | None) -> None:
        """nginx is installed in `INSTALLING` seconds, and gone at once."""
        self.carried = wanted
        self.session.gateway_changed(None if wanted is None else {**wanted, "state": "installing", "message": ""})

        def serves() -> None:
            if wanted is not None and self.carried is wanted:
                self.session.gateway_changed({**wanted, "state": "running", "message": ""})
                self.pump()

        self.schedule(INSTALLING, serves)

    # --- what tasks do -----------------------------------------------------------------------------------------------

    def schedule(self, delay: float, do: Callable[[], None]) -> None:
        self.time.after(delay, lambda: None if self.dead else do())

    def move(self, task: Task, state: str) -> None:
        if task.state != "exited" and task.id in self.tasks:
            task.state = state
            self._report(task)
            self.pump()

    def write(self, task: Task, data: bytes) -> None:
        if task.state == "running" and task.id in self.tasks:
            task.log.append((self.time.now(), data))
            self.session.log_grew(task.id, len(task.output), self.time.seconds())
            self.pump()

    def exit(self, task: Task, status: int, reason: str = "") -> None:
        """Ended; by itself unless a reason is given. A task that never ran has no status."""
        if task.state == "exited" or task.id not in self.tasks:
            return
        task.exit_status = status if task.state == "running" else None
        task.reason = reason or ("container_exited_with_error" if status else "done_by_runner")
        task.state = "exited"
        self._report(task)
        self.pump()

    def _report(self, task: Task) -> None:
        report: dict[str, Any] = {"id": task.id, "state": task.state, "at": self.time.now()}
        if task.state == "exited":
            failed = task.reason == "container_exited_with_error"
            name = steps.name(task.spec, str(task.step))
            text = f"exited with status {task.exit_status}"
            message = (f"{text} in {name}" if name else text) if failed else ""
            report.update(exit_status=task.exit_status, reason=task.reason, message=message, log_end=len(task.output))
        if task.state == "running" and task.spec.get("service_port"):
            report.update(_served(task))
        self.session.task_changed(cast("contract.TaskReport", report))

    def serves(self, task: Task, **changes: Any) -> None:
        """What its agent sees of a service's replica changes: `listens`, `passes`, `queue`."""
        vars(task).update(changes)
        self._report(task)
        self.pump()

    def _read_log(self, task_id: str, offset: int, limit: int) -> tuple[int, list[tuple[int, bytes]]]:
        at, found = 0, []
        for moment, data in self.tasks[task_id].log:
            piece = data[max(0, offset - at) : max(0, offset + limit - at)]
            at += len(data)
            if piece:
                found.append((moment, piece))
        return offset, found


def _served(task: Task) -> dict[str, Any]:
    fields: dict[str, Any] = {"listens": task.listens}
    if task.listens:
        fields["probes"] = [(probe.get("ready_after") or 1) * task.passes for probe in task.spec.get("probes") or ()]
    return fields if task.queue is None else {**fields, "queue": task.queue}
