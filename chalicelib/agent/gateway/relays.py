"""The route to a replica off the gateway's network: a unix socket for nginx, whose connections are joined to streams
that the replica's agent dials.

For each stream the gateway makes a ticket and orders the stream from the control plane, which passes the order on to
the agent. The agent dials the gateway's own address with the ticket; nginx forwards that connection to the socket
`agents.sock`. So that requests needn't wait for an agent to dial, a few streams are opened in advance: more after a
request has found none, and again only a few after a quiet minute. All this runs on the thread of one `StreamLoop`.

A host may die at any moment, so a replica counts as connected only while it has a stream and answers. While another
replica of its service is connected, one that isn't refuses nginx's connections, so that nginx turns to the other before
it has sent anything; and a stream that has been silent must answer a ping before it gets a request.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import selectors
import socket
from collections import deque
from typing import (
    TYPE_CHECKING,
    AbstractSet,
    Callable,
    Deque,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Set,
    Tuple,
)

from ..streams import websocket
from ..streams.stream_loop import SocketStream, StreamLoop, receive
from ..streams.websocket import Peer

if TYPE_CHECKING:
    from ...contract.agent_gateway import GatewayStream

AT_FIRST, MOST = 2, 32  # streams of a replica that wait for a request
BACKLOG = 1024
PATIENCE = 10.0  # seconds that a request waits for a stream, and that a caller has for the head of its request
REMIND = 2.0  # seconds after which the order for a stream that hasn't come is repeated, at the next check
DIALLED = 15.0  # seconds after which an ordered stream isn't expected any more
QUIET = 60.0  # seconds without a shortage after which `AT_FIRST` streams are enough
PING_EVERY = 10.0  # seconds; the agent gives up a silent stream after two minutes
ALIVE_FOR = 30.0  # seconds without an answer after which the gateway gives up a stream
FRESH = 1.0  # seconds of silence after which a stream must answer a ping before it gets a request
PROOF = 0.6  # seconds for that answer
HEAD_BYTES, ARRIVALS = 16 * 1024, 256
PATH = "/agent/streams/"


class ReplicaAddress(NamedTuple):
    job: str
    instance: str
    port: int
    run: str


def place(folder: str, job: str) -> str:
    """The path of a replica's socket."""
    return os.path.join(folder, hashlib.sha256(job.encode("utf-8")).hexdigest()[:16] + ".sock")


def listening(path: str, group: int) -> socket.socket:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o660)
    if group >= 0:
        os.chown(path, -1, group)
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


class RequestedStream:
    """A stream that was ordered, and when it was first and last."""

    def __init__(self, order: GatewayStream, now: float) -> None:
        self.order, self.begun, self.ordered_at = order, now, now


class GatewayRelays:
    def __init__(self, folder: str, order: Callable[[List[GatewayStream]], None], group: int = -1) -> None:
        """`order` has the control plane pass orders on, and returns at once. `group`: that of nginx's workers."""
        self.folder, self.order, self.group = folder, order, group
        self.loop = StreamLoop()
        self.expected: Dict[str, Tuple[str, GatewayRelay]] = {}  # by stream: its ticket and its replica's relay
        self._relays: Dict[str, GatewayRelay] = {}
        self._direct: AbstractSet[str] = frozenset()
        self._arrivals: Set[Arrival] = set()
        self._door: Optional[socket.socket] = None
        self.door = os.path.join(folder, "agents.sock")
        self.unreached = 0  # replicas without a stream for a while, if that are all; read by other threads

    def start(self) -> None:
        os.makedirs(self.folder, exist_ok=True)
        os.chmod(self.folder, 0o750)
        if self.group >= 0:
            os.chown(self.folder, -1, self.group)
        self._door = listening(self.door, self.group)
        door = self._door
        self.loop.call(lambda: self.loop.watch(door, selectors.EVENT_READ, self._arrive))
        self.loop.call(lambda: self.loop.watched.add(self))

    def set_replicas(self, replicas: Mapping[str, ReplicaAddress], direct: AbstractSet[str] = frozenset()) -> None:
        """Relay to these replicas, by job, and no others. `direct`: runs with a replica that needs no stream."""
        self.loop.call(lambda: self._set_replicas(replicas, direct))

    def close(self) -> None:
        self.set_replicas({})
        self.loop.close()
        if self._door is not None:
            self._door.close()

    def check(self, now: float) -> None:
        """One without a stream may be on a host that is down. If all are, hosts can't call the gateway's address."""
        lacking = sum(each.lacks_streams(now) for each in self._relays.values())
        self.unreached = lacking if lacking == len(self._relays) else 0

    def _set_replicas(self, replicas: Mapping[str, ReplicaAddress], direct: AbstractSet[str]) -> None:
        self._direct = direct
        for job in [job for job, relay in self._relays.items() if replicas.get(job) != relay.replica]:
            self._relays.pop(job).close()
        for job, replica in replicas.items():
            if job not in self._relays:
                self._relays[job] = GatewayRelay(self, replica)
        for run in {replica.run for replica in replicas.values()}:
            self.settle(run)

    def settle(self, run: str) -> None:
        """Let nginx connect to this service's connected replicas only, or to all of them if none is connected."""
        relays = [each for each in self._relays.values() if each.replica.run == run]
        available = run in self._direct or any(each.connected for each in relays)
        for each in relays:
            each.listen(each.connected or not available)

    def has_alternative(self, relay: GatewayRelay) -> bool:
        """Is another replica of the same service connected?"""
        run = relay.replica.run
        alternatives = (each for each in self._relays.values() if each is not relay and each.replica.run == run)
        return run in self._direct or any(each.connected for each in alternatives)

    def _arrive(self, _: int) -> None:
        assert self._door is not None, "it is watched"
        with contextlib.suppress(BlockingIOError):
            near = self._door.accept()[0]
            if len(self._arrivals) < ARRIVALS:
                self._arrivals.add(Arrival(self, near))
            else:
                near.close()

    def forget(self, arrival: Arrival) -> None:
        self._arrivals.discard(arrival)


class Arrival:
    """A connection that should be an agent's, until the head of its request has arrived."""

    def __init__(self, relays: GatewayRelays, near: socket.socket) -> None:
        near.setblocking(False)
        self._relays, self._near, self._received = relays, near, b""
        self._until = relays.loop.clock() + PATIENCE
        relays.loop.watched.add(self)
        relays.loop.watch(near, selectors.EVENT_READ, self._read)

    def check(self, now: float) -> None:
        if now >= self._until:
            self._refuse("408 Request Timeout")

    def _leave(self) -> None:
        self._relays.loop.watched.discard(self)
        self._relays.loop.watch(self._near, 0, self._read)
        self._relays.forget(self)

    def _refuse(self, status: str) -> None:
        self._leave()
        with contextlib.suppress(OSError):
            self._near.send(("HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status).encode("ascii"))
        self._near.close()

    def _read(self, _: int) -> None:
        try:
            data = receive(self._near)
        except OSError:
            data = b""
        self._received += data or b""
        if b"\r\n\r\n" in self._received:
            self._admit(*self._received.split(b"\r\n\r\n", 1))
        elif data == b"" or len(self._received) > HEAD_BYTES:
            self._refuse("400 Bad Request")

    def _admit(self, head: bytes, early: bytes) -> None:
        first, headers = websocket.parse_head(head)
        parts = first.split(" ")
        stream = parts[1][len(PATH) :] if len(parts) == 3 and parts[1].startswith(PATH) else ""
        ticket, relay = self._relays.expected.get(stream, ("", None))
        authorization = headers.get("authorization", "").encode("latin-1")
        if relay is None or not hmac.compare_digest(authorization, b"Bearer " + ticket.encode("ascii")):
            self._refuse("403 Forbidden")
            return
        try:
            key = websocket.key_of(headers)
        except websocket.ProtocolError:
            self._refuse("400 Bad Request")
            return
        self._leave()
        del self._relays.expected[stream]  # a ticket is valid once
        self._near.send(websocket.handshake_response(key))
        relay.add_stream(stream, self._near, early)


class WaitingStream(SocketStream):
    """A stream that waits for a request, and then carries its connection."""

    dialled = False
    alive_for = ALIVE_FOR

    def __init__(self, relay: GatewayRelay, near: socket.socket) -> None:
        super().__init__(relay.relays.loop, near, Peer(client=False), None)
        self._relay, self._pinged = relay, relay.relays.loop.clock()
        self._challenged_at: Optional[float] = None  # when the agent was pinged for an answer

    @property
    def received_at(self) -> float:
        return self._received_at

    def join(self, far: socket.socket) -> None:
        self._far = far
        self._far_out.to(far)
        self.step()

    def check(self, now: float) -> None:
        super().check(now)
        if not self._over and now - self._pinged >= PING_EVERY:
            self._pinged = now
            self._out.put(self._peer.ping())
            self.step()

    def release(self) -> None:
        super().release()
        self._relay.ended(self)

    def has_room(self) -> bool:
        return self._challenged_at is None and super().has_room()

    def _take(self, data: bytes) -> None:
        self._challenged_at = None
        super()._take(data)
        self._relay.mark_alive()

    def _read_far(self) -> None:
        """Leave a request unread, so that another replica may still get it, until the agent is known to be alive."""
        silent = self._loop.clock() - self._received_at >= FRESH
        if silent and self._begins_request() and self._relay.relays.has_alternative(self._relay):
            challenged = self._challenged_at = self._loop.clock()
            self._out.put(self._peer.ping())
            self._loop.call_later(PROOF, lambda: self._judge(challenged))
        else:
            super()._read_far()

    def _begins_request(self) -> bool:
        """A request begins with two capitals; data of an open WebSocket never does."""
        assert self._far is not None, "it is watched"
        try:
            return self._far.recv(2, socket.MSG_PEEK).isupper()
        except OSError:
            return False

    def _judge(self, challenged: float) -> None:
        if self._challenged_at == challenged and not self._over:
            self._relay.mark_silent(challenged)
            self.end()


class GatewayRelay:
    """A replica's socket, the streams that wait for a request, and the requests that wait for a stream."""

    def __init__(self, relays: GatewayRelays, replica: ReplicaAddress) -> None:
        self.relays, self.replica, self._loop = relays, replica, relays.loop
        self._path = place(relays.folder, replica.job)
        self._socket: Optional[socket.socket] = None
        self._silent = False
        self.connected = False
        self._spare: Deque[WaitingStream] = deque()
        self._used: Set[WaitingStream] = set()
        self._waiting: Deque[Tuple[socket.socket, float]] = deque()  # each with its time of arrival
        self._dialling: Dict[str, RequestedStream] = {}
        self._target, self._short_at = AT_FIRST, self._loop.clock()
        self._streamed_at = self._loop.clock()  # when it last had a stream, or began to order them
        self._loop.watched.add(self)
        self.listen(True)
        self._fill()

    def listen(self, wanted: bool) -> None:
        """Let nginx connect, or not: then the waiting connections are closed, too."""
        if wanted and self._socket is None:
            self._socket = listening(self._path, self.relays.group)
            self._loop.watch(self._socket, selectors.EVENT_READ, self._accept)
        elif not wanted and self._socket is not None:
            self._loop.watch(self._socket, 0, self._accept)
            self._socket.close()
            self._socket = None
            self._turn_away()

    def _turn_away(self) -> None:
        while self._waiting:
            self._waiting.popleft()[0].close()

    def mark_alive(self) -> None:
        """The agent has sent something."""
        self._silent = False
        self._settle()

    def mark_silent(self, since: float) -> None:
        """The agent hasn't answered a ping sent at `since`: end the spare streams that were silent since."""
        self._silent = True
        for line in [line for line in self._spare if line.received_at < since]:
            line.end()
        self._settle()

    def _settle(self) -> None:
        before, self.connected = self.connected, bool(self._used) and not self._silent
        if before != self.connected:
            self.relays.settle(self.replica.run)

    def close(self) -> None:
        """Accept no new connections; those in progress end by themselves, as nginx drains them."""
        self._loop.watched.discard(self)
        self.listen(False)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        for stream in self._dialling:
            self.relays.expected.pop(stream, None)
        self._target = 0
        while self._spare:
            self._spare.popleft().end()

    def lacks_streams(self, now: float) -> bool:
        """Has its agent dialled none for longer than an order is good?"""
        return not self._used and now - self._streamed_at >= DIALLED

    def add_stream(self, stream: str, near: socket.socket, early: bytes) -> None:
        """Add a stream that the agent has dialled."""
        self._dialling.pop(stream, None)
        line = WaitingStream(self, near)
        self._used.add(line)
        line.begin(early)
        if line not in self._used:
            return  # it ended at once
        self.mark_alive()
        if self._waiting:
            line.join(self._waiting.popleft()[0])
        else:
            self._spare.append(line)

    def ended(self, line: WaitingStream) -> None:
        self._used.discard(line)
        self._streamed_at = self._loop.clock()
        if line in self._spare:
            self._spare.remove(line)
        self._settle()

    def check(self, now: float) -> None:
        for stream in [stream for stream, requested in self._dialling.items() if now - requested.begun >= DIALLED]:
            del self._dialling[stream]
            self.relays.expected.pop(stream, None)
        self._remind(now)
        while self._waiting and now - self._waiting[0][1] >= PATIENCE:
            self._waiting.popleft()[0].close()  # nginx tries another replica, or answers that this one can't be reached
        if now - self._short_at >= QUIET:
            self._target = AT_FIRST
        self._fill()

    def _remind(self, now: float) -> None:
        """Repeat orders that are late: the control plane or the agent may have been cut off."""
        late = [each for each in self._dialling.values() if now - each.ordered_at >= REMIND]
        for each in late:
            each.ordered_at = now
        if late:
            self.relays.order([each.order for each in late])

    def _accept(self, _: int) -> None:
        assert self._socket is not None, "it is watched"
        with contextlib.suppress(BlockingIOError):
            while True:
                caller = self._socket.accept()[0]
                if self._spare:
                    self._spare.popleft().join(caller)
                else:
                    self._waiting.append((caller, self._loop.clock()))
                    self._short_at = self._loop.clock()
                    self._target = min(MOST, self._target * 2)
        self._fill()

    def _fill(self) -> None:
        """Order as many streams as are missing."""
        orders: List[GatewayStream] = []
        for _ in range(self._target + len(self._waiting) - len(self._spare) - len(self._dialling)):
            order: GatewayStream = {
                "id": secrets.token_hex(16),
                "ticket": secrets.token_urlsafe(32),
                "instance": self.replica.instance,
                "task": self.replica.job,
                "target": "port:%d" % self.replica.port,
                "lazily": True,
            }
            self.relays.expected[order["id"]] = (order["ticket"], self)
            self._dialling[order["id"]] = RequestedStream(order, self._loop.clock())
            orders.append(order)
        if orders:
            self.relays.order(orders)
