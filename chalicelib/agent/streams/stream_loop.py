"""One thread for the bytes of all streams: sockets that never block, and bounded buffers.

A stream is a WebSocket with something behind it: a socket of a job (`Joined`), or its output (`log_stream`). While one
side doesn't take what it gets, the other isn't read.
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

READ = 64 * 1024  # bytes that are read at once
FULL = 64 * 1024  # bytes that wait to be sent, from which on nothing more is read for that side
CLOSE_SECONDS = 30.0  # for the rest of what was sent, and the other side's close
SILENCE = 120.0  # seconds without a ping of the server, which sends one every 30
STALLED = 660.0  # seconds in which a side that has to take something takes nothing: the server gives up after 600
TICK = 5.0  # seconds between two looks at these limits

Handler = Callable[[int], None]


class Watched(Protocol):
    def check(self, now: float) -> None:
        """End what has lasted too long."""


class StreamLoop:
    """The thread, which starts with the first stream. `call` is for other threads; all else happens on this one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._ways = selectors.DefaultSelector()
        self._bell, self._ring = socket.socketpair()
        for end in (self._bell, self._ring):
            end.setblocking(False)
        self._ways.register(self._bell, selectors.EVENT_READ, self._answer)
        self._calls: Deque[Callable[[], None]] = deque()
        self._timers: List[Tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()  # of timers that are due at the same instant
        self._thread: Optional[threading.Thread] = None
        self._lock, self._closed = threading.Lock(), False
        self.streams: Set["StreamConnection"] = set()
        self.watched: Set[Watched] = set()  # what else has a time limit

    def call(self, action: Callable[[], None]) -> bool:
        """Have the thread do this. False: the loop is closed, and nobody will."""
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
        """Do this after a while. On the loop's thread."""
        heapq.heappush(self._timers, (self.clock() + seconds, next(self._order), action))

    def _wake(self) -> None:
        try:
            self._ring.send(b"!")
        except OSError:
            return  # it has been rung often enough, or is closed

    def close(self) -> None:
        """End all streams and the thread; returns when nothing is left."""
        with self._lock:
            thread, self._closed = self._thread, True
        if thread is None:
            self._let_go()
            return
        self._wake()
        thread.join()

    def _let_go(self) -> None:
        while self._calls:
            self._guarded(self._calls.popleft())
        for stream in list(self.streams):
            self._guarded(stream.end)
        self._ways.close()
        for end in (self._bell, self._ring):
            end.close()

    def watch(self, sock: socket.socket, events: int, handler: Handler) -> None:
        """Call `handler` with what is ready of these events; 0 forgets the socket."""
        known = self._ways.get_map().get(sock) if sock.fileno() >= 0 else None
        if known is None and events:
            self._ways.register(sock, events, handler)
        elif known is not None and not events:
            self._ways.unregister(sock)
        elif known is not None and known.events != events:
            self._ways.modify(sock, events, handler)

    def _answer(self, _: int) -> None:
        self._bell.recv(4096)

    def _run(self) -> None:
        looked = self.clock()
        while not self._closed:
            self.turn(TICK if self.streams or self.watched else None)
            now = self.clock()
            if now - looked >= TICK:
                looked = now
                for each in [*self.streams, *self.watched]:
                    self._guarded(each.check, now)
        self._let_go()

    def turn(self, patience: Optional[float]) -> bool:
        """Wait so long, do what is to be done. Was there anything?"""
        if self._timers:
            left = max(0.0, self._timers[0][0] - self.clock())
            patience = left if patience is None else min(patience, left)
        ready = self._ways.select(patience)
        for key, events in ready:
            self._guarded(key.data, events)
        while self._timers and self._timers[0][0] <= self.clock():
            self._guarded(heapq.heappop(self._timers)[2])
        for _ in range(len(self._calls)):  # what they call in turn waits until others had theirs
            self._guarded(self._calls.popleft())
        return bool(ready)

    @staticmethod
    def _guarded(action: Callable[..., None], *arguments: float) -> None:
        """A failure of one stream must not be the others'."""
        try:
            action(*arguments)
        except Exception as problem:
            print("streams: %r" % problem, file=sys.stderr, flush=True)


class Outgoing:
    """What waits to be sent on one socket."""

    def __init__(self, sock: Optional[socket.socket]) -> None:
        """`sock`: None if it isn't there yet (`to`)."""
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
        """Send what the socket takes. Raises OSError once it is broken."""
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
    """What has arrived; None if nothing has, empty at the end."""
    try:
        return sock.recv(READ)
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return None


class StreamConnection:
    """Our end of a WebSocket. What stands behind it overrides the methods without an underscore in the second part."""

    def __init__(self, loop: StreamLoop, near: socket.socket, peer: Peer) -> None:
        near.setblocking(False)
        self._loop, self._near, self._peer = loop, near, peer
        self._out = Outgoing(near)
        self._cut = False  # the connection is gone
        self._received_at = self._moved = loop.clock()
        self._sent = 0  # bytes that either side had taken at the last look
        self._until: Optional[float] = None  # when an end that was begun is an end
        self._over = False

    def begin(self, early: bytes = b"") -> None:
        """On the loop's thread. `early`: what arrived behind the handshake."""
        self._loop.streams.add(self)
        self._received_at = self._loop.clock()
        if early:
            self._take(early)
        self.step()

    def step(self) -> None:
        """Move what can be moved, and wait for the rest."""
        if self._over:
            return
        self.send()
        self.pump()
        if self._ending() and self._settled():
            self.end()
            return
        self._loop.watch(self._near, self._wanted(), self._ready)

    def close(self, said: Closed) -> None:
        """End after all that was sent before."""
        self._out.put(self._peer.close(*said))
        self._begin_end()

    def check(self, now: float) -> None:
        if self.full():
            self._received_at = now  # we don't listen, and so hear of no end either
        if self.sent() != self._sent or (self.has_room() and not self.full()):
            self._sent, self._moved = self.sent(), now
        late = self._until is not None and now >= self._until
        silent = self._until is None and self.alive_for and now - self._received_at >= self.alive_for
        if late or silent or now - self._moved >= STALLED:
            self.end()

    def end(self) -> None:
        """Leave nothing behind."""
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
        """What waits for the WebSocket, as far as it takes it."""
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

    def _settled(self) -> bool:
        """Has each side all that was sent to it?"""
        return (self._cut or (self._peer.closed is not None and not self._out.size)) and not self.owes()

    def _wanted(self) -> int:
        if self._cut:
            return 0
        reads = self._peer.closed is None and (not self.full() or self._peer.closing)
        return (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if self._out.size else 0)

    # What stands behind it ------------------------------------------------------------------------------------------

    dialled = True  # by us, for the server
    task = ""  # whose stream it is
    alive_for = SILENCE

    def pump(self) -> None:
        """Move what waits behind it, while the WebSocket has room."""

    def payload(self, part: bytes) -> None:
        """What the other side sent."""

    def full(self) -> bool:
        """Is so much waiting to be taken that no more should arrive?"""
        return False

    def owes(self) -> bool:
        """Does something that arrived still wait to be taken?"""
        return False

    def sent(self) -> int:
        """Bytes that either side has taken."""
        return self._out.sent

    def release(self) -> None:
        """It is over."""


class Refusal(StreamConnection):
    """A stream whose target can't be reached: it says why, and ends."""

    def __init__(self, loop: StreamLoop, near: socket.socket, peer: Peer, reason: str) -> None:
        super().__init__(loop, near, peer)
        self.close(Closed(FAILED, reason))


class Joined(StreamConnection):
    """A stream to a socket of the job."""

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
        wanted = 0
        if not self._far_broken:
            wanted |= selectors.EVENT_WRITE if self._far_out.size else 0
            wanted |= selectors.EVENT_READ if self.has_room() and not self._ending() else 0
        self._loop.watch(self._far, wanted, self._far_ready)

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

    def _break(self, said: Closed) -> None:
        self._far_broken = True
        self._far_out.drop()
        self.close(said)

    def payload(self, part: bytes) -> None:
        if not self._far_broken:
            self._far_out.put(part)

    def full(self) -> bool:
        return self._far_out.size >= FULL

    def owes(self) -> bool:
        return bool(self._far_out.size)

    def sent(self) -> int:
        return self._out.sent + self._far_out.sent

    def release(self) -> None:
        if self._far is not None:
            self._loop.watch(self._far, 0, self._far_ready)
            self._far.close()


class Deferred(Joined):
    """A stream that waits for somebody to use it. Its socket of the job is opened for the first byte: an application
    that serves one connection after the other must not be kept busy by one on which nothing comes."""

    def __init__(
        self, loop: StreamLoop, near: socket.socket, peer: Peer, connecting: Callable[[int], socket.socket]
    ) -> None:
        """`connecting`: a connection on its way to a place of `networks.LOOPBACK`. Raises OSError."""
        super().__init__(loop, near, peer, None)
        self._connecting = connecting
        self._coming: Optional[socket.socket] = None
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
            self._coming = self._connecting(place)
        except OSError as found:
            self._try(place + 1, problem or found)  # that there is no IPv6 here tells nobody anything
            return
        self._loop.watch(self._coming, selectors.EVENT_WRITE, lambda _: self._came(place))

    def _came(self, place: int) -> None:
        coming, self._coming = self._coming, None
        assert coming is not None, "it is watched"
        self._loop.watch(coming, 0, self._far_ready)
        number = coming.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            coming.close()
            self._try(place + 1, OSError(number, os.strerror(number)))
        else:
            coming.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._far = coming
            self._far_out.to(coming)
        self.step()

    def _unreachable(self, problem: OSError) -> None:
        refused = problem.errno == errno.ECONNREFUSED
        words = "nothing listens there" if refused else problem.strerror or str(problem)
        self._break(Closed(FAILED, "the job's port can't be reached: %s" % words))

    def release(self) -> None:
        if self._coming is not None:
            self._loop.watch(self._coming, 0, self._far_ready)
            self._coming.close()
        super().release()
