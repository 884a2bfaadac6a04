"""The way to a replica whose network this server doesn't share: a unix socket, whose connections our side joins to
streams that the replica's agent dials.

Whoever connects there finds the replica's port at the other end, and needs to know nothing of streams. So that a
request doesn't wait for an agent to dial, some streams are dialled before anybody asks: two at first, more after a
request found none, fewer again later, and none once nobody has come for a minute. The agent connects such a stream to
the application when its first byte comes.

A host may have died without a word: `connected` asks its agent for a sign, for requests that another replica can have.

All this is on the event loop, without a task or a thread for a connection: what one side doesn't read stops the other.
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

LONGEST_PATH = 107  # bytes of a unix socket's place
BACKLOG = 1024  # connections that wait to be accepted
BUFFER = 128 * 1024  # bytes to a caller from which on its other end isn't read
AT_FIRST, MOST_SPARE = 2, 32  # streams that wait for a request
PATIENCE = 10.0  # seconds that a request waits for a stream
FRESH = 2.0  # seconds of silence after which an agent is asked for a sign
RING_AGAIN = 0.5  # seconds between two reminders of an agent for which requests wait
LOOK_EVERY = 15.0
QUIET = 60.0  # seconds without a request after which no stream waits for one
UNUSED = 600.0  # seconds after which a socket that nobody asks for is closed


class ReplicaRelays:
    """One a replica, made when it is asked for. On the event loop, but for `remove`."""

    def __init__(self, streams: StreamBroker, news: Callable[[Iterable[str]], None], folder: Path) -> None:
        """`news`: lets the agents of these instances know that there is some. `folder`: the server's own."""
        self._streams, self._news = streams, news
        self._own = folder / "relays"
        self._folder: Path | None = None
        self._relays: dict[str, ReplicaRelay] = {}

    def way(self, replica: ServedReplica) -> str:
        """The unix socket on which this replica is reached."""
        relay = self._relays.get(replica.job_id)
        if relay is None or relay.closed:
            relay = ReplicaRelay(replica, self._place(replica.job_id), self._streams, self._news, self._closed)
            self._relays[replica.job_id] = relay
        relay.asked()
        return relay.path

    async def connected(self, replica: ServedReplica, patience: float) -> bool:
        """Does the replica's agent give a sign within so many seconds, or has it just given one?"""
        self.way(replica)
        return await self._relays[replica.job_id].connected(patience)

    def forget(self, job_id: str) -> None:
        """It is no replica of a service any more: nobody is let through, and what is under way ends."""
        relay = self._relays.get(job_id)
        if relay is not None:
            relay.close()
            self._streams.look()

    def remove(self) -> None:
        """The server has stopped: leave no sockets behind."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _closed(self, relay: ReplicaRelay) -> None:
        if self._relays.get(relay.job_id) is relay:
            del self._relays[relay.job_id]

    def _place(self, job_id: str) -> str:
        name = hashlib.sha256(job_id.encode()).hexdigest()[:16]
        if self._folder is None:
            if len(os.fsencode(self._own / name)) <= LONGEST_PATH:
                shutil.rmtree(self._own, ignore_errors=True)  # of a server that was killed
                self._own.mkdir(mode=0o700)
                self._folder = self._own
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
        news: Callable[[Iterable[str]], None],
        closed: Callable[[ReplicaRelay], None],
    ) -> None:
        self.job_id, self.path, self.closed = replica.job_id, path, False
        self._instance_id, self._streams, self._news, self._told = replica.instance_id, streams, news, closed
        self._order = {"task": replica.job_id, "target": f"port:{replica.port}", "lazily": True}
        self._loop = asyncio.get_running_loop()
        self._asked = self._short = self._loop.time()
        self._heard, self._sign = float("-inf"), asyncio.Event()
        self._wanted, self._begun = AT_FIRST, False  # streams to have in reserve; there was one
        self._spare: deque[RelayStream] = deque()
        self._waiting: deque[RelayCaller] = deque()
        self._callers: set[RelayCaller] = set()
        self._dialling: set[asyncio.Task[bool]] = set()
        self._refused = float("-inf")  # when that was last told
        self._reminder: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None
        self._socket = _listening(path)
        self._serving = self._loop.create_task(self._serve())
        self._look = self._loop.call_later(LOOK_EVERY, self._look_now)

    def asked(self) -> None:
        """Somebody is about to connect."""
        self._asked = self._loop.time()
        self._wanted = max(1, self._wanted)
        if not self._spare and not self._dialling:
            self._fill()

    async def connected(self, patience: float) -> bool:
        """Has something come from the agent just now, or does it within this time? One without a stream is dialling."""
        lines = [*self._spare, *(caller.line for caller in self._callers if caller.line is not None)]
        if lines and self._loop.time() - self._heard < FRESH:
            return True
        self._sign.clear()
        for line in lines:
            line.ping()
        try:
            await asyncio.wait_for(self._sign.wait(), patience)
        except TimeoutError:
            return False
        return True

    def heard(self) -> None:
        """Something has come from the agent."""
        self._heard = self._loop.time()
        self._sign.set()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._told(self)
        self._look.cancel()
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

    def came(self, caller: RelayCaller) -> None:
        self._callers.add(caller)
        self._asked = self._loop.time()
        if self._spare:
            caller.join(self._spare.popleft())
        else:
            self._waiting.append(caller)
            if self._begun:  # else the first ones are on their way
                self._short = self._asked
                self._wanted = min(MOST_SPARE, max(AT_FIRST, 2 * self._wanted))
            caller.patience = self._loop.call_later(PATIENCE, caller.leave)
            self._remind_later()
        self._fill()

    def left(self, caller: RelayCaller) -> None:
        self._callers.discard(caller)
        if caller.line is None and caller in self._waiting:
            self._waiting.remove(caller)

    # --- streams ------------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Have as many streams dialled as are waited for, and as should be in reserve."""
        missing = len(self._waiting) + self._wanted - len(self._spare) - len(self._dialling)
        if missing <= 0 or self.closed:
            return
        try:
            for _ in range(missing):
                self._dial()
        except Refused as refused:
            self._turn_away(refused)
        if self._dialling:
            self._news([self._instance_id])

    def _dial(self) -> None:
        """Raises Refused."""
        who = f"replica {self.job_id}"
        stream = self._streams.open(self._instance_id, who, self._order, lambda: not self.closed, plain=True)
        task = self._loop.create_task(self._streams.wait(stream, RelayStream(self), b""))
        self._dialling.add(task)
        task.add_done_callback(self._dialled)

    def _turn_away(self, refused: Refused) -> None:
        """The server has no more streams: who waits leaves, but for those whose stream is on its way."""
        now = self._loop.time()
        if now - self._refused >= LOOK_EVERY:
            self._refused = now
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
        """A stream is there."""
        self._begun = True
        self.heard()
        if self.closed:
            line.give_up()
        elif self._waiting:
            self._waiting.popleft().join(line)
        else:
            self._spare.append(line)

    def lost(self, line: RelayStream) -> None:
        """A stream that nobody used has ended. Not at once another: its agent may have refused it."""
        if line in self._spare:
            self._spare.remove(line)
        self._loop.call_later(RING_AGAIN, self._fill_if_used)

    def _fill_if_used(self) -> None:
        if self._waiting or self._loop.time() - self._asked < QUIET:
            self._fill()

    def _remind_later(self) -> None:
        if self._reminder is None:
            self._reminder = self._loop.call_later(RING_AGAIN, self._remind)

    def _remind(self) -> None:
        """An order may have been in a response that was lost."""
        self._reminder = None
        if self._waiting and not self.closed:
            self._news([self._instance_id])
            self._remind_later()

    def _look_now(self) -> None:
        now = self._loop.time()
        self._look = self._loop.call_later(LOOK_EVERY, self._look_now)
        if now - self._asked >= UNUSED and not self._callers:
            self.close()
            return
        if now - self._asked >= QUIET:
            self._wanted = 0
        elif now - self._short >= QUIET and self._wanted > 1:
            self._wanted, self._short = self._wanted // 2, now
        while len(self._spare) > self._wanted:
            self._spare.popleft().give_up()


class RelayStream:
    """A stream, and the caller who uses it once there is one. To the stream it is the client's connection."""

    def __init__(self, relay: ReplicaRelay) -> None:
        self._relay = relay
        self._caller: RelayCaller | None = None
        self.end: StreamEnd | None = None
        self._loop = asyncio.get_running_loop()

    def used_by(self, caller: RelayCaller) -> None:
        self._caller = caller

    def give_up(self) -> None:
        """Nobody needs it."""
        if self.end is not None:
            self.end.lost()

    def ping(self) -> None:
        if self.end is not None:
            self.end.other.ping()

    def upgrade(self, head: bytes, end: StreamEnd) -> None:
        self.end, end.wire = end, self
        end.other.hears = self._relay.heard
        self._loop.call_soon(self._relay.ready, self)  # once its other end is there, too

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
    """A connection to the socket. Until there is a stream for it, no more is read of it than comes at first."""

    def __init__(self, relay: ReplicaRelay) -> None:
        self._relay = relay
        self.line: RelayStream | None = None
        self.patience: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._early = b""

    def join(self, line: RelayStream) -> None:
        assert self._transport is not None and line.end is not None, "both are there"
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
        """Once all has been sent."""
        if self._transport is not None:
            self._transport.close()

    def leave(self) -> None:
        """At once."""
        if self._transport is not None:
            self._transport.abort()

    # --- what the event loop calls ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._transport.set_write_buffer_limits(high=BUFFER)
        self._relay.came(self)

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
        self._relay.left(self)
        if self.line is not None:
            self.line.give_up()


def _listening(path: str) -> socket.socket:
    Path(path).unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.bind(path)
        Path(path).chmod(0o600)  # its folder lets nobody else in either
        made.listen(BACKLOG)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made
