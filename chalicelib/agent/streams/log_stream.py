"""A job's log over a WebSocket, as bytes: from its beginning, then as it is written, to its end.

It is the target `logs` of streams, and `GET /logs_ws` on port 10999 of the job's network, to which SSH clients of the
job forward a port. Jobs in the machine's own network share that port: there the caller's process determines the job,
and a caller that belongs to no job is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import selectors
import socket
import struct
import threading
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Set
from urllib.parse import parse_qs

from ..kernel import networks, process_tree
from ..kernel.spool import ReplayReader
from ..kernel.tasks import FINAL, TaskFolder, read_text
from . import websocket
from .stream_loop import READ, StreamConnection, StreamLoop, receive
from .streams import StreamFactory
from .websocket import FAILED, NORMAL, Closed, Peer

if TYPE_CHECKING:
    from ...contract.agent import StreamOrder

READS_A_TURN = 16  # of one reader before it is the next one's turn
LINGER = 15.0  # seconds for which an ended task waits for readers of its log
HEAD_BYTES = 16 * 1024
HEAD_SECONDS = 10.0
CALLERS_MOST = 64  # of one listener whose request isn't complete
READERS_MOST = 16  # of one task's log on its port, which the job itself can call

FolderOf = Callable[[str], TaskFolder]


class LogFollower:
    """One reader's position in a task's output."""

    def __init__(self, folder: TaskFolder, since: int = 0) -> None:
        """`since`: the time of the first output to return, in microseconds."""
        self._folder, self._since = folder, since
        self._reader = ReplayReader(folder.log)
        self._offset = 0
        self.missed = 0  # bytes to return that have been deleted
        self.over = False  # the task has ended, and its output was read to the end

    def read(self) -> bytes:
        """The next part of the output; empty if there is no more at present."""
        while True:
            ended = self._ended()  # before reading, because the last output precedes the end
            start, records = self._reader.read(self._offset, READ)
            if start > self._offset and not (records and records[0][0] <= self._since):
                self.missed += start - self._offset
            self._offset = start + sum(len(data) for _, data in records)
            part = b"".join(data for at, data in records if at >= self._since)
            self.over = ended and not records
            if part or not records:
                return part

    def _ended(self) -> bool:
        return self._folder.state().get("state") == FINAL or not os.path.isdir(self._folder.path)


class LogConnection(StreamConnection):
    """A reader's connection. What the reader sends is ignored."""

    def __init__(
        self, loop: StreamLoop, near: socket.socket, peer: Peer, follower: LogFollower, closed: Callable[[], None]
    ) -> None:
        super().__init__(loop, near, peer)
        self._follower, self._closed = follower, closed

    def pump(self) -> None:
        for _ in range(READS_A_TURN):
            if self._ending() or not self.has_room():
                return
            data = self._follower.read()
            if self._follower.missed and not self._report_gap():
                return
            if not data:
                if self._follower.over:
                    self.close(Closed(NORMAL))
                    self.send()
                return
            self._out.put(self._peer.message(data))
            self.send()
        self._loop.call(self.step)

    def _report_gap(self) -> bool:
        """Part of the log was deleted. End the stream, whose reader may count bytes. Returns whether it goes on."""
        self.close(Closed(FAILED, "%d bytes of the log aren't on its host any more" % self._follower.missed))
        self.send()
        return False

    def release(self) -> None:
        self._closed()


class ViewerConnection(LogConnection):
    """A connection whose reader only shows the log: a line says how much is missing."""

    dialled = False
    alive_for = 0.0  # on the loopback, where the other end never disappears silently

    def _report_gap(self) -> bool:
        line = "… %d bytes of log aren't on this host any more: see `dstack logs` …\r\n" % self._follower.missed
        self._follower.missed = 0
        self._out.put(self._peer.message(line.encode("utf-8")))
        return True


class LogStreams:
    """The readers of the logs of this machine's tasks. Its methods may be called from any thread."""

    def __init__(self, loop: StreamLoop, folder_of: FolderOf, port: int = networks.LOG_PORT) -> None:
        self._loop, self._folder_of, self._port = loop, folder_of, port
        self._lock = threading.Lock()
        self._readers: Dict[str, Set[LogConnection]] = {}
        self._ended: Dict[str, float] = {}  # when `reading` was first called for an ended task
        self._listeners: Dict[Optional[str], LogListener] = {}  # by task; None is the machine's own network
        self._roots: Dict[
            str, Callable[[], List[int]]
        ] = {}  # of tasks in that network: their ancestors, likeliest first

    def opener(self, task: str, order: StreamOrder) -> StreamFactory:
        """An opener for `AgentStreams.serve`."""
        since = int(order.get("since") or 0)
        return lambda loop, near, peer: self._add_reader(LogConnection, near, peer, task, since)

    def _add_reader(self, kind: type, near: socket.socket, peer: Peer, task: str, since: int) -> LogConnection:
        follower = LogFollower(self._folder_of(task), since)
        reader: LogConnection = kind(self._loop, near, peer, follower, lambda: self._remove_reader(task, reader))
        with self._lock:
            self._readers.setdefault(task, set()).add(reader)
        return reader

    def _remove_reader(self, task: str, reader: LogConnection) -> None:
        with self._lock:
            readers = self._readers.get(task, set())
            readers.discard(reader)
            if not readers:
                self._readers.pop(task, None)

    def grew(self, task: str) -> None:
        """Wake the readers: there is more output, or the task has ended."""
        with self._lock:
            readers = list(self._readers.get(task, ()))
        for reader in readers:
            self._loop.call(reader.step)

    def reading(self, task: str) -> bool:
        """Is the log of this ended task still being read? After `LINGER` seconds readers don't count any more."""
        with self._lock:
            if task not in self._readers:
                self._ended.pop(task, None)
                return False
            return time.monotonic() < self._ended.setdefault(task, time.monotonic()) + LINGER

    # The port in the job's network ----------------------------------------------------------------------------------

    def serve(self, task: str, network: Optional[int], roots: Callable[[], List[int]]) -> bool:
        """Serve the task's log in this network (`networks.open_network`); in the machine's own (None) to the processes
        below `roots`. False if the port is taken, by the job itself or by another agent. Raises OSError."""
        with self._lock:
            if network is None:
                self._roots[task] = roots
        return self._open(None if network is None else task, network)

    def serve_on(self, listener: socket.socket) -> None:
        """Serve logs on this listener, in the machine's own network."""
        self._listen(None, listener)

    def _open(self, key: Optional[str], network: Optional[int]) -> bool:
        with self._lock:
            if key in self._listeners:
                return True
            try:
                listener = networks.listen(network, self._port)
            except OSError as problem:
                if problem.errno == errno.EADDRINUSE:
                    return False
                raise
            self._listen(key, listener)
            return True

    def _listen(self, key: Optional[str], listener: socket.socket) -> None:
        self._listeners[key] = LogListener(self._loop, listener, lambda call, path: self._reader_for(key, call, path))

    def unserve(self, task: str) -> None:
        with self._lock:
            self._roots.pop(task, None)
            listener = self._listeners.pop(task, None)  # that of the machine's own network stays
        if listener is not None:
            self._loop.call(listener.close)

    def _reader_for(self, key: Optional[str], call: socket.socket, path: str) -> Optional[StreamConnection]:
        """A reader for a request of /logs_ws; None for anything else."""
        name, _, query = path.partition("?")
        since = parse_time(parse_qs(query).get("start_time", [""])[-1])
        if name != "/logs_ws" or since is None:
            return None
        task = key or self._task_of(call)
        if task is None or self._crowded(task):
            return None
        return self._add_reader(ViewerConnection, call, Peer(client=False), task, since)

    def _crowded(self, task: str) -> bool:
        with self._lock:
            readers = self._readers.get(task, set())
            return sum(isinstance(reader, ViewerConnection) for reader in readers) >= READERS_MOST

    def _task_of(self, call: socket.socket) -> Optional[str]:
        """The task of the process that calls. Searched for twice: while processes end, one may be missed."""
        with self._lock:
            roots = list(self._roots.items())
        inode = inode_of(call.getpeername()[1], call.getsockname()[1])
        ranked = sorted((place, task, root) for task, found in roots for place, root in enumerate(found()))
        for _, task, root in ranked * 2 if inode else ():
            if has_socket(root, inode) or any(has_socket(pid, inode) for pid in process_tree.below(root)):
                return task
        return None


class LogListener:
    """A listening socket on the loop, and its callers whose request isn't complete yet."""

    def __init__(
        self,
        loop: StreamLoop,
        listener: socket.socket,
        admit: Callable[[socket.socket, str], Optional[StreamConnection]],
    ) -> None:
        listener.setblocking(False)
        self._loop, self._listener, self._admit = loop, listener, admit
        self.callers: Set[LogCaller] = set()
        loop.call(lambda: loop.watch(listener, selectors.EVENT_READ, self._accept))

    def _accept(self, _: int) -> None:
        try:
            call, _address = self._listener.accept()
        except OSError:
            return  # the caller has gone already
        if len(self.callers) >= CALLERS_MOST:
            call.close()
            return
        LogCaller(self._loop, call, self._admit, self.callers)

    def close(self) -> None:
        self._loop.watch(self._listener, 0, self._accept)
        self._listener.close()
        for caller in list(self.callers):
            caller.end()


class LogCaller:
    """A caller whose request for a WebSocket is being read."""

    def __init__(
        self,
        loop: StreamLoop,
        call: socket.socket,
        admit: Callable[[socket.socket, str], Optional[StreamConnection]],
        callers: "Set[LogCaller]",
    ) -> None:
        call.setblocking(False)
        self._loop, self._call, self._admit, self._callers = loop, call, admit, callers
        self._received, self._until = b"", time.monotonic() + HEAD_SECONDS
        callers.add(self)
        loop.watched.add(self)
        loop.watch(call, selectors.EVENT_READ, self._read)

    def check(self, now: float) -> None:
        if now >= self._until:
            self.end()

    def _read(self, _: int) -> None:
        try:
            more = receive(self._call)
        except OSError:
            more = b""
        if more is None:
            return
        self._received += more
        if b"\r\n\r\n" in self._received:
            self._upgrade()
        elif not more or len(self._received) > HEAD_BYTES:
            self.end()

    def _upgrade(self) -> None:
        head, _, early = self._received.partition(b"\r\n\r\n")
        first, headers = websocket.parse_head(head)
        method, _, target = first.partition(" ")
        try:
            key = websocket.key_of(headers)
        except websocket.ProtocolError as problem:
            self._refuse("400 Bad Request", str(problem))
            return
        reader = self._admit(self._call, target.partition(" ")[0]) if method == "GET" else None
        if reader is None:
            self._refuse(
                "404 Not Found", "only the log of your job is here, at /logs_ws, for %d readers at most" % READERS_MOST
            )
            return
        self._leave()
        self._call.send(
            websocket.handshake_response(key)
        )  # the first bytes of this connection, for which there is room
        reader.begin(early)

    def _refuse(self, status: str, message: str) -> None:
        body = (message + "\n").encode("utf-8")
        head = "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        with contextlib.suppress(OSError):  # the caller has gone
            self._call.send((head % (status, len(body))).encode("ascii") + body)
        self.end()

    def _leave(self) -> None:
        self._callers.discard(self)
        self._loop.watched.discard(self)
        self._loop.watch(self._call, 0, self._read)

    def end(self) -> None:
        self._leave()
        self._call.close()


def parse_time(text: str) -> Optional[int]:
    """A time in microseconds; 0 for an empty text, None for an invalid one. Python 3.8 itself parses fewer forms."""
    if not text:
        return 0
    found = re.match(r"^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+ -]\d\d:?\d\d)?$", text)
    if found is None:
        return None
    day, clock, fraction, zone = found.groups()
    zone = (zone or "Z").replace("Z", "+0000").replace(" ", "+").replace(":", "")  # a plus in an address is a space
    try:
        at = datetime.strptime("%sT%s%s" % (day, clock, zone), "%Y-%m-%dT%H:%M:%S%z")
    except ValueError:
        return None
    seconds = int((at - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds())
    return max(0, seconds * 1000000 + int((fraction or "0")[:6].ljust(6, "0")))


# The other end of a connection on the loopback ------------------------------------------------------------------------


def inode_of(port: int, peer_port: int) -> str:
    """The inode of the socket at 127.0.0.1:`port` that is connected to 127.0.0.1:`peer_port`; empty for none."""
    loopback = struct.unpack("=I", socket.inet_aton("127.0.0.1"))[0]
    addresses = ["%08X:%04X" % (loopback, number) for number in (port, peer_port)]
    for line in (read_text("/proc/net/tcp") or "").splitlines()[1:]:
        fields = line.split()
        if fields[1:3] == addresses:
            return fields[9]
    return ""


def has_socket(pid: int, inode: str) -> bool:
    """Has this process the socket open?"""
    folder, target = "/proc/%d/fd" % pid, "socket:[%s]" % inode
    try:
        return any(_link(os.path.join(folder, name)) == target for name in os.listdir(folder))
    except OSError:
        return False  # it has ended, or is another user's


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
