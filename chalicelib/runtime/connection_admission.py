"""Admission of connections to the embedded server.

A connection costs a descriptor, and a server without descriptors is dead: it can't accept, read a file or open its
database. So there are fewer connections than descriptors, and idle ones are closed to make room for new ones: first
strangers, whose token hasn't been recognised yet, then others, the longest idle first. The number of waiting strangers
per address is limited. If every connection is busy, new ones wait in the listening socket's queue.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from collections import Counter, OrderedDict
from collections.abc import Callable, Container
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

RESERVE = 128  # descriptors for the database, logs, archives, standard streams and the local agent
MOST = 16_384  # connections, however many descriptors there are: each costs some 20 KB
UNASKED, ENOUGH = 1024, 4096  # descriptors: the usual soft limit, and enough for some hundred streams
AT_ONCE = 16  # connections accepted in a row before existing ones get their turn
RETRY = 1.0  # seconds after which a failed accept is tried again
SELDOM = 60.0  # seconds between two log lines about the same thing
HANDSHAKE_SECONDS, GOODBYE_SECONDS = 10.0, 5.0  # for a client of TLS to agree on keys, and to agree to the end
_NO_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def enough(soft: int, hard: int) -> int:
    """The limit of descriptors to use. 1024 is the default of most systems; any other value has been set on purpose."""
    if soft != UNASKED:
        return soft
    return ENOUGH if hard == resource.RLIM_INFINITY else min(ENOUGH, hard)


def raise_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if (wanted := enough(soft, hard)) != soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_connections(descriptors: int) -> int:
    """How many connections a process with this many descriptors may have."""
    if descriptors == resource.RLIM_INFINITY:
        return MOST
    return max(1, min(MOST, descriptors - min(RESERVE, descriptors // 2)))


def doors_share(connections: int) -> int:
    """The number of these for requests to services: each needs another one from here to a replica."""
    return max(1, connections // 3)


class Guest(Protocol):
    """A connection."""

    def leave(self) -> None:
        """Close at once, even with data under way."""


class Seats:
    """The open connections. A waiting one has sent no complete request yet, or has had all its responses."""

    def __init__(self, most: int) -> None:
        self.most, self._a_peer = most, max(1, most // 4)
        self._peers: dict[Guest, str] = {}
        self._strangers: OrderedDict[Guest, None] = OrderedDict()  # waiting connections, the longest first
        self._known: OrderedDict[Guest, None] = OrderedDict()  # likewise
        self._recognised: set[Guest] = set()
        self._of_peer: Counter[str] = Counter()  # waiting strangers
        self._freed: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._peers)

    def when_freed(self, call: Callable[[], None]) -> None:
        """Each acceptor that shares these seats is told when there may be room again."""
        self._freed.append(call)

    def _free(self) -> None:
        for call in self._freed:
            call()

    @property
    def closed(self) -> bool:
        """All seats are taken by busy connections."""
        return len(self) >= self.most and not self._strangers and not self._known

    def sit(self, guest: Guest, peer: str) -> None:
        """Seat a new connection, which waits. If there are too many, another one is closed. Without a `peer`: one that
        stands for many clients, such as a proxy."""
        self._peers[guest] = peer
        self.waits(guest)
        if peer and self._of_peer[peer] > self._a_peer:
            self._send_away(next(one for one in self._strangers if self._peers[one] == peer))
        if len(self) > self.most:
            candidates = (one for one in (*self._strangers, *self._known) if one is not guest)
            if (longest := next(candidates, None)) is not None:
                self._send_away(longest)

    def _send_away(self, guest: Guest) -> None:
        self.left(guest)
        guest.leave()

    def waits(self, guest: Guest) -> None:
        if guest not in self._peers:
            return
        self._stop_waiting(guest)
        if guest in self._recognised:
            self._known[guest] = None
        else:
            self._strangers[guest] = None
            self._of_peer[self._peers[guest]] += 1
        self._free()

    def works(self, guest: Guest) -> None:
        self._stop_waiting(guest)

    def recognise(self, guest: Guest) -> None:
        """Its token was accepted."""
        if guest in self._peers and guest not in self._recognised:
            waiting = guest in self._strangers
            self._stop_waiting(guest)
            self._recognised.add(guest)
            if waiting:
                self._known[guest] = None

    def left(self, guest: Guest) -> None:
        if guest in self._peers:
            self._stop_waiting(guest)
            self._recognised.discard(guest)
            del self._peers[guest]
            self._free()

    def _stop_waiting(self, guest: Guest) -> None:
        self._known.pop(guest, None)
        if guest in self._strangers:
            del self._strangers[guest]
            peer = self._peers[guest]
            self._of_peer[peer] -= 1
            if not self._of_peer[peer]:
                del self._of_peer[peer]


class Acceptor:
    """Accepts connections while there are seats. It replaces asyncio's own accept loop, which fails continuously and
    logs each failure when descriptors run out. Its methods are those that uvicorn calls on a server."""

    def __init__(
        self,
        listener: socket.socket,
        seats: Seats,
        connection: Callable[[], Any],
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        proxies: Container[str] = (),
    ) -> None:
        """`tls`: the certificate for the next connection. `proxies`: the addresses of those that stand for many."""
        self._listener, self._seats, self._connection = listener, seats, connection
        self._tls, self._proxies = tls, proxies
        self._loop = asyncio.get_running_loop()
        self._open, self._reading = True, False
        self._joining: set[asyncio.Task[Any]] = set()
        self._warned: dict[str, float] = {}
        listener.setblocking(False)
        seats.when_freed(self._resume)
        self._resume()

    def close(self) -> None:
        self._open = False
        self._pause()

    async def wait_closed(self) -> None:
        """Do nothing: connections are closed by themselves."""

    def _resume(self) -> None:
        if self._open and not self._reading and not self._seats.closed:
            self._reading = True
            self._loop.add_reader(self._listener, self._accept)

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._listener)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            if self._seats.closed:
                self._warn("All %d connections that the limit of descriptors allows are in use. Raise `ulimit -n`.")
                self._pause()
                return
            try:
                accepted, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_RESOURCES:
                    raise
                self._warn(f"There are %d connections, and no more can be accepted now: {error.strerror}.")
                self._pause()
                self._loop.call_later(RETRY, self._resume)
                return
            accepted.setblocking(False)
            connection = self._connection()
            peer = str(address[0]) if address else ""
            self._seats.sit(connection, "" if peer in self._proxies else peer)
            joining = self._loop.create_task(self._join(connection, accepted))
            connection.joining = joining
            self._joining.add(joining)
            joining.add_done_callback(partial(self._joined, connection, accepted))

    def _joined(self, connection: Any, accepted: socket.socket, joining: asyncio.Task[Any]) -> None:
        self._joining.discard(joining)
        if joining.cancelled():  # the connection was sent away before its handshake had ended
            accepted.close()
            self._seats.left(connection)

    async def _join(self, connection: Any, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: connection, accepted, **self._handshake())
        except OSError as error:  # closed before it was set up, or no client of TLS
            log.debug("a connection was lost at once: %s", error)
            accepted.close()
            self._seats.left(connection)

    def _handshake(self) -> dict[str, Any]:
        if self._tls is None:
            return {}
        return {
            "ssl": self._tls(),
            "ssl_handshake_timeout": HANDSHAKE_SECONDS,
            "ssl_shutdown_timeout": GOODBYE_SECONDS,
        }

    def _warn(self, line: str) -> None:
        now = self._loop.time()
        if now - self._warned.get(line, -SELDOM) >= SELDOM:
            self._warned[line] = now
            log.warning(line, len(self._seats))
