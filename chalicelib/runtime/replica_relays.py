"""Relays to replicas in networks that this server can't reach: a unix socket for each replica, whose connections are
joined to streams that the replica's agent dials.

A program that connects to the socket reaches the replica's port and needs to know nothing of streams. So that a request
doesn't wait for an agent to dial, some streams are dialled in reserve: two at first, more after a request found none,
fewer again later, and none after a minute without requests. The agent connects such a stream to the application when
its first byte arrives.

A host may have died silently: `connected` pings its agent, for requests that another replica can serve.

Everything runs on the event loop, without a task or a thread per connection: a side that doesn't read stops the other.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shutil
import socket
import tempfile
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import cast

from chalicelib.domain.serving import ServedReplica
from chalicelib.errors import Refused
from chalicelib.runtime.streams import StreamBroker, StreamEnd

log = logging.getLogger(__name__)

LONGEST_PATH = 107  # bytes of a unix socket's path
BACKLOG = 1024  # connections that wait to be accepted
BUFFER = 128 * 1024  # unsent bytes to a caller at which reading from the replica pauses
AT_FIRST, MOST_SPARE = 2, 32  # streams in reserve
PATIENCE = 10.0  # seconds that a request waits for a stream
FRESH = 2.0  # seconds of silence after which an agent is pinged
REMIND_EVERY = 0.5  # seconds between two reminders of an agent for which requests wait
REVIEW_EVERY = 15.0  # seconds between two reviews of the reserve
QUIET = 60.0  # seconds without a request after which no stream is held in reserve
CLOSE_AFTER = 600.0  # seconds after which an unused socket is closed


class ReplicaRelays:
    """The relays of all replicas, each created on first use. Used on the event loop, except for `remove`."""

    def __init__(self, streams: StreamBroker, notify_agents: Callable[[Iterable[str]], None], folder: Path) -> None:
        """`notify_agents`: ends the long polls of these instances' agents. `folder`: the server's data folder."""
        self._streams, self._notify_agents = streams, notify_agents
        self._server_folder = folder / "relays"
        self._folder: Path | None = None
        self._relays: dict[str, ReplicaRelay] = {}

    def socket_path(self, replica: ServedReplica) -> str:
        """The path of the unix socket at which this replica is reached."""
        relay = self._relays.get(replica.job_id)
        if relay is None or relay.closed:
            relay = ReplicaRelay(replica, self._place(replica.job_id), self._streams, self._notify_agents, self._closed)
            self._relays[replica.job_id] = relay
        relay.touch()
        return relay.path

    async def connected(self, replica: ServedReplica, patience: float) -> bool:
        """Whether the replica's agent has sent something just now, or does so within this many seconds."""
        self.socket_path(replica)
        return await self._relays[replica.job_id].connected(patience)

    def forget(self, job_id: str) -> None:
        """Close the relay of a job that is no replica any more, and end its connections."""
        relay = self._relays.get(job_id)
        if relay is not None:
            relay.close()
            self._streams.check_rights()

    def remove(self) -> None:
        """Remove all sockets, once the server has stopped."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _closed(self, relay: ReplicaRelay) -> None:
        if self._relays.get(relay.job_id) is relay:
            del self._relays[relay.job_id]

    def _place(self, job_id: str) -> str:
        name = hashlib.sha256(job_id.encode()).hexdigest()[:16]
        if self._folder is None:
            if len(os.fsencode(self._server_folder / name)) <= LONGEST_PATH:
                shutil.rmtree(self._server_folder, ignore_errors=True)  # of a server that was killed
                self._server_folder.mkdir(mode=0o700)
                self._folder = self._server_folder
            else:
                self._folder = Path(tempfile.mkdtemp(prefix="dstack-"))
        return str(self._folder / name)


class ReplicaRelay:
    """A replica's socket, the streams that wait for a caller, and the callers that wait for a stream."""

    def __init__(
        self,
        replica: ServedReplica,
        path: str,
        streams: StreamBroker,
        notify_agents: Callable[[Iterable[str]], None],
        closed: Callable[[ReplicaRelay], None],
    ) -> None:
        self.job_id, self.path, self.closed = replica.job_id, path, False
        self._instance_id, self._streams = replica.instance_id, streams
        self._notify_agents, self._on_close = notify_agents, closed
        self._order = {"task": replica.job_id, "target": f"port:{replica.port}", "lazily": True}
        self._loop = asyncio.get_running_loop()
        self._last_used = self._last_shortage = self._loop.time()
        self._last_received, self._received = float("-inf"), asyncio.Event()
        self._reserve, self._had_stream = AT_FIRST, False  # `_reserve`: streams to hold ready
        self._spare: deque[RelayStream] = deque()
        self._waiting: deque[RelayCaller] = deque()
        self._callers: set[RelayCaller] = set()
        self._dialling: set[asyncio.Task[bool]] = set()
        self._last_refusal = float("-inf")  # when a refusal was last logged
        self._reminder: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None
        self._socket = _listening(path)
        self._serving = self._loop.create_task(self._serve())
        self._review_timer = self._loop.call_later(REVIEW_EVERY, self._review)

    def touch(self) -> None:
        """Prepare for a connection that is about to be made."""
        self._last_used = self._loop.time()
        self._reserve = max(1, self._reserve)
        if not self._spare and not self._dialling:
            self._fill()

    async def connected(self, patience: float) -> bool:
        """Whether data has just arrived from the agent, or does so in time. An agent without a stream is dialling."""
        lines = [*self._spare, *(caller.line for caller in self._callers if caller.line is not None)]
        if lines and self._loop.time() - self._last_received < FRESH:
            return True
        self._received.clear()
        for line in lines:
            line.ping()
        try:
            await asyncio.wait_for(self._received.wait(), patience)
        except TimeoutError:
            return False
        return True

    def on_data(self) -> None:
        """Data has arrived from the agent."""
        self._last_received = self._loop.time()
        self._received.set()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._on_close(self)
        self._review_timer.cancel()
        self._serving.cancel()
        if self._server is not None:
            self._server.close()
        self._socket.close()
        Path(self.path).unlink(missing_ok=True)
        for task in tuple(self._dialling):
            task.cancel()
        while self._spare:
            self._spare.popleft().give_up()
        for caller in tuple(self._callers):
            caller.leave()

    async def _serve(self) -> None:
        self._server = await self._loop.create_unix_server(
            lambda: RelayCaller(self), sock=self._socket, backlog=BACKLOG
        )

    # --- callers ------------------------------------------------------------------------------------------------------

    def add_caller(self, caller: RelayCaller) -> None:
        self._callers.add(caller)
        self._last_used = self._loop.time()
        if self._spare:
            caller.join(self._spare.popleft())
        else:
            self._waiting.append(caller)
            if self._had_stream:  # else the first ones are on their way
                self._last_shortage = self._last_used
                self._reserve = min(MOST_SPARE, max(AT_FIRST, 2 * self._reserve))
            caller.patience = self._loop.call_later(PATIENCE, caller.leave)
            self._schedule_reminder()
        self._fill()

    def remove_caller(self, caller: RelayCaller) -> None:
        self._callers.discard(caller)
        if caller.line is None and caller in self._waiting:
            self._waiting.remove(caller)

    # --- streams ------------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Have as many streams dialled as callers wait for, and as the reserve lacks."""
        missing = len(self._waiting) + self._reserve - len(self._spare) - len(self._dialling)
        if missing <= 0 or self.closed:
            return
        try:
            for _ in range(missing):
                self._dial()
        except Refused as refused:
            self._reject_waiting(refused)
        if self._dialling:
            self._notify_agents([self._instance_id])

    def _dial(self) -> None:
        """Raises Refused."""
        user = f"replica {self.job_id}"
        stream = self._streams.open(self._instance_id, user, self._order, lambda: not self.closed, plain=True)
        task = self._loop.create_task(self._streams.wait(stream, RelayStream(self), b""))
        self._dialling.add(task)
        task.add_done_callback(self._dialled)

    def _reject_waiting(self, refused: Refused) -> None:
        """Close the callers that wait, except those whose stream is being dialled: the server has no more streams."""
        now = self._loop.time()
        if now - self._last_refusal >= REVIEW_EVERY:
            self._last_refusal = now
            log.warning("replica %s gets no more streams: %s", self.job_id, refused)
        for caller in [*self._waiting][len(self._dialling) :]:
            caller.leave()

    def _dialled(self, task: asyncio.Task[bool]) -> None:
        self._dialling.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a stream to replica %s failed", self.job_id, exc_info=task.exception())
        if self._waiting:
            self._fill()

    def ready(self, line: RelayStream) -> None:
        """Use a stream that has been dialled."""
        self._had_stream = True
        self.on_data()
        if self.closed:
            line.give_up()
        elif self._waiting:
            self._waiting.popleft().join(line)
        else:
            self._spare.append(line)

    def lost(self, line: RelayStream) -> None:
        """Replace a stream that ended unused; not at once, because its agent may have refused it."""
        if line in self._spare:
            self._spare.remove(line)
        self._loop.call_later(REMIND_EVERY, self._fill_if_used)

    def _fill_if_used(self) -> None:
        if self._waiting or self._loop.time() - self._last_used < QUIET:
            self._fill()

    def _schedule_reminder(self) -> None:
        if self._reminder is None:
            self._reminder = self._loop.call_later(REMIND_EVERY, self._remind)

    def _remind(self) -> None:
        """Notify the agent again: the order may have been in a response that was lost."""
        self._reminder = None
        if self._waiting and not self.closed:
            self._notify_agents([self._instance_id])
            self._schedule_reminder()

    def _review(self) -> None:
        now = self._loop.time()
        self._review_timer = self._loop.call_later(REVIEW_EVERY, self._review)
        if now - self._last_used >= CLOSE_AFTER and not self._callers:
            self.close()
            return
        if now - self._last_used >= QUIET:
            self._reserve = 0
        elif now - self._last_shortage >= QUIET and self._reserve > 1:
            self._reserve, self._last_shortage = self._reserve // 2, now
        while len(self._spare) > self._reserve:
            self._spare.popleft().give_up()


class RelayStream:
    """A stream and, once there is one, the caller that uses it. The stream sees it as the client's connection."""

    def __init__(self, relay: ReplicaRelay) -> None:
        self._relay = relay
        self._caller: RelayCaller | None = None
        self.end: StreamEnd | None = None
        self._loop = asyncio.get_running_loop()

    def used_by(self, caller: RelayCaller) -> None:
        self._caller = caller

    def give_up(self) -> None:
        """End a stream that is no longer needed."""
        if self.end is not None:
            self.end.lost()

    def ping(self) -> None:
        if self.end is not None:
            self.end.other.ping()

    def upgrade(self, head: bytes, end: StreamEnd) -> None:
        self.end, end.wire = end, self
        end.other.on_data = self._relay.on_data
        self._loop.call_soon(self._relay.ready, self)  # once the other end exists

    def write(self, data: bytes) -> None:
        if self._caller is not None:
            self._caller.write(data)

    def hold(self, hold: bool) -> None:
        if self._caller is not None:
            self._caller.hold(hold)

    def close(self) -> None:
        if self._caller is not None:
            self._caller.close()
        else:
            self._over()

    def leave(self) -> None:
        if self._caller is not None:
            self._caller.leave()
        else:
            self._over()

    def _over(self) -> None:
        self._loop.call_soon(self.give_up)
        self._relay.lost(self)


class RelayCaller(asyncio.Protocol):
    """A connection to the socket. Until it has a stream, only its first bytes are read."""

    def __init__(self, relay: ReplicaRelay) -> None:
        self._relay = relay
        self.line: RelayStream | None = None
        self.patience: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._early = b""

    def join(self, line: RelayStream) -> None:
        assert self._transport is not None and line.end is not None, "both are connected"
        if self.patience is not None:
            self.patience.cancel()
        self.line = line
        line.used_by(self)
        if self._early:
            early, self._early = self._early, b""
            self._transport.resume_reading()
            line.end.received(early)  # which may stop the reading again

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def hold(self, hold: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if hold:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def close(self) -> None:
        """Close once everything has been sent."""
        if self._transport is not None:
            self._transport.close()

    def leave(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # --- what the event loop calls ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's doesn't inherit from it
        self._transport.set_write_buffer_limits(high=BUFFER)
        self._relay.add_caller(self)

    def data_received(self, data: bytes) -> None:
        if self.line is not None and self.line.end is not None:
            self.line.end.received(data)
        elif self._transport is not None:
            self._early += data
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        if self.line is not None and self.line.end is not None:
            self.line.end.full(True)

    def resume_writing(self) -> None:
        if self.line is not None and self.line.end is not None:
            self.line.end.full(False)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.patience is not None:
            self.patience.cancel()
        self._relay.remove_caller(self)
        if self.line is not None:
            self.line.give_up()


def _listening(path: str) -> socket.socket:
    Path(path).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        Path(path).chmod(0o600)  # its folder lets nobody else in either
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
