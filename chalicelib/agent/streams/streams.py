"""Streams: this machine's ends of them. The server asks for one in a response, with a ticket; the agent reaches the
target, dials the server, and from then on passes bytes on (`stream_loop`).

Jobs share the places and the threads: no job can take all of them, and a slow target holds up only its own job.

What can be reached is a table: a kind of target, and what opens it for a task (`serve`). If a target can't be reached,
the server is dialled all the same, so that the client gets the reason.
"""

from __future__ import annotations

import functools
import resource
import socket
import ssl
import threading
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Deque, Dict, Optional, Protocol, Tuple, Union
from urllib.parse import urlsplit

from ..kernel import networks, route
from ..kernel.task_runtime import TaskRuntime
from ..sessions import logins
from . import websocket
from .stream_loop import Deferred, Joined, Refusal, StreamConnection, StreamLoop

MOST = 1024  # streams at once on this machine, those that are being dialled included
SHARE = 4  # a job may have this many for each place that is free: one alone gets 820, and leaves 204 to others
SPARED = 200  # descriptors that are left to everything else
DIALS, DIALS_OF_A_JOB = 32, 16  # at once
DIAL_SECONDS = 15.0
HEAD_BYTES = 16 * 1024

Order = Dict[str, Any]  # {id, ticket, task, target, …}; `gateway` and `pin`: whom to dial, if not the server
Begun = Callable[
    [StreamLoop, socket.socket, websocket.Peer], StreamConnection
]  # what to do with the stream, once it is dialled
Opener = Callable[[str, Order], Union[socket.socket, Begun]]  # by the task's id


class Unreachable(Exception):
    """A target can't be reached; the words are for the client."""


def places(descriptors: int) -> int:
    """How many streams a process with so many descriptors may have: each takes two."""
    return MOST if descriptors < 0 else max(16, min(MOST, (descriptors - SPARED) // 2))


class AgentStreams:
    def __init__(
        self,
        address: Callable[[], str],
        log: Callable[[str], None],
        loop: Optional[StreamLoop] = None,
        via: route.Via = route.direct,
    ) -> None:
        """`address`: the server's, as it is now."""
        self._address, self._log, self._via = address, log, via
        self.loop = loop or StreamLoop()
        self._most = places(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._openers: Dict[str, Opener] = {}
        self._threads = ThreadPoolExecutor(max_workers=DIALS, thread_name_prefix="dial")
        self._dialling: Dict[str, str] = {}  # streams that aren't on the loop yet, each with its task
        self._waiting: Dict[str, Deque[Order]] = {}  # by task, which has this many on threads:
        self._busy: "Counter[str]" = Counter()
        self._lock = threading.Lock()

    def serve(self, kind: str, opener: Opener) -> None:
        """Streams to `kind`, or `kind:…`, of a task go to what this opens. It may block for seconds, and raises
        Unreachable or OSError."""
        self._openers[kind] = opener

    def dial(self, order: Order) -> None:
        stream, task = str(order["id"]), str(order["task"])
        with self._lock:
            if stream in self._dialling:
                return  # told once more, in case we hadn't heard
            taken = [each.task for each in list(self.loop.streams) if each.dialled] + list(self._dialling.values())
            if taken.count(task) >= SHARE * (self._most - len(taken)):
                self._log("stream %s: refused, its job has %d of %d already" % (stream, taken.count(task), len(taken)))
                return
            self._dialling[stream] = task
            self._waiting.setdefault(task, deque()).append(order)
            self._next(task)

    def _next(self, task: str) -> None:
        """Put a waiting order of this task on a thread, if its others leave it one. With the lock."""
        waiting = self._waiting.get(task)
        if waiting and self._busy[task] < DIALS_OF_A_JOB:
            self._busy[task] += 1
            self._threads.submit(self._dial, waiting.popleft())
        if not waiting:
            self._waiting.pop(task, None)

    def _dial(self, order: Order) -> None:
        stream, task = str(order["id"]), str(order["task"])
        begun = False
        try:
            begun = self._dialled(stream, order)
        except Exception as problem:  # nobody else would hear of it
            self._log("stream %s: %r" % (stream, problem))
        finally:
            with self._lock:
                if not begun:
                    self._dialling.pop(stream, None)
                self._busy -= Counter([task])
                self._next(task)

    def _dialled(self, stream: str, order: Order) -> bool:
        """Has it become a connection of the loop?"""
        found = self._open(order)
        try:
            base, via, pin = self._way(order)
            near, early = dialled(base, "/agent/streams/" + stream, order["ticket"], via, pin)
        except (OSError, ValueError) as problem:
            self._log("stream %s to %s: %s" % (stream, order["target"], problem))
            if isinstance(found, socket.socket):
                found.close()
            return False
        if self.loop.call(lambda: self._begin(near, early, found, order)):
            return True
        near.close()  # the agent is leaving
        if isinstance(found, socket.socket):
            found.close()
        return False

    def _way(self, order: Order) -> Tuple[str, str, str]:
        """To whoever wants the stream: a gateway that the order names, or the server. A head node leads to the server
        alone, and a gateway is known by its pin."""
        gateway = order.get("gateway")
        return (str(gateway), "", str(order.get("pin") or "")) if gateway else (self._address(), self._via(), "")

    def _open(self, order: Order) -> Union[socket.socket, Begun, str]:
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

    def _begin(self, near: socket.socket, early: bytes, found: Union[socket.socket, Begun, str], order: Order) -> None:
        peer = websocket.Peer(client=True)
        try:
            made: StreamConnection
            if isinstance(found, str):
                made = Refusal(self.loop, near, peer, found)
            elif isinstance(found, socket.socket):
                made = Joined(self.loop, near, peer, found)
            else:
                made = found(self.loop, near, peer)
            made.task = str(order["task"])
            made.begin(early)
        finally:
            with self._lock:
                self._dialling.pop(str(order["id"]), None)


class ReplicaPort(Protocol):
    """The way to the port of a service's replica."""

    def enter(self) -> None:
        """May block, and raises OSError."""

    def connecting(self, place: int) -> socket.socket: ...


def port_opener(
    runtime_of: Callable[[str], Tuple[TaskRuntime, Any]],
    replica_of: Callable[[str, int], Optional[ReplicaPort]] = lambda task, port: None,
) -> Opener:
    """Streams to `port:N`, in the task's network; to a replica's port, if the order says `lazily`, from the first byte
    that comes for it."""

    def opened(task: str, order: Order) -> Union[socket.socket, Begun]:
        port = int(str(order["target"]).partition(":")[2])
        replica = replica_of(task, port) if order.get("lazily") else None
        try:
            if replica is not None:
                replica.enter()
                return functools.partial(Deferred, connecting=replica.connecting)
            runtime, folder = runtime_of(task)
            with networks.open_network(lambda: runtime.network(folder)) as network:
                return networks.connect(network, port)
        except ConnectionRefusedError:
            raise Unreachable("nothing listens on port %d of the job" % port) from None

    return opened


def ssh_opener(runtime_of: Callable[[str], Tuple[TaskRuntime, Any]]) -> Opener:
    """Streams to `ssh`, the task's own SSH server, which is on the host's loopback."""

    def opened(task: str, order: Order) -> socket.socket:
        _, folder = runtime_of(task)
        server = logins.report(folder).get("ssh") or {"problem": "nobody's key was given for this job"}
        if "problem" in server:
            raise Unreachable(server["problem"])
        try:
            return networks.connect(None, server["port"])
        except ConnectionRefusedError:
            raise Unreachable("the job's SSH server has ended") from None

    return opened


def dialled(base: str, path: str, ticket: str, via: str = "", pin: str = "") -> Tuple[socket.socket, bytes]:
    """A WebSocket to the server, and what arrived behind its response. Raises OSError or ValueError."""
    parts, made = urlsplit(base), route.connect(base, via, DIAL_SECONDS, pin)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        key = websocket.new_key()
        headers = {"Host": parts.netloc.rpartition("@")[2], "Authorization": "Bearer " + ticket}
        made.sendall(websocket.request(parts.path.rstrip("/") + path, key, headers))
        return made, _upgraded(made, key)
    except BaseException:
        made.close()
        raise


def _upgraded(made: socket.socket, key: str) -> bytes:
    said = b""
    while b"\r\n\r\n" not in said:
        more = made.recv(4096)
        if not more or len(said) > HEAD_BYTES:
            raise ConnectionError("the server's response isn't HTTP, or it broke off")
        said += more
    while isinstance(made, ssl.SSLSocket) and made.pending():  # nobody is woken for what is deciphered already
        said += made.recv(made.pending())
    head, _, rest = said.partition(b"\r\n\r\n")
    status, headers = websocket.parse_head(head)
    if " 101 " not in status + " ":
        raise ConnectionError("%s %s" % (status, rest[:300].decode("utf-8", "replace")))
    if headers.get("sec-websocket-accept") != websocket.accept_of(key):
        raise ConnectionError("the server's response isn't that of a WebSocket")
    return rest
