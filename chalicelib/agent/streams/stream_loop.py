"""One thread for all streams: sockets that never block, and bounded buffers.

A stream connects a WebSocket with a socket of a job (`SocketStream`) or with its log (`log_stream`). While one side
doesn't read, the other isn't read either.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import os
import selectors
import socket
import ssl
import sys
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, List, Optional, Protocol, Set, Tuple

from ..kernel.networks import LOOPBACK
from .websocket import FAILED, LEAVING, NORMAL, Closed, Peer

READ = 64 * 1024  # bytes to read at once
FULL = 64 * 1024  # buffered bytes for one side, from which on the other side isn't read
CLOSE_SECONDS = 30.0  # to send the rest, and for the other side's close
SILENCE = 120.0  # seconds without a ping of the server, after which a stream ends; it sends one every 30
STALLED = 660.0  # seconds without progress on a side with a full buffer; the server gives up after 600
TICK = 5.0  # seconds between two checks of these limits

Handler = Callable[[int], None]


class Watched(Protocol):
    def check(self, now: float) -> None:
        """End the connection if it has exceeded a limit."""


class StreamLoop:
    """The thread, which starts with the first stream. Only `call` and `close` are for other threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        for end in (self._wake_reader, self._wake_writer):
            end.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, self._drain_wakeups)
        self._calls: Deque[Callable[[], None]] = deque()
        self._timers: List[Tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()  # of timers that are due at the same instant
        self._thread: Optional[threading.Thread] = None
        self._lock, self._closed = threading.Lock(), False
        self.streams: Set["StreamConnection"] = set()
        self.watched: Set[Watched] = set()  # other connections with time limits

    def call(self, action: Callable[[], None]) -> bool:
        """Run an action on the loop's thread. False if the loop is closed, and the action is dropped."""
        with self._lock:
            if self._closed:
                return False
            self._calls.append(action)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="streams", daemon=True)
                self._thread.start()
        self._wake()
        return True

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        """Run an action after some seconds. For the loop's thread."""
        heapq.heappush(self._timers, (self.clock() + seconds, next(self._order), action))

    def _wake(self) -> None:
        try:
            self._wake_writer.send(b"!")
        except OSError:
            return  # a wake-up is pending already, or the loop is closed

    def close(self) -> None:
        """End all streams and the thread, and wait for their end."""
        with self._lock:
            thread, self._closed = self._thread, True
        if thread is None:
            self._release_all()
            return
        self._wake()
        thread.join()

    def _release_all(self) -> None:
        while self._calls:
            self._guarded(self._calls.popleft())
        for stream in list(self.streams):
            self._guarded(stream.end)
        self._selector.close()
        for end in (self._wake_reader, self._wake_writer):
            end.close()

    def watch(self, sock: socket.socket, events: int, handler: Handler) -> None:
        """Call `handler` with those of these events that are ready; 0 removes the socket."""
        known = self._selector.get_map().get(sock) if sock.fileno() >= 0 else None
        if known is None and events:
            self._selector.register(sock, events, handler)
        elif known is not None and not events:
            self._selector.unregister(sock)
        elif known is not None and known.events != events:
            self._selector.modify(sock, events, handler)

    def _drain_wakeups(self, _: int) -> None:
        self._wake_reader.recv(4096)

    def _run(self) -> None:
        checked_at = self.clock()
        while not self._closed:
            self.turn(TICK if self.streams or self.watched else None)
            now = self.clock()
            if now - checked_at >= TICK:
                checked_at = now
                for each in [*self.streams, *self.watched]:
                    self._guarded(each.check, now)
        self._release_all()

    def turn(self, patience: Optional[float]) -> bool:
        """Wait for at most `patience` seconds, then handle everything that is ready. Returns whether a socket was."""
        if self._timers:
            timeout = max(0.0, self._timers[0][0] - self.clock())
            patience = timeout if patience is None else min(patience, timeout)
        ready = self._selector.select(patience)
        for key, events in ready:
            self._guarded(key.data, events)
        while self._timers and self._timers[0][0] <= self.clock():
            self._guarded(heapq.heappop(self._timers)[2])
        for _ in range(len(self._calls)):  # actions that these add wait for the next turn
            self._guarded(self._calls.popleft())
        return bool(ready)

    @staticmethod
    def _guarded(action: Callable[..., None], *arguments: float) -> None:
        """Run an action of one stream, whose failure must not end the others."""
        try:
            action(*arguments)
        except Exception as problem:
            print("streams: %r" % problem, file=sys.stderr, flush=True)


class Outgoing:
    """The send buffer of one socket."""

    def __init__(self, sock: Optional[socket.socket]) -> None:
        """`sock`: None until it is set with `to`."""
        self._sock: Any = sock
        self._parts: Deque[memoryview] = deque()
        self.size = self.sent = 0

    def to(self, sock: socket.socket) -> None:
        self._sock = sock

    def put(self, data: bytes) -> None:
        if data:
            self._parts.append(memoryview(data))
            self.size += len(data)

    def flush(self) -> None:
        """Send as much as the socket accepts. Raises OSError if it is broken."""
        while self._parts:
            try:
                sent = self._sock.send(self._parts[0])
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return
            self.size -= sent
            self.sent += sent
            if sent == len(self._parts[0]):
                self._parts.popleft()
            else:
                self._parts[0] = self._parts[0][sent:]

    def drop(self) -> None:
        self._parts.clear()
        self.size = 0


def receive(sock: socket.socket) -> Optional[bytes]:
    """Read what has arrived; None if nothing has, empty at the end."""
    try:
        return sock.recv(READ)
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return None


class StreamConnection:
    """The agent's end of a WebSocket. Subclasses connect it with a source by overriding the methods at the end."""

    def __init__(self, loop: StreamLoop, near: socket.socket, peer: Peer) -> None:
        near.setblocking(False)
        self._loop, self._near, self._peer = loop, near, peer
        self._out = Outgoing(near)
        self._cut = False  # the connection is broken
        self._received_at = self._moved = loop.clock()
        self._sent = 0  # bytes that both sides had accepted at the last check
        self._until: Optional[float] = None  # the deadline of an end that has begun
        self._over = False

    def begin(self, early: bytes = b"") -> None:
        """Start the stream, on the loop's thread. `early`: bytes that arrived with the handshake."""
        self._loop.streams.add(self)
        self._received_at = self._loop.clock()
        if early:
            self._take(early)
        self.step()

    def step(self) -> None:
        """Move the bytes that can be moved, and wait for more."""
        if self._over:
            return
        self.send()
        self.pump()
        if self._ending() and self._is_drained():
            self.end()
            return
        self._loop.watch(self._near, self._events(), self._ready)

    def close(self, closed: Closed) -> None:
        """Begin to end the stream, after the bytes that are buffered."""
        self._out.put(self._peer.close(*closed))
        self._begin_end()

    def check(self, now: float) -> None:
        if self.full():
            self._received_at = now  # nothing is read, so silence means nothing
        if self.sent() != self._sent or (self.has_room() and not self.full()):
            self._sent, self._moved = self.sent(), now
        late = self._until is not None and now >= self._until
        silent = self._until is None and self.alive_for and now - self._received_at >= self.alive_for
        if late or silent or now - self._moved >= STALLED:
            self.end()

    def end(self) -> None:
        """End the stream at once."""
        self._over = True
        self._loop.streams.discard(self)
        self._loop.watch(self._near, 0, self._ready)
        self._near.close()
        self.release()

    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_READ:
            self._read()
        self.step()

    def _read(self) -> None:
        try:
            data = receive(self._near)
            while data:
                self._take(data)
                data = receive(self._near) if isinstance(self._near, ssl.SSLSocket) and self._near.pending() else None
        except OSError:
            data = b""
        if data == b"":
            self._lost()

    def _take(self, data: bytes) -> None:
        self._received_at = self._loop.clock()
        parts, back = self._peer.receive(data)
        for part in parts:
            self.payload(part)
        if self._peer.closed is not None or self._out.size < FULL:
            self._out.put(back)
        if self._peer.closed is not None:
            self._begin_end()

    def send(self) -> None:
        """Send what is buffered for the WebSocket, as much as it accepts."""
        try:
            self._out.flush()
        except OSError:
            self._lost()

    def has_room(self) -> bool:
        return self._out.size < FULL

    def _lost(self) -> None:
        self._cut = True
        self._out.drop()
        self._begin_end()

    def _begin_end(self) -> None:
        if self._until is None:
            self._until = self._loop.clock() + CLOSE_SECONDS

    def _ending(self) -> bool:
        return self._until is not None

    def _is_drained(self) -> bool:
        """Has each side received everything?"""
        return (self._cut or (self._peer.closed is not None and not self._out.size)) and not self.has_undelivered()

    def _events(self) -> int:
        if self._cut:
            return 0
        reads = self._peer.closed is None and (not self.full() or self._peer.closing)
        return (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if self._out.size else 0)

    # For subclasses -------------------------------------------------------------------------------------------------

    dialled = True  # by the agent, for the server
    task = ""
    alive_for = SILENCE

    def pump(self) -> None:
        """Move bytes from the source while the WebSocket has room, and to it."""

    def payload(self, part: bytes) -> None:
        """Take bytes that the other side sent."""

    def full(self) -> bool:
        """Is so much undelivered that no more should be read?"""
        return False

    def has_undelivered(self) -> bool:
        """Are there bytes that arrived and aren't delivered yet?"""
        return False

    def sent(self) -> int:
        """The number of bytes that both sides have accepted."""
        return self._out.sent

    def release(self) -> None:
        """Release the source: the stream is over."""


class Refusal(StreamConnection):
    """A stream whose target can't be reached: it ends with the reason."""

    def __init__(self, loop: StreamLoop, near: socket.socket, peer: Peer, reason: str) -> None:
        super().__init__(loop, near, peer)
        self.close(Closed(FAILED, reason))


class SocketStream(StreamConnection):
    """A stream to a socket in the job's network."""

    def __init__(self, loop: StreamLoop, near: socket.socket, peer: Peer, far: Optional[socket.socket]) -> None:
        super().__init__(loop, near, peer)
        self._far, self._far_out, self._far_broken = far, Outgoing(far), False
        if far is not None:
            far.setblocking(False)

    def pump(self) -> None:
        if self._far is None:
            return
        try:
            self._far_out.flush()
        except OSError:
            self._break(Closed(LEAVING, "the job closed the connection"))
        events = 0
        if not self._far_broken:
            events |= selectors.EVENT_WRITE if self._far_out.size else 0
            events |= selectors.EVENT_READ if self.has_room() and not self._ending() else 0
        self._loop.watch(self._far, events, self._far_ready)

    def _far_ready(self, events: int) -> None:
        if events & selectors.EVENT_READ:
            self._read_far()
        self.step()

    def _read_far(self) -> None:
        assert self._far is not None, "it is watched"
        try:
            data = receive(self._far)
        except OSError:
            self._break(Closed(LEAVING, "the job's end of the connection broke"))
            return
        if data:
            self._out.put(self._peer.message(data))
        elif data == b"":
            self._break(Closed(NORMAL))

    def _break(self, closed: Closed) -> None:
        self._far_broken = True
        self._far_out.drop()
        self.close(closed)

    def payload(self, part: bytes) -> None:
        if not self._far_broken:
            self._far_out.put(part)

    def full(self) -> bool:
        return self._far_out.size >= FULL

    def has_undelivered(self) -> bool:
        return bool(self._far_out.size)

    def sent(self) -> int:
        return self._out.sent + self._far_out.sent

    def release(self) -> None:
        if self._far is not None:
            self._loop.watch(self._far, 0, self._far_ready)
            self._far.close()


class LazySocketStream(SocketStream):
    """A stream that is opened in advance. Its connection to the job is made for the first byte only, because an idle
    one would occupy an application that serves one connection at a time."""

    def __init__(
        self, loop: StreamLoop, near: socket.socket, peer: Peer, connecting: Callable[[int], socket.socket]
    ) -> None:
        """`connecting` starts a connection to an address of `networks.LOOPBACK`, by its index, or raises OSError."""
        super().__init__(loop, near, peer, None)
        self._connecting = connecting
        self._pending: Optional[socket.socket] = None
        self._begun = False

    def payload(self, part: bytes) -> None:
        super().payload(part)
        if not self._begun:
            self._begun = True
            self._try(0, None)

    def _try(self, place: int, problem: Optional[OSError]) -> None:
        if problem is not None and (problem.errno != errno.ECONNREFUSED or place >= len(LOOPBACK)):
            self._unreachable(problem)
            return
        try:
            self._pending = self._connecting(place)
        except OSError as found:
            self._try(place + 1, problem or found)  # a missing IPv6 isn't the reason to report
            return
        self._loop.watch(self._pending, selectors.EVENT_WRITE, lambda _: self._connected(place))

    def _connected(self, place: int) -> None:
        sock, self._pending = self._pending, None
        assert sock is not None, "it is watched"
        self._loop.watch(sock, 0, self._far_ready)
        number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            sock.close()
            self._try(place + 1, OSError(number, os.strerror(number)))
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._far = sock
            self._far_out.to(sock)
        self.step()

    def _unreachable(self, problem: OSError) -> None:
        refused = problem.errno == errno.ECONNREFUSED
        reason = "nothing listens there" if refused else problem.strerror or str(problem)
        self._break(Closed(FAILED, "the job's port can't be reached: %s" % reason))

    def release(self) -> None:
        if self._pending is not None:
            self._loop.watch(self._pending, 0, self._far_ready)
            self._pending.close()
        super().release()
