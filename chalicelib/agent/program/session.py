"""The agent's side of the protocol: what to send to the server, and when. No socket, no clock, no disk.

The caller reports events (`task_changed`, `log_grew`, `answered`, `failed`) and calls `next(now)`, which returns either
a Message to send at once or the time to call again. Simulation, load bench and the real agent run this class.

Rule 1. At most two messages are in flight: one *push* (wait 0, with a local change) and one *poll* (wait > 0, for the
        server's commands). A push can go out while a poll waits, so a local change never waits for the server.
Rule 2. Each message has the state of every task, so the next one makes up for a lost one; logs continue from the byte
        up to which the server has them.
Rule 3. States only move forward, a command goes to the runtime once per boot, and a removed task stays removed, so
        late, repeated and reordered responses are harmless.
Rule 4. No failure ends anything. Only `gone` ends the session, and `stop`, `abort` and `remove` end one task.
Rule 5. A message is within the server's limits (`limits`). If one is refused all the same, it isn't sent again as it
        was: first metrics, facts, health and texts are left out, and next the output; the states of tasks remain.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from typing import TYPE_CHECKING, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union, cast

from ..kernel.limits import (
    GPUS_MOST,
    LOG_BYTES,
    METRICS_MOST,
    RECORDS_A_READ,
    TAKEN_BACK_MOST,
    TASKS_BYTES,
    TASKS_MOST,
    TROUBLE_TEXT,
    TROUBLES_MOST,
    bare_report,
    clean_report,
    count_fitting,
    fit_report,
    valid_utf8,
)
from ..kernel.records import record
from .chunks import CHUNK_BYTES, Chunk
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

if TYPE_CHECKING:
    from ...contract.agent import (
        GatewayOrder,
        GatewayReport,
        HostFacts,
        LogBytes,
        MetricPoint,
        StreamOrder,
        SyncMessage,
        SyncReply,
        TaskOrder,
        TaskReport,
        Trouble,
    )

PROTOCOL = 1
STATES = ("preparing", "pulling", "running", "exited")
COALESCE = 0.25  # seconds that output may wait for more of it
BACKOFF_MOST = 60.0
TOMBSTONES = 4096
NEVER = float("inf")

Records = List[Tuple[int, bytes]]
LogReader = Callable[[str, int, int], Tuple[int, Records]]  # task, offset, limit -> first offset, records


PUT_TRIES = 3  # failed uploads in a row, after which output goes into messages: the store may be unreachable here
BOOTS_MOST = 3  # boot ids of one process: two agents of one machine must not displace each other for ever
STRENGTH = {"": 0, "stop": 1, "abort": 2, "remove": 3}


@record
class Message:
    seq: int
    body: SyncMessage
    wait: float
    credential: str
    revision: int
    sent_at: float
    logs: Dict[str, int]  # task -> the end of the output that this message carries or announces
    facts: bool = False
    troubles: Optional[Dict[Tuple[str, str], float]] = None
    chunk: Optional[Chunk] = None


@record
class _Task:
    report: TaskReport
    log_end: int = 0  # bytes on disk here
    sent: int = 0  # bytes sent, perhaps not answered yet
    held: int = 0  # bytes that the server has stored
    waiting_since: Optional[float] = None  # when the first byte after `sent` appeared
    requested: str = ""  # the strongest command so far
    rekeyed: str = ""  # the latest set of keys
    rerouted: str = ""  # the latest list of a router's workers
    stuck: int = 0  # consecutive messages that didn't move the server's cursor
    stuck_until: float = 0.0
    without_texts: bool = False  # the server refused the report with its texts

    def leaving(self) -> bool:
        """Has the server ordered its removal, which may wait for readers of its log? It isn't reported any more, or the
        server would repeat its order with every message; but a disk that isn't unmounted yet is still reported."""
        return self.requested == "remove" and self.report["state"] == "exited" and not self.report.get("held")

    def body(self, room: int) -> TaskReport:
        """The report for a message, in at most `room` bytes of JSON."""
        body: TaskReport = {**self.report, "log_end": self.log_end}
        return bare_report(body) if self.without_texts else fit_report(body, room)


class AgentSession:
    def __init__(
        self,
        instance: str,
        boot: str,
        credential: str,
        read_log: LogReader,
        agent: str = "",
        token: str = "",
        wait: float = 25.0,
        jitter: Callable[[], float] = lambda: 1.0,
        wall: Callable[[], int] = lambda: 0,
    ) -> None:
        """`wall` returns this machine's time in microseconds, right or wrong; the server relates other times to it."""
        self.instance, self.boot, self.agent = instance, boot, agent
        self.credential, self.token = credential or token, token
        self.ended = False
        self._read_log, self._wait, self._jitter, self._wall = read_log, wait, jitter, wall
        self._seq = 0
        self._tasks: Dict[str, _Task] = {}
        self._removed: OrderedDict[str, None] = OrderedDict()
        self._dialled: OrderedDict[str, None] = OrderedDict()  # ids of streams, which responses may repeat
        self._facts: Optional[HostFacts] = None
        self._facts_acknowledged = False
        self._troubles: Optional[Dict[Tuple[str, str], float]] = None  # (status, message) → when it was first found
        self._troubles_acknowledged = False
        self._interrupted_at: Optional[int] = None
        self._gateway: Optional[GatewayReport] = None
        self._metrics: List[MetricPoint] = []
        self._push: Optional[Message] = None
        self._poll: Optional[Message] = None
        self._boots = 1
        self._revision = 1  # counts local changes; the first message of a boot is one
        self._acked = 0
        self._answered = False  # this boot has had a response
        self._poll_at = 0.0
        self._retry_at = 0.0
        self._failures = 0
        self._unacceptable = 0  # consecutive messages that the server would never accept
        self._idle_polls = 0
        self._coalesce = COALESCE
        self._put_over: Optional[int] = None  # bytes of waiting output above which it is uploaded to the server's store
        self._put_failures = 0
        self._chunk: Optional[Chunk] = None  # the part that is being uploaded

    # Events -----------------------------------------------------------------------------------------------------

    def facts_changed(self, facts: HostFacts) -> None:
        facts = cast("HostFacts", valid_utf8(facts))
        if facts != self._facts:
            self._facts, self._facts_acknowledged = facts, False
            self._revision += 1

    def health_changed(self, troubles: Sequence[Tuple[str, str]], now: float) -> None:
        """Replace the machine's troubles, each a (status, message). Those that it had before keep their age."""
        before = self._troubles
        current = [(status, str(valid_utf8(message))[:TROUBLE_TEXT]) for status, message in troubles[:TROUBLES_MOST]]
        after = {each: (before or {}).get(each, now) for each in current}
        if before is None or after.keys() != before.keys():
            self._troubles, self._troubles_acknowledged = after, False
            if before is not None or after:  # a first report without troubles can wait for the next message
                self._revision += 1

    def interruption_announced(self, at: int) -> None:
        """The cloud will interrupt this machine at this time, by the machine's clock."""
        if at != self._interrupted_at:
            self._interrupted_at = at
            self._revision += 1

    def gateway_changed(self, report: Optional[GatewayReport]) -> None:
        """The state of this machine's gateway replica; None without one."""
        report = None if report is None else clean_report(report)
        if report != self._gateway:
            self._gateway = report
            self._revision += 1

    def task_changed(self, report: TaskReport) -> None:
        """A task's newest report. One with an earlier state is dropped: states never go back."""
        report = clean_report(report)
        known = self._tasks.get(report["id"])
        if known is None:
            self._tasks[report["id"]] = _Task(report)
        elif STATES.index(report["state"]) < STATES.index(known.report["state"]) or report == known.report:
            return
        else:
            known.report, known.without_texts = report, False
        self._revision += 1

    def task_removed(self, task: str) -> None:
        self._tasks.pop(task, None)
        if self._chunk is not None and self._chunk.task == task:
            self._chunk = None
        self._removed[task] = None
        while len(self._removed) > TOMBSTONES:
            self._removed.popitem(last=False)

    def hurry(self) -> None:
        """Send a message now, though nothing in it has changed and a poll may be waiting."""
        self._revision += 1

    def log_grew(self, task: str, end: int, now: float) -> None:
        known = self._tasks.get(task)
        if known and end > known.log_end:
            known.log_end = end
            if known.waiting_since is None and end > known.sent:
                known.waiting_since = now

    def log_shrank(self, task: str, end: int, now: float) -> None:
        """Output was dropped on this machine, so the log that the server will get is shorter. Its remainder may have
        grown since the last call."""
        known = self._tasks.get(task)
        if known:
            known.log_end = end
            if known.sent >= end:
                known.waiting_since = None
            elif known.waiting_since is None:
                known.waiting_since = now

    def put_done(self, chunk: Chunk, problem: str, now: float) -> None:
        """An upload has ended. The server is notified of a success at once; a part that failed is announced again."""
        if chunk is not self._chunk:
            return
        if not problem:
            chunk.stored, self._put_failures = True, 0
            self._revision += 1
            return
        self._put_failures += 1
        self._chunk = None
        task = self._tasks[chunk.task]
        self._rewind(task, task.held, now)
        task.stuck_until = now + min(BACKOFF_MOST, 2.0**self._put_failures)

    def measured(self, samples: List[MetricPoint]) -> None:
        """Add metrics to the next message; they never cause one."""
        trimmed: List[MetricPoint] = [
            {**each, "gpus": each["gpus"][:GPUS_MOST]} if "gpus" in each else each for each in samples
        ]
        self._metrics = (self._metrics + trimmed)[-METRICS_MOST:]

    def server_moved(self, now: float) -> None:
        """The server has a new address or the agent a new token: reset the back-off."""
        self._retry_at, self._failures, self._poll_at = now, 0, now

    def tasks(self) -> List[str]:
        return list(self._tasks)

    # Messages ---------------------------------------------------------------------------------------------------

    def next(self, now: float) -> Union[Message, float]:
        """A message to send now, or the time to call again (earlier after an event)."""
        if self.ended:
            return NEVER
        if now < self._retry_at:
            return self._retry_at
        if self._push is not None:
            return NEVER
        push_at = self._push_at()
        if push_at <= now:
            self._push = self._build(now, 0.0)
            return self._push
        if self._poll is not None:
            return push_at
        if self._poll_at <= now:
            self._poll = self._build(now, self._wait)
            return self._poll
        return min(push_at, self._poll_at)

    def _push_at(self) -> float:
        if self._revision > self._acked:
            return 0.0
        return min((self._log_at(task) for task in self._tasks.values()), default=NEVER)

    def _log_at(self, task: _Task) -> float:
        """The time to send a task's waiting output: at once if the task is over or the output is large."""
        if task.waiting_since is None or self._behind_chunk(task):
            return NEVER
        threshold = LOG_BYTES if self._put_over is None else CHUNK_BYTES
        hurry = task.report["state"] == "exited" or task.log_end - task.sent >= threshold
        return max(task.waiting_since + (0.0 if hurry else self._coalesce), task.stuck_until)

    def _large(self, task: _Task) -> bool:
        return self._put_over is not None and task.log_end - task.sent > self._put_over

    def _behind_chunk(self, task: _Task) -> bool:
        """Must a task's output wait for the upload in progress: because it follows that part, or is to be uploaded?"""
        return self._chunk is not None and (task.report["id"] == self._chunk.task or self._large(task))

    def _build(self, now: float, wait: float) -> Message:
        self._seq += 1
        body: SyncMessage = {
            "v": PROTOCOL,
            "instance": self.instance,
            "boot": self.boot,
            "seq": self._seq,
            "agent": self.agent,
            "at": self._wall(),
            "tasks": [],
            "logs": [],
            "metrics": [],
            "wait": wait,
        }
        message = Message(self._seq, body, wait, self.credential, self._revision, now, {})
        if self._interrupted_at is not None:
            body["taken_back_in"] = min(TAKEN_BACK_MOST, max(0.0, (self._interrupted_at - body["at"]) / 1e6))
        if self._gateway is not None:
            body["gateway"] = self._gateway
        if self._facts is not None and not self._facts_acknowledged:
            body["facts"], message.facts = self._facts, True
        if self._troubles is not None and not self._troubles_acknowledged:
            message.troubles = self._troubles
            body["health"] = [
                cast("Trouble", {"status": status, "message": text, "age": max(0, int(now - since))})
                for (status, text), since in self._troubles.items()
            ]
        listed = [task for task in self._tasks.values() if not task.leaving()]
        room = TASKS_BYTES // max(1, len(listed))
        body["tasks"] = [task.body(room) for task in listed]
        # Polls carry no logs, because the response that moves the cursor might wait. The first message of a boot
        # carries none either, because the server's cursor isn't known yet.
        body["logs"] = self._pick_logs(now, message) if wait == 0 and self._answered else []
        if wait == 0 and self._chunk is not None and (self._chunk.stored or message.chunk is self._chunk):
            message.chunk, message.logs[self._chunk.task] = self._chunk, self._chunk.end
            body["chunks"] = [self._chunk.fields()]
        count = count_fitting(self._metrics)
        body["metrics"], self._metrics = self._metrics[:count], self._metrics[count:]
        return message

    def _pick_logs(self, now: float, message: Message) -> List[LogBytes]:
        picked: List[LogBytes] = []
        budget, records_left = LOG_BYTES, RECORDS_A_READ
        waiting = [(self._log_at(task), name) for name, task in self._tasks.items() if task.waiting_since is not None]
        for at, name in sorted(waiting):
            task = self._tasks[name]
            if budget <= 0 or records_left <= 0 or (at > now and task.stuck_until > now) or self._behind_chunk(task):
                continue
            if self._large(task):
                self._announce(name, task, message, now)
                continue
            offset, records = self._read_log(name, task.sent, budget)
            size = sum(len(data) for _, data in records)
            budget, records_left = budget - size, records_left - len(records)
            task.sent = message.logs[name] = offset + size
            task.waiting_since = now if task.sent < task.log_end and size else None
            if size:
                encoded = [(at, base64.b64encode(data).decode("ascii")) for at, data in records]
                picked.append({"task": name, "offset": offset, "records": encoded})
        return picked

    def _announce(self, name: str, task: _Task, message: Message, now: float) -> None:
        offset, records = self._read_log(name, task.sent, CHUNK_BYTES)
        if not records:
            task.waiting_since = None
            return
        self._chunk = message.chunk = Chunk(name, offset, records)
        task.sent = self._chunk.end
        task.waiting_since = now if task.sent < task.log_end else None

    # Responses -------------------------------------------------------------------------------------------------

    def answered(self, message: Message, answer: SyncReply, now: float) -> List[Command]:
        self._release(message)
        self._failures, self._retry_at, self._answered, self._unacceptable = 0, now, True, 0
        self._acked = max(self._acked, message.revision)
        self._acknowledged(message)
        if answer.get("boot") == "past" and message.body["boot"] == self.boot and self._boots < BOOTS_MOST:
            self._renew_boot()
        commands: List[Command] = []
        if answer.get("credential"):
            self.credential = answer["credential"]
            commands.append(SaveCredential(self.credential))
        if answer.get("error") == "gone":
            self.ended = True
            return [*commands, End()]
        for cursor in answer.get("logs") or ():
            commands += self._log_held(message, cursor["task"], int(cursor["offset"]), now)
        commands += self._chunk_answered(message, answer, now)
        for order in answer.get("tasks") or ():
            commands += self._task_ordered(order)
        for stream in answer.get("streams") or ():
            commands += self._stream_ordered(stream)
        commands += self._gateway_ordered(message, answer.get("gateway"))
        self._coalesce = max(COALESCE, float(answer.get("log_every") or 0.0))
        over = answer.get("log_put")
        self._put_over = None if over is None or self._put_failures >= PUT_TRIES else int(over)
        self._plan_poll(message, float(answer.get("next_sync_in") or 0.0), bool(commands), now)
        return commands

    def _chunk_answered(self, message: Message, answer: SyncReply, now: float) -> List[Command]:
        """Upload the part that the message announced if the server gives an address. Otherwise it isn't needed: the
        server has it, or the log goes on elsewhere, as its cursor shows."""
        chunk = message.chunk
        if chunk is None or chunk is not self._chunk:
            return []
        if not chunk.stored:
            for order in answer.get("uploads") or ():
                if order["task"] == chunk.task:
                    return [PutLog(chunk, str(order["url"]), dict(order["headers"]))]
        self._chunk = None
        if all(cursor["task"] != chunk.task for cursor in answer.get("logs") or ()):
            task = self._tasks[chunk.task]
            self._rewind(task, task.held, now)
            task.stuck_until = now + BACKOFF_MOST  # the server doesn't know this task
        return []

    def _renew_boot(self) -> None:
        """Take a new boot id: the server's last message came from an earlier process, so it takes this one for old."""
        self._boots += 1
        self.boot = "%s-%d" % (self.boot.partition("-")[0], self._boots)
        self._facts_acknowledged = self._troubles_acknowledged = False
        self._revision += 1

    def failed(self, message: Message, problem: str, now: float, retry_after: float = 0.0) -> List[Command]:
        """A message had no usable response. `problem` is `refused` (401, 403: retried more slowly, and with the token
        if there is one), `unacceptable` (the message would never be accepted: it is reduced) or anything else."""
        self._release(message)
        if message.chunk is not None and message.chunk is self._chunk:
            self._chunk = None  # announced again, in case the server doesn't have it
        commands = self._spare(message) if problem == "unacceptable" else []
        for name in message.logs:
            if name in self._tasks:
                self._rewind(self._tasks[name], self._tasks[name].held, now)
        self._metrics = (message.body["metrics"] + self._metrics)[-METRICS_MOST:]
        if now < self._retry_at:
            return commands  # the other message failed just before: one outage counts once
        least = 1.0
        if problem == "refused":
            least = 5.0
            if self.token and message.credential == self.credential:
                self.credential, self.token = self.token, self.credential
        pause = min(BACKOFF_MOST, least * 2.0 ** min(self._failures, 16))
        self._failures += 1
        self._retry_at = now + max(retry_after, pause * self._jitter())
        self._poll_at = self._retry_at
        self._revision += 1  # the next message is a push, so that the server's return shows at once
        return commands

    def _spare(self, message: Message) -> List[Command]:
        """Drop all but the states of tasks from a refused message; the output, which matters most, the second time."""
        self._unacceptable += 1
        self._acknowledged(message)
        message.body["metrics"] = []
        if self._gateway is not None:
            self._gateway = {**self._gateway, "message": ""}
        for report in message.body["tasks"]:
            if report["id"] in self._tasks:
                self._tasks[report["id"]].without_texts = True
        if self._unacceptable < 2:
            return []
        begins = {chunk["task"]: chunk["offset"] for chunk in message.body["logs"]}
        return [Skip(name, begins[name], end) for name, end in message.logs.items() if name in begins]

    def _acknowledged(self, message: Message) -> None:
        """Don't send a message's facts and troubles again: the server has them, or would never accept them."""
        self._facts_acknowledged = self._facts_acknowledged or (message.facts and message.body["facts"] == self._facts)
        self._troubles_acknowledged = self._troubles_acknowledged or (
            message.troubles is not None and message.troubles is self._troubles
        )

    def _release(self, message: Message) -> None:
        if self._push is message:
            self._push = None
        elif self._poll is message:
            self._poll = None

    def _log_held(self, message: Message, name: str, offset: int, now: float) -> List[Command]:
        task = self._tasks.get(name)
        if task is None:
            return []
        advanced = offset > task.held
        carried = name in message.logs
        if carried or advanced:
            task.held = offset if carried else max(task.held, offset)
        if carried and offset < message.logs[name]:  # a gap, or the server couldn't store all of it
            self._rewind(task, offset, now)
        elif task.sent < task.held:
            self._rewind(task, task.held, now)
        if carried:
            task.stuck = 0 if advanced or offset >= message.logs[name] else task.stuck + 1
            task.stuck_until = now + min(BACKOFF_MOST, 2.0 ** (task.stuck - 1)) if task.stuck else 0.0
        return [Trim(name, task.held)] if advanced else []

    @staticmethod
    def _rewind(task: _Task, offset: int, now: float) -> None:
        task.sent = offset
        task.waiting_since = now if task.log_end > offset else None

    def _task_ordered(self, order: TaskOrder) -> List[Command]:
        name, want = order["id"], order["want"]
        if name in self._removed:
            return []  # a late response about a task that has ended and was removed
        task = self._tasks.get(name)
        if want == "run":
            if task is not None:
                return self._changes_ordered(name, task, order)
            if not order.get("spec") or len(self._tasks) >= TASKS_MOST:
                return []  # this machine has as many tasks as it may; the server will send this one again
            self._tasks[name] = _Task({"id": name, "state": "preparing"})
            self._revision += 1
            return [Start(name, order["spec"])]
        if task is None:
            return self._report_unknown(name, want)
        if STRENGTH.get(want, 0) <= STRENGTH[task.requested] or (task.report["state"] == "exited" and want != "remove"):
            return []
        task.requested = want
        if want == "stop":
            return [Stop(name, order.get("grace"))]
        return [Abort(name)] if want == "abort" else [Remove(name)]

    @staticmethod
    def _changes_ordered(name: str, task: _Task, order: TaskOrder) -> List[Command]:
        """Changes of the keys that may log in, and of a router's workers; each is passed on once."""
        found: List[Command] = []
        access, workers = order.get("access"), order.get("workers")
        if access is not None and access not in (task.rekeyed, task.report.get("access")):
            task.rekeyed = access
            found.append(Rekey(name, access, [str(key) for key in order.get("authorized_keys") or ()]))
        if workers is not None and workers not in (task.rerouted, task.report.get("workers")):
            task.rerouted = workers
            found.append(Reroute(name, workers, [str(url) for url in order.get("worker_urls") or ()]))
        return found

    def _stream_ordered(self, order: StreamOrder) -> List[Command]:
        if order["id"] in self._dialled or order["task"] not in self._tasks:
            return []
        self._dialled[order["id"]] = None
        while len(self._dialled) > TOMBSTONES:
            self._dialled.popitem(last=False)
        return [Dial(order)]

    def _gateway_ordered(self, message: Message, order: Optional[GatewayOrder]) -> List[Command]:
        """A response without a gateway removes this machine's, unless it answers a message from before the gateway."""
        if order is None:
            return [Carry(None)] if "gateway" in message.body else []
        carried: Mapping[str, object] = self._gateway or {}
        return [Carry(order)] if any(carried.get(name) != value for name, value in order.items()) else []

    def _report_unknown(self, name: str, want: str) -> List[Command]:
        """Report a task that never arrived here as ended; the server would wait for its end for ever."""
        if want in ("stop", "abort") and len(self._tasks) < TASKS_MOST:
            reason = "terminated_by_user" if want == "stop" else "aborted_by_user"
            self.task_changed({"id": name, "state": "exited", "reason": reason, "message": "never started here"})
        return []

    def _plan_poll(self, message: Message, next_sync_in: float, commanded: bool, now: float) -> None:
        if message.wait == 0:
            self._poll_at = now + next_sync_in
            return
        # A server that answers polls early and without commands must not be polled in a tight loop.
        early = not commanded and next_sync_in == 0 and now - message.sent_at < min(1.0, message.wait)
        self._idle_polls = self._idle_polls + 1 if early else 0
        pause = min(1.0, 0.01 * 2.0 ** (self._idle_polls - 1)) if self._idle_polls else 0.0
        self._poll_at = now + max(next_sync_in, pause)
