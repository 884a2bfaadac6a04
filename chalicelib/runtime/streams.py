"""Streams: bytes between a client and a job, over a connection that each end makes to this server.

A client's request becomes a ticket, which the next sync of the job's host carries to its agent; the agent dials, and
the two connections become WebSockets, each of which passes on what the other sends. A stream has no task and no thread,
and buffers no more than its two connections do: a side that doesn't read stops the other one.

A thread checks whether each stream's user still has the right to it, periodically and whenever somebody's rights have
changed; streams without a right are ended.

The number of streams is limited, and one user may have at most three quarters of them. A client waits some seconds for
the agent, and a ticket is valid a little longer.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

from chalicelib.agent.streams.websocket import LEAVING, Closed, Peer
from chalicelib.errors import Forbidden, Refused

if TYPE_CHECKING:
    from chalicelib.contract.agent import StreamOrder

log = logging.getLogger(__name__)
MOST = 4000
MOST_PASSED = 256  # orders from gateways that wait for one agent
PATIENCE = 15.0  # seconds that a client waits for the agent
TICKET_SECONDS = 30.0
RESEND_AFTER = 0.4  # seconds after which an unused ticket is sent once more: the response may have been lost
CLOSE_SECONDS = 60.0  # for the rest of what was sent, after one side has ended
PING_EVERY = 30.0  # seconds: less than proxies and NATs allow a silent connection
CHECK_RIGHTS_EVERY = 30.0  # seconds between two checks of the users' rights to their streams
_NO_TICKET = "This ticket isn't valid for a stream, or no longer is"
SILENCE = 600.0  # seconds without a byte or a pong after which a side counts as lost


class StreamWire(Protocol):
    """A client's or an agent's connection whose request has been read but not answered."""

    def upgrade(self, head: bytes, end: StreamEnd) -> None:
        """Send this response; from now on everything that arrives goes to the end."""

    def write(self, data: bytes) -> None: ...

    def hold(self, hold: bool) -> None:
        """Pause reading, or resume it."""

    def close(self) -> None:
        """Close once all has been sent."""

    def leave(self) -> None:
        """Close at once, even with data under way."""


@dataclass(eq=False)
class _Stream:
    """A stream from its request to its last byte."""

    id: str
    instance_id: str
    user: str
    ticket: str
    order: Mapping[str, Any]
    permitted: Callable[[], bool]
    opened: float
    plain: bool = False  # the client's connection is no WebSocket
    sent_at: float = float("-inf")
    claimed: bool = False
    here: asyncio.Event = field(default_factory=asyncio.Event)  # the client waits on the event loop
    client: tuple[StreamWire, bytes] | None = None  # with the head of the response that it waits for
    met: asyncio.Event = field(default_factory=asyncio.Event)
    pair: StreamPair | None = None


class StreamBroker:
    """All streams. `open`, `orders`, `pass_on` and `claim` may be called from any thread, `wait` and `meet` on the
    event loop."""

    def __init__(
        self,
        random_id: Callable[[], str],
        random_token: Callable[[], str],
        most: int = MOST,
        clock: Callable[[], float] = time.monotonic,
        in_thread: Callable[[Callable[[], list[_Stream]]], Awaitable[list[_Stream]]] = asyncio.to_thread,
    ) -> None:
        """`in_thread`: runs a call that may block."""
        self._in_thread = in_thread
        self._loop: asyncio.AbstractEventLoop | None = None  # that of the streams; unknown before there is one
        self._next_check: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self._check_again = False  # rights changed during the check that is under way
        self._random_id, self._random_token, self._most, self._clock = random_id, random_token, most, clock
        self._lock = threading.Lock()
        self._streams: dict[str, _Stream] = {}
        self._of_user: Counter[str] = Counter()
        self._passed: dict[str, deque[tuple[float, StreamOrder]]] = {}  # orders of gateways, by instance

    def __len__(self) -> int:
        return len(self._streams)

    # --- tickets, on any thread ---------------------------------------------------------------------------------------

    def open(
        self,
        instance_id: str,
        user: str,
        order: Mapping[str, Any],
        permitted: Callable[[], bool],
        *,
        plain: bool = False,
    ) -> str:
        """The id of a new stream that waits for its agent. `plain`: the client's connection is no WebSocket, it carries
        the bytes as they are. Raises Refused where there are too many."""
        now = self._clock()
        with self._lock:
            for old in [each for each in self._streams.values() if self._forgotten(each, now)]:
                self._drop(old)
            if len(self._streams) >= self._most or self._of_user[user] >= self._most - self._most // 4:
                whose = "you have" if len(self._streams) < self._most else "the server has"
                raise Refused(f"There are too many streams: {whose} all that are allowed.", hint="Close some first.")
            ticket = f"{instance_id}.{self._random_token()}"
            stream = _Stream(self._random_id(), instance_id, user, ticket, order, permitted, now, plain)
            self._streams[stream.id] = stream
            self._of_user[user] += 1
        return stream.id

    def orders(self, instance_id: str) -> list[StreamOrder]:
        """The streams that this instance's agent should dial, for its next response."""
        now = self._clock()
        with self._lock:
            found = [order for at, order in self._passed.pop(instance_id, ()) if now - at < TICKET_SECONDS]
            for each in self._streams.values():
                due = not each.claimed and now - each.sent_at >= RESEND_AFTER and now - each.opened < TICKET_SECONDS
                if due and each.instance_id == instance_id:
                    each.sent_at = now
                    found.append(cast("StreamOrder", {"id": each.id, "ticket": each.ticket, **each.order}))
        return found

    def pass_on(self, instance_id: str, order: StreamOrder) -> None:
        """Have this instance's agent dial a gateway. The order is sent once: a gateway repeats its request itself."""
        with self._lock:
            waiting = self._passed.setdefault(instance_id, deque(maxlen=MOST_PASSED))
            waiting.append((self._clock(), order))

    def claim(self, stream_id: str, ticket: str) -> None:
        """Admit an agent that dials. A ticket is valid once. Raises Forbidden."""
        with self._lock:
            found = self._streams.get(stream_id)
            good = found is not None and hmac.compare_digest(found.ticket.encode(), ticket.encode())
            if found is None or not good or found.claimed or self._clock() - found.opened >= TICKET_SECONDS:
                raise Forbidden(_NO_TICKET)
            found.claimed = True
        if not self._is_permitted(found):  # the right was lost since the stream was opened
            raise Forbidden(_NO_TICKET)

    def _forgotten(self, each: _Stream, now: float) -> bool:
        """Whether its client left before it began to wait."""
        return each.client is None and now - each.opened >= TICKET_SECONDS

    def _drop(self, stream: _Stream) -> None:
        if self._streams.pop(stream.id, None) is not None:
            self._of_user[stream.user] -= 1
            if not self._of_user[stream.user]:
                del self._of_user[stream.user]

    # --- connections, on the event loop -------------------------------------------------------------------------------

    async def wait(self, stream_id: str, wire: StreamWire, head: bytes, patience: float = PATIENCE) -> bool:
        """Wait for the agent. True: it came in time, and the client's connection belongs to the stream now."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return False
        stream.client = (wire, head)
        stream.here.set()
        try:
            await asyncio.wait_for(stream.met.wait(), patience)
        except TimeoutError:
            return stream.met.is_set()
        finally:
            if not stream.met.is_set():
                self._ended(stream)
        return True

    async def meet(self, stream_id: str, wire: StreamWire, head: bytes) -> bool:
        """Connect an agent that has claimed the stream to its client. False: the client has left."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return False
        with suppress(TimeoutError):  # short: the client's task is about to set `here`, or has ended
            await asyncio.wait_for(stream.here.wait(), PATIENCE)
        client = stream.client
        if stream.id not in self._streams or client is None:
            self._ended(stream)
            return False
        stream.met.set()
        self._loop = asyncio.get_running_loop()
        stream.pair = StreamPair(client, (wire, head), lambda: self._ended(stream), plain=stream.plain)
        self._schedule_check()
        return True

    def check_rights(self) -> None:
        """Check now, because somebody may have lost a right. May be called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._check_soon)

    def _check_soon(self) -> None:
        if isinstance(self._next_check, asyncio.Task):
            self._check_again = True  # it may have read the rights already
        elif self._streams:
            if self._next_check is not None:
                self._next_check.cancel()
            self._start_check()

    def _schedule_check(self) -> None:
        if self._next_check is None and self._streams:
            self._next_check = asyncio.get_running_loop().call_later(CHECK_RIGHTS_EVERY, self._start_check)

    def _start_check(self) -> None:
        self._next_check = asyncio.create_task(self._check())

    async def _check(self) -> None:
        """End the streams of users who have lost the right."""
        try:
            for each in await self._in_thread(self._revoked):
                if each.pair is not None:
                    each.pair.leave("you may reach this job no longer")
        except Exception:
            log.exception("checking the rights to streams failed; trying again")
        self._next_check = None
        if self._check_again:
            self._check_again = False
            self._start_check()
        else:
            self._schedule_check()

    def _revoked(self) -> list[_Stream]:
        return [each for each in list(self._streams.values()) if each.pair is not None and not self._is_permitted(each)]

    def _is_permitted(self, stream: _Stream) -> bool:
        """A stream whose right can't be determined goes on until the next check, and doesn't affect the others."""
        try:
            return stream.permitted()
        except Exception:
            log.exception("checking the right to stream %s failed; trying again", stream.id)
            return True

    def _ended(self, stream: _Stream) -> None:
        with self._lock:
            self._drop(stream)


class StreamPair:
    """The two ends of a stream. When one ends, the other is ended too."""

    def __init__(
        self,
        client: tuple[StreamWire, bytes],
        agent: tuple[StreamWire, bytes],
        ended: Callable[[], None],
        *,
        plain: bool = False,
    ) -> None:
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        ends = (PlainEnd if plain else StreamEnd)(self, "client"), StreamEnd(self, "host")
        ends[0].other, ends[1].other = ends[1], ends[0]
        self._ends = set(ends)
        self._deadline: asyncio.TimerHandle | None = None
        for end, (wire, head) in zip(ends, (client, agent), strict=True):
            wire.upgrade(head, end)
        self._ping = self._loop.call_later(PING_EVERY, self._ping_all)

    def now(self) -> float:
        return self._loop.time()

    def closing(self) -> None:
        """One side has ended: bytes that were sent may still arrive for CLOSE_SECONDS."""
        if self._deadline is None and self._ends:
            self._deadline = self._loop.call_later(CLOSE_SECONDS, self.cut)

    def cut(self) -> None:
        for end in tuple(self._ends):
            end.wire.leave()

    def leave(self, reason: str) -> None:
        for end in tuple(self._ends):
            end.leave(reason)

    def left(self, end: StreamEnd) -> None:
        self._ends.discard(end)
        if not self._ends:
            self._ping.cancel()
            if self._deadline is not None:
                self._deadline.cancel()
            self._ended()

    def _ping_all(self) -> None:
        for end in tuple(self._ends):
            end.ping()
        self._ping = self._loop.call_later(PING_EVERY, self._ping_all)


class StreamEnd:
    """One side of a stream: handles the events of its connection."""

    other: StreamEnd
    wire: StreamWire  # its connection, once that is upgraded
    on_data: Callable[[], None] | None = None  # called whenever data has arrived

    def __init__(self, pair: StreamPair, name: str) -> None:
        self._pair, self._name, self._peer = pair, name, Peer(client=False)
        self._full = self._gone = self._held = False  # its peer reads too slowly; it is lost; we have paused reading it
        self._last_received = pair.now()

    def received(self, data: bytes) -> None:
        self._last_received = self._pair.now()
        if self.on_data is not None:
            self.on_data()
        parts, back = self._peer.receive(data)
        if parts:
            self.other.send(b"".join(parts))
        if back and (self._peer.closed or not self._full):
            self.wire.write(back)
        if self._peer.closed is not None:
            frame = (
                Closed(LEAVING, f"the {self._name} broke the protocol") if self._peer.violated else self._peer.closed
            )
            self.wire.close()
            self.other.finish(frame)

    def send(self, part: bytes) -> None:
        if not (self._gone or self._peer.closing):
            self.wire.write(self._peer.message(part))

    def finish(self, frame: Closed) -> None:
        """The other side is done: send the close frame after everything that it sent."""
        if not self._gone and not self._peer.closing:
            self.wire.write(self._peer.close(*frame))
            self._pair.closing()
            if self._held:  # its own close frame has to be read
                self._hold(False)

    def full(self, full: bool) -> None:
        """Its peer reads too slowly, or has caught up."""
        self._full = full
        self.other._hold(full)

    def _hold(self, hold: bool) -> None:
        if not self._gone:
            self._held = hold and not self._peer.closing
            self._last_received = self._pair.now()
            self.wire.hold(self._held)

    def ping(self) -> None:
        if not self._held and self._pair.now() - self._last_received >= SILENCE:
            self.wire.leave()
        elif not self._full and not self._peer.closing:
            self.wire.write(self._peer.ping())

    def leave(self, reason: str) -> None:
        """End it from this server."""
        self.finish(Closed(LEAVING, reason))

    def lost(self) -> None:
        if self._gone:
            return
        self._gone = True
        self.other.finish(Closed(LEAVING, f"the {self._name}'s connection was lost"))
        self._pair.left(self)


class PlainEnd(StreamEnd):
    """A side that is no WebSocket. It ends by closing its connection, without a reason."""

    def received(self, data: bytes) -> None:
        self.other.send(data)

    def send(self, part: bytes) -> None:
        if not self._gone:
            self.wire.write(part)

    def finish(self, frame: Closed) -> None:
        if not self._gone:
            self.wire.close()
            self._pair.closing()

    def _hold(self, hold: bool) -> None:
        if not self._gone:
            self.wire.hold(hold)

    def ping(self) -> None:
        """Do nothing: both ends of its connection are on this machine."""
