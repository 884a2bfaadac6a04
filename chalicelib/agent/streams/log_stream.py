"""A job's output as bytes over a WebSocket: from its beginning, then as it is written, to its end.

It is the target `logs` of streams, and `GET /logs_ws` on port 10999 of the job's network, which SSH clients that are
logged in to the job forward. Jobs in the machine's own network share that port: there the caller's process shows which
job's log is meant, and a caller that belongs to no job gets none.
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
from typing import Callable, Dict, List, Optional, Set
from urllib.parse import parse_qs

from ..kernel import networks, process_tree
from ..kernel.spool import ReplayReader
from ..kernel.tasks import FINAL, TaskFolder, read_text
from . import websocket
from .stream_loop import READ, StreamConnection, StreamLoop, receive
from .streams import Begun, Order
from .websocket import FAILED, NORMAL, Closed, Peer

IN_A_ROW = 16  # pieces sent to one reader before the others get their turn
LINGER = 15.0  # seconds for which an ended task waits for those who still read its log
HEAD_BYTES = 16 * 1024
HEAD_SECONDS = 10.0
GUESTS_MOST = 64  # callers of one listener whose request isn't complete
READERS_MOST = 16  # of one task's log on its port: a job can call there as often as it likes

FolderOf = Callable[[str], TaskFolder]


class LogFollower:
    """Where one reader is in a task's output."""

    def __init__(self, folder: TaskFolder, since: int = 0) -> None:
        """`since`: the first moment to show, in microseconds."""
        self._folder, self._since = folder, since
        self._reader = ReplayReader(folder.log)
        self._offset = 0
        self.missed = 0  # bytes that aren't here any more, and were to be shown
        self.over = False  # the task has ended, and all was read

    def read(self) -> bytes:
        """What there is now, in part; empty if there is nothing more at present."""
        while True:
            ended = self._ended()  # asked before reading: the end comes after the last byte
            begins, records = self._reader.read(self._offset, READ)
            if begins > self._offset and not (records and records[0][0] <= self._since):
                self.missed += begins - self._offset
            self._offset = begins + sum(len(data) for _, data in records)
            shown = b"".join(data for at, data in records if at >= self._since)
            self.over = ended and not records
            if shown or not records:
                return shown

    def _ended(self) -> bool:
        return self._folder.state().get("state") == FINAL or not os.path.isdir(self._folder.path)


class Following(StreamConnection):
    """A reader's connection. What it sends isn't listened to."""

    def __init__(
        self, loop: StreamLoop, near: socket.socket, peer: Peer, follower: LogFollower, done: Callable[[], None]
    ) -> None:
        super().__init__(loop, near, peer)
        self._follower, self._done = follower, done

    def pump(self) -> None:
        for _ in range(IN_A_ROW):
            if self._ending() or not self.has_room():
                return
            data = self._follower.read()
            if self._follower.missed and not self._left_out():
                return
            if not data:
                if self._follower.over:
                    self.close(Closed(NORMAL))
                    self.send()
                return
            self._out.put(self._peer.message(data))
            self.send()
        self._loop.call(self.step)

    def _left_out(self) -> bool:
        """Part of the log isn't here: a program that counts bytes has to know, so its stream ends."""
        self.close(Closed(FAILED, "%d bytes of the log aren't on its host any more" % self._follower.missed))
        self.send()
        return False

    def release(self) -> None:
        self._done()


class FollowingPeople(Following):
    """The same for whoever only shows it: a line says what is missing."""

    dialled = False
    alive_for = 0.0  # over a loopback, whose other end never vanishes silently

    def _left_out(self) -> bool:
        line = "… %d bytes of log aren't on this host any more: see `dstack logs` …\r\n" % self._follower.missed
        self._follower.missed = 0
        self._out.put(self._peer.message(line.encode("utf-8")))
        return True


class LogStreams:
    """Everybody who reads the output of this machine's tasks. Its methods may be called from any thread."""

    def __init__(self, loop: StreamLoop, folder_of: FolderOf, port: int = networks.LOG_PORT) -> None:
        self._loop, self._folder_of, self._port = loop, folder_of, port
        self._lock = threading.Lock()
        self._readers: Dict[str, Set[Following]] = {}
        self._ended: Dict[str, float] = {}  # when a task was first asked whether it is still read
        self._doors: Dict[Optional[str], LogListener] = {}  # by task; None is the machine's own network
        self._roots: Dict[str, Callable[[], List[int]]] = {}  # of tasks there: what they stand below, likeliest first

    def opener(self, task: str, order: Order) -> Begun:
        """For `Streams.serve`."""
        since = int(order.get("since") or 0)
        return lambda loop, near, peer: self._following(Following, near, peer, task, since)

    def _following(self, kind: type, near: socket.socket, peer: Peer, task: str, since: int) -> Following:
        follower = LogFollower(self._folder_of(task), since)
        made: Following = kind(self._loop, near, peer, follower, lambda: self._left(task, made))
        with self._lock:
            self._readers.setdefault(task, set()).add(made)
        return made

    def _left(self, task: str, reader: Following) -> None:
        with self._lock:
            readers = self._readers.get(task, set())
            readers.discard(reader)
            if not readers:
                self._readers.pop(task, None)

    def grew(self, task: str) -> None:
        """There is more output, or the task has ended."""
        with self._lock:
            readers = list(self._readers.get(task, ()))
        for reader in readers:
            self._loop.call(reader.step)

    def reading(self, task: str) -> bool:
        """Does somebody still read the log of this ended task? Only so long: a reader can't keep it for ever."""
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

    def serve_here(self, listener: socket.socket) -> None:
        """From now on at this one, in the machine's own network."""
        self._attend(None, listener)

    def _open(self, where: Optional[str], network: Optional[int]) -> bool:
        with self._lock:
            if where in self._doors:
                return True
            try:
                listener = networks.listen(network, self._port)
            except OSError as problem:
                if problem.errno == errno.EADDRINUSE:
                    return False
                raise
            self._attend(where, listener)
            return True

    def _attend(self, where: Optional[str], listener: socket.socket) -> None:
        self._doors[where] = LogListener(self._loop, listener, lambda call, path: self._admitted(where, call, path))

    def unserve(self, task: str) -> None:
        with self._lock:
            self._roots.pop(task, None)
            door = self._doors.pop(task, None)  # that of the machine's own network stays
        if door is not None:
            self._loop.call(door.close)

    def _admitted(self, where: Optional[str], call: socket.socket, path: str) -> Optional[StreamConnection]:
        """Who asks for /logs_ws becomes a reader; None for anything else."""
        name, _, query = path.partition("?")
        since = since_of(parse_qs(query).get("start_time", [""])[-1])
        if name != "/logs_ws" or since is None:
            return None
        task = where or self._task_of(call)
        if task is None or self._crowded(task):
            return None
        return self._following(FollowingPeople, call, Peer(client=False), task, since)

    def _crowded(self, task: str) -> bool:
        with self._lock:
            readers = self._readers.get(task, set())
            return sum(isinstance(reader, FollowingPeople) for reader in readers) >= READERS_MOST

    def _task_of(self, call: socket.socket) -> Optional[str]:
        """Looked for twice: while processes end, a walk may miss one."""
        with self._lock:
            roots = list(self._roots.items())
        inode = inode_of(call.getpeername()[1], call.getsockname()[1])
        ranked = sorted((place, task, root) for task, found in roots for place, root in enumerate(found()))
        for _, task, root in ranked * 2 if inode else ():
            if holds(root, inode) or any(holds(pid, inode) for pid in process_tree.below(root)):
                return task
        return None


class LogListener:
    """A listening socket on the loop, and those whose request isn't complete yet."""

    def __init__(
        self,
        loop: StreamLoop,
        listener: socket.socket,
        admit: Callable[[socket.socket, str], Optional[StreamConnection]],
    ) -> None:
        listener.setblocking(False)
        self._loop, self._listener, self._admit = loop, listener, admit
        self.guests: Set[LogCaller] = set()
        loop.call(lambda: loop.watch(listener, selectors.EVENT_READ, self._accept))

    def _accept(self, _: int) -> None:
        try:
            call, _address = self._listener.accept()
        except OSError:
            return  # gone again
        if len(self.guests) >= GUESTS_MOST:
            call.close()
            return
        LogCaller(self._loop, call, self._admit, self.guests)

    def close(self) -> None:
        self._loop.watch(self._listener, 0, self._accept)
        self._listener.close()
        for guest in list(self.guests):
            guest.end()


class LogCaller:
    """A caller whose request for a WebSocket is being read."""

    def __init__(
        self,
        loop: StreamLoop,
        call: socket.socket,
        admit: Callable[[socket.socket, str], Optional[StreamConnection]],
        guests: "Set[LogCaller]",
    ) -> None:
        call.setblocking(False)
        self._loop, self._call, self._admit, self._guests = loop, call, admit, guests
        self._said, self._until = b"", time.monotonic() + HEAD_SECONDS
        guests.add(self)
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
        self._said += more
        if b"\r\n\r\n" in self._said:
            self._upgrade()
        elif not more or len(self._said) > HEAD_BYTES:
            self.end()

    def _upgrade(self) -> None:
        head, _, early = self._said.partition(b"\r\n\r\n")
        first, headers = websocket.parse_head(head)
        method, _, rest = first.partition(" ")
        try:
            key = websocket.key_of(headers)
        except websocket.ProtocolBroken as problem:
            self._refuse("400 Bad Request", str(problem))
            return
        reader = self._admit(self._call, rest.partition(" ")[0]) if method == "GET" else None
        if reader is None:
            self._refuse(
                "404 Not Found", "there is only the log of your job here, at /logs_ws, for %d readers" % READERS_MOST
            )
            return
        self._leave()
        self._call.send(websocket.welcome(key))  # the first bytes on this connection: there is room for them
        reader.begin(early)

    def _refuse(self, status: str, words: str) -> None:
        body = (words + "\n").encode("utf-8")
        head = "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        with contextlib.suppress(OSError):  # gone, and so it needs no answer
            self._call.send((head % (status, len(body))).encode("ascii") + body)
        self.end()

    def _leave(self) -> None:
        self._guests.discard(self)
        self._loop.watched.discard(self)
        self._loop.watch(self._call, 0, self._read)

    def end(self) -> None:
        self._leave()
        self._call.close()


def since_of(text: str) -> Optional[int]:
    """A moment in microseconds; 0 for none, None for what is no moment. Python 3.8 reads fewer forms by itself."""
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
    whole = int((at - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds())
    return max(0, whole * 1000000 + int((fraction or "0")[:6].ljust(6, "0")))


# Who is at the other end of a connection on the loopback --------------------------------------------------------------


def inode_of(theirs: int, ours: int) -> str:
    """The inode of the socket at 127.0.0.1 on port `theirs` that is connected to port `ours`; empty for none."""
    loopback = struct.unpack("=I", socket.inet_aton("127.0.0.1"))[0]
    wanted = ["%08X:%04X" % (loopback, port) for port in (theirs, ours)]
    for line in (read_text("/proc/net/tcp") or "").splitlines()[1:]:
        fields = line.split()
        if fields[1:3] == wanted:
            return fields[9]
    return ""


def holds(pid: int, inode: str) -> bool:
    """Has this process that socket?"""
    folder, wanted = "/proc/%d/fd" % pid, "socket:[%s]" % inode
    try:
        return any(_link(os.path.join(folder, name)) == wanted for name in os.listdir(folder))
    except OSError:
        return False  # gone, or another user's


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
