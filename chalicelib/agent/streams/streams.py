"""This machine's ends of streams. The server orders a stream in a response, with a ticket; the agent connects to the
target, dials the server, and from then on passes bytes on (`stream_loop`).

Jobs share the number of streams and the threads: no job can take all of them, and a slow target delays only its own
job. Openers for each kind of target are registered with `serve`. If a target can't be reached, the server is dialled
all the same, so that the client gets the reason.
"""

from __future__ import annotations

import functools
import resource
import socket
import ssl
import threading
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, Optional, Protocol, Tuple, Union
from urllib.parse import urlsplit

from ..kernel import networks, route
from ..kernel.task_runtime import TaskRuntime
from ..sessions import logins
from . import websocket
from .stream_loop import LazySocketStream, Refusal, SocketStream, StreamConnection, StreamLoop

if TYPE_CHECKING:
    from ...contract.agent import StreamOrder

MOST = 1024  # streams at once on this machine, including those that are being dialled
SHARE = 4  # a job may have this many for each free stream: alone, it gets 820 and leaves 204 to other jobs
RESERVED = 200  # descriptors for everything else
DIALS, DIALS_OF_A_JOB = 32, 16  # at once
DIAL_SECONDS = 15.0
HEAD_BYTES = 16 * 1024

StreamFactory = Callable[
    [StreamLoop, socket.socket, websocket.Peer], StreamConnection
]  # makes the stream when the server is dialled
Opener = Callable[[str, "StreamOrder"], Union[socket.socket, StreamFactory]]  # by the task's id


class Unreachable(Exception):
    """A target can't be reached. The message is for the client."""


def streams_most(descriptors: int) -> int:
    """The number of streams for a process with this limit of descriptors (-1: none). Each takes two."""
    return MOST if descriptors < 0 else max(16, min(MOST, (descriptors - RESERVED) // 2))


class AgentStreams:
    def __init__(
        self,
        address: Callable[[], str],
        log: Callable[[str], None],
        loop: Optional[StreamLoop] = None,
        via: route.Via = route.direct,
    ) -> None:
        """`address` returns the server's current address."""
        self._address, self._log, self._via = address, log, via
        self.loop = loop or StreamLoop()
        self._most = streams_most(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._openers: Dict[str, Opener] = {}
        self._threads = ThreadPoolExecutor(max_workers=DIALS, thread_name_prefix="dial")
        self._dialling: Dict[str, str] = {}  # the task of each stream that isn't on the loop yet
        self._waiting: Dict[str, Deque[StreamOrder]] = {}  # by task
        self._busy: "Counter[str]" = Counter()  # the threads that each task occupies
        self._lock = threading.Lock()

    def serve(self, kind: str, opener: Opener) -> None:
        """Register the opener for targets `kind` and `kind:…`. It may block for seconds, and raises Unreachable or
        OSError."""
        self._openers[kind] = opener

    def dial(self, order: StreamOrder) -> None:
        stream, task = str(order["id"]), str(order["task"])
        with self._lock:
            if stream in self._dialling:
                return  # a repeated order
            tasks = [each.task for each in list(self.loop.streams) if each.dialled] + list(self._dialling.values())
            if tasks.count(task) >= SHARE * (self._most - len(tasks)):
                self._log("stream %s: refused, its job has %d of %d already" % (stream, tasks.count(task), len(tasks)))
                return
            self._dialling[stream] = task
            self._waiting.setdefault(task, deque()).append(order)
            self._next(task)

    def _next(self, task: str) -> None:
        """Start a waiting order of this task, unless the task has its share of threads. Called with the lock held."""
        waiting = self._waiting.get(task)
        if waiting and self._busy[task] < DIALS_OF_A_JOB:
            self._busy[task] += 1
            self._threads.submit(self._dial, waiting.popleft())
        if not waiting:
            self._waiting.pop(task, None)

    def _dial(self, order: StreamOrder) -> None:
        stream, task = str(order["id"]), str(order["task"])
        begun = False
        try:
            begun = self._connect(stream, order)
        except Exception as problem:  # it would be lost in this thread otherwise
            self._log("stream %s: %r" % (stream, problem))
        finally:
            with self._lock:
                if not begun:
                    self._dialling.pop(stream, None)
                self._busy -= Counter([task])
                self._next(task)

    def _connect(self, stream: str, order: StreamOrder) -> bool:
        """Open the target and dial the server. Returns whether the stream is on the loop now."""
        target = self._open(order)
        try:
            base, via, pin = self._route(order)
            near, early = dial_websocket(base, "/agent/streams/" + stream, order["ticket"], via, pin)
        except (OSError, ValueError) as problem:
            self._log("stream %s to %s: %s" % (stream, order["target"], problem))
            if isinstance(target, socket.socket):
                target.close()
            return False
        if self.loop.call(lambda: self._begin(near, early, target, order)):
            return True
        near.close()  # the agent is ending
        if isinstance(target, socket.socket):
            target.close()
        return False

    def _route(self, order: StreamOrder) -> Tuple[str, str, str]:
        """Base URL, head node and pin of the other end: a gateway that the order names, or the server. A head node
        leads to the server only, and only a gateway has a pin."""
        gateway = order.get("gateway")
        return (str(gateway), "", str(order.get("pin") or "")) if gateway else (self._address(), self._via(), "")

    def _open(self, order: StreamOrder) -> Union[socket.socket, StreamFactory, str]:
        kind = str(order["target"]).partition(":")[0]
        opener = self._openers.get(kind)
        if opener is None:
            return "this host's agent serves no %s" % kind
        try:
            return opener(str(order["task"]), order)
        except Unreachable as problem:
            return str(problem)
        except OSError as problem:
            return "%s can't be reached in the job: %s" % (order["target"], problem.strerror or problem)

    def _begin(
        self, near: socket.socket, early: bytes, target: Union[socket.socket, StreamFactory, str], order: StreamOrder
    ) -> None:
        peer = websocket.Peer(client=True)
        try:
            stream: StreamConnection
            if isinstance(target, str):
                stream = Refusal(self.loop, near, peer, target)
            elif isinstance(target, socket.socket):
                stream = SocketStream(self.loop, near, peer, target)
            else:
                stream = target(self.loop, near, peer)
            stream.task = str(order["task"])
            stream.begin(early)
        finally:
            with self._lock:
                self._dialling.pop(str(order["id"]), None)


class ReplicaPort(Protocol):
    """A source of connections to the port of a service's replica."""

    def enter(self) -> None:
        """Find the replica's network. May block, and raises OSError."""

    def connecting(self, place: int) -> socket.socket: ...


def port_opener(
    runtime_of: Callable[[str], Tuple[TaskRuntime, Any]],
    replica_of: Callable[[str, int], Optional[ReplicaPort]] = lambda task, port: None,
) -> Opener:
    """An opener of streams to `port:N` in the task's network. If an order for a replica's port has `lazily`, the
    connection to the port is made for the stream's first byte."""

    def opened(task: str, order: StreamOrder) -> Union[socket.socket, StreamFactory]:
        port = int(str(order["target"]).partition(":")[2])
        replica = replica_of(task, port) if order.get("lazily") else None
        try:
            if replica is not None:
                replica.enter()
                return functools.partial(LazySocketStream, connecting=replica.connecting)
            runtime, folder = runtime_of(task)
            with networks.open_network(lambda: runtime.network(folder)) as network:
                return networks.connect(network, port)
        except ConnectionRefusedError:
            raise Unreachable("nothing listens on port %d of the job" % port) from None

    return opened


def ssh_opener(runtime_of: Callable[[str], Tuple[TaskRuntime, Any]]) -> Opener:
    """An opener of streams to `ssh`, the task's own SSH server, which listens on the host's loopback."""

    def opened(task: str, order: StreamOrder) -> socket.socket:
        _, folder = runtime_of(task)
        server = logins.report(folder).get("ssh") or {"problem": "no public key was given for this job"}
        if "problem" in server:
            raise Unreachable(server["problem"])
        try:
            return networks.connect(None, server["port"])
        except ConnectionRefusedError:
            raise Unreachable("the job's SSH server has ended") from None

    return opened


def dial_websocket(base: str, path: str, ticket: str, via: str = "", pin: str = "") -> Tuple[socket.socket, bytes]:
    """Open a WebSocket; returns its socket and the bytes after the response. Raises OSError or ValueError."""
    parts, sock = urlsplit(base), route.connect(base, via, DIAL_SECONDS, pin)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        key = websocket.new_key()
        headers = {"Host": parts.netloc.rpartition("@")[2], "Authorization": "Bearer " + ticket}
        sock.sendall(websocket.request(parts.path.rstrip("/") + path, key, headers))
        return sock, _upgrade(sock, key)
    except BaseException:
        sock.close()
        raise


def _upgrade(sock: socket.socket, key: str) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        more = sock.recv(4096)
        if not more or len(data) > HEAD_BYTES:
            raise ConnectionError("the server's response isn't HTTP, or it broke off")
        data += more
    while isinstance(sock, ssl.SSLSocket) and sock.pending():  # no select returns for bytes that are decrypted already
        data += sock.recv(sock.pending())
    head, _, body = data.partition(b"\r\n\r\n")
    status, headers = websocket.parse_head(head)
    if " 101 " not in status + " ":
        raise ConnectionError("%s %s" % (status, body[:300].decode("utf-8", "replace")))
    if headers.get("sec-websocket-accept") != websocket.accept_of(key):
        raise ConnectionError("the server's response isn't that of a WebSocket")
    return body
