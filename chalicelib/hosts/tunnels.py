"""Tunnels for hosts that can't reach the server: their agents' calls come back over an SSH connection from the server.

A tunnel listens on the host's loopback, at a port that the host chooses, and writes that address to a file that the
agent rereads. If the connection breaks, it is reopened, and the agent finds the new address in the file. The step that
starts an agent does the same, so that the agent has the address at once, and hands its connection over to the tunnel.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import resource
import selectors
import shlex
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from chalicelib.domain import keys
from chalicelib.domain.contacts import Contact
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.errors import BackendError, Transient
from chalicelib.hosts import install
from chalicelib.hosts.connection import HostConnection, HostLogin, HostLogins
from chalicelib.hosts.inspection import SHORT, parse_report
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from chalicelib.store.port import Store

log = logging.getLogger(__name__)

CHECK_EVERY = 2.0  # seconds between two checks of which tunnels are needed
AGAIN_AFTER = (1.0, 60.0)  # seconds after a failure: the first pause, and the longest
LEAST_CALLS = 16  # guaranteed to each tunnel at once: an agent makes a few, and each of its streams is one
MOST_CALLS = 256  # of one tunnel, as far as there are descriptors for all
DRAIN_SECONDS = 30.0  # for delivering what one side sent before it ended
AGAIN_EVERY = 0.01  # seconds between two tries to write to a full channel
_CHUNK, _FULL = 64 * 1024, 256 * 1024


def loopback(port: int) -> str:
    """The server's address at the host's end of a tunnel."""
    return f"http://127.0.0.1:{port}"


class Tunnels:
    """Maintains a tunnel to every host that needs one, each on a thread of its own."""

    def __init__(
        self,
        store: Store,
        logins: HostLogins,
        login_of: Callable[[Instance], HostLogin],
        install_id: str,
        server: tuple[str, int],
        every: float = CHECK_EVERY,
    ) -> None:
        """`server`: host and port to connect to from here."""
        self._store, self._logins, self._login_of = store, logins, login_of
        self._install_id, self._server, self._every = install_id, server, every
        self._stop, self._bell = threading.Event(), threading.Event()
        self._spare = SpareCalls.of_descriptors()
        self._open: dict[str, _Tunnel] = {}
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, name="tunnels", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Check now, because another tunnel is needed."""
        self._bell.set()

    def stop(self) -> None:
        self._stop.set()
        self._bell.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _watch(self) -> None:
        while True:
            self._bell.clear()
            if self._stop.is_set():
                break
            try:
                self._match(self._needed())
            except Exception:  # the store is failing; open tunnels stay open
                log.exception("looking for hosts that need a tunnel failed")
            self._bell.wait(self._every)
        self._match({})

    def _needed(self) -> dict[str, tuple[Instance, Contact]]:
        records = all_of(self._store, "gsi1", keys.TUNNELS)
        contacts = [nouns.read(Contact, record) for record in records]
        found = nouns.find_many(self._store, Instance, [keys.instance(each.instance_id) for each in contacts])
        return {
            instance.id: (instance, contact)
            for instance, contact in zip(found, contacts, strict=True)
            if instance is not None and instance.status is not InstanceStatus.terminated
        }

    def _match(self, events: dict[str, tuple[Instance, Contact]]) -> None:
        for instance_id in self._open.keys() - events.keys():
            self._open.pop(instance_id).close()
        for instance_id in events.keys() - self._open.keys():
            instance, contact = events[instance_id]
            owner = f"{self._install_id}/{instance_id}"
            login = partial(self._login_of, instance)
            tunnel = _Tunnel(instance.name, owner, contact, self._logins, login, self._server, self._spare)
            self._open[instance_id] = tunnel
            tunnel.start()


class _Tunnel(threading.Thread):
    def __init__(
        self,
        name: str,
        owner: str,
        contact: Contact,
        logins: HostLogins,
        login: Callable[[], HostLogin],
        server: tuple[str, int],
        spare: SpareCalls,
    ) -> None:
        super().__init__(name=f"tunnel to {name}", daemon=True)
        self._owner, self._contact, self._logins, self._login = owner, contact, logins, login
        self._server, self._spare, self._closing = server, spare, threading.Event()

    def close(self) -> None:
        self._closing.set()

    def run(self) -> None:
        pause, longest = AGAIN_AFTER
        while not self._closing.is_set():
            try:
                self._run_connection()
                pause = AGAIN_AFTER[0]
            except BackendError as error:
                log.warning("%s: %s; trying again in %.0f s", self.name, error, pause)
            except Exception:
                log.exception("%s failed; trying again in %.0f s", self.name, pause)
            self._closing.wait(pause)
            pause = min(pause * 2, longest)

    def _run_connection(self) -> None:
        """Serve one connection until it breaks or is no longer needed."""
        login = self._login().expecting(self._contact.shown)
        with (
            self._logins.connect(login) as connection,
            contextlib.closing(Carrier(self._server, self._spare)) as carrier,
        ):
            address_known = connection.port != 0  # written by the step that handed the connection over
            port = connection.listen()
            connection.calls_go_to(carrier.take)
            if not address_known:
                self._write_address(connection, port)
            while connection.transport.is_active() and not self._closing.is_set():
                carrier.move()

    def _write_address(self, connection: HostConnection, port: int) -> None:
        """Write the tunnel's address to the file that the agent rereads, once the host is ours."""
        sudo = (connection.report or parse_report(connection.run(SHORT).out)).as_root
        script = install.follow(self._owner, loopback(port))
        if connection.run(f"{sudo} sh -c {shlex.quote(script)}".strip()).status:
            raise Transient("the host isn't set up yet")


class SpareCalls:
    """The calls beyond each tunnel's LEAST_CALLS, shared by all tunnels: each costs three descriptors here, and every
    user of a host can open some."""

    def __init__(self, most: int) -> None:
        self._remaining, self._lock = most, threading.Lock()

    @classmethod
    def of_descriptors(cls) -> SpareCalls:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return cls(4096 if limit == resource.RLIM_INFINITY else limit // 32)

    def take(self) -> bool:
        with self._lock:
            if not self._remaining:
                return False
            self._remaining -= 1
            return True

    def give(self) -> None:
        with self._lock:
            self._remaining += 1


class _Call:
    """A channel and its connection to the server. Bytes that one side doesn't read are buffered here, and while many
    are, the other side isn't read: so each call is throttled by itself, without affecting others."""

    def __init__(self, channel: Any, server_end: socket.socket) -> None:
        self.channel, self.server_end = channel, server_end
        self.waiting: dict[Any, bytes] = {channel: b"", server_end: b""}
        self.until = math.inf  # after one side has ended: the deadline for delivering the buffered bytes
        self.broken = False
        for end in (channel, server_end):
            end.setblocking(False)

    def read(self, source: Any) -> None:
        target = self.server_end if source is self.channel else self.channel
        try:
            data = source.recv(_CHUNK)
        except (BlockingIOError, TimeoutError):
            return
        except OSError:
            data = b""
        if not data:
            self.until = time.monotonic() + DRAIN_SECONDS
        self.waiting[target] += data
        self.write(target)

    def write(self, target: Any) -> None:
        try:
            while waiting := self.waiting[target]:
                sent = target.send(waiting)
                if not sent:  # a closed channel
                    self.broken = True
                    return
                self.waiting[target] = waiting[sent:]
        except (BlockingIOError, TimeoutError):
            return
        except OSError:
            self.broken = True

    @property
    def over(self) -> bool:
        ended = self.until < math.inf and not any(self.waiting.values())
        return self.broken or ended or time.monotonic() >= self.until

    def events(self, end: Any) -> int:
        """The events to wait for at this end. Channels don't signal when they can be written."""
        opposite = self.server_end if end is self.channel else self.channel
        reads = len(self.waiting[opposite]) < _FULL and self.until == math.inf
        writes = end is self.server_end and self.waiting[end]
        return (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if writes else 0)


class Carrier:
    """Passes bytes between the channels of one connection and the server, on the thread that calls `move`."""

    def __init__(
        self,
        server: tuple[str, int],
        spare: SpareCalls | None = None,
        opened: Callable[[socket.AddressFamily], socket.socket] = socket.socket,
    ) -> None:
        self._server, self._spare, self._socket = server, spare or SpareCalls(MOST_CALLS), opened
        self._selector = selectors.DefaultSelector()
        self._bell, self._ring = socket.socketpair()
        self._bell.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._new: list[Any] = []
        self._open: set[_Call] = set()
        self._calls = 0  # open calls, including new ones
        self._lock = threading.Lock()

    def take(self, channel: Any, *_: object) -> None:
        """Take a new channel. Called on paramiko's own thread; every user of the host can open channels."""
        with self._lock:
            if self._calls >= MOST_CALLS or (self._calls >= LEAST_CALLS and not self._spare.take()):
                channel.close()
                return
            self._calls += 1
            self._new.append(channel)
        self._ring.send(b"!")

    def move(self, timeout: float = 1.0) -> None:
        stuck = [call for call in self._open if call.waiting[call.channel]]
        for key, events in self._selector.select(min(timeout, AGAIN_EVERY) if stuck else timeout):
            if key.fileobj is self._bell:
                self._bell.recv(4096)
                self._adopt()
            elif not key.data.broken:
                if events & selectors.EVENT_WRITE:
                    key.data.write(key.fileobj)
                if events & selectors.EVENT_READ:
                    key.data.read(key.fileobj)
                self._update_events(key.data)
        for call in stuck:
            if call in self._open:
                call.write(call.channel)
                self._update_events(call)
        for call in [call for call in self._open if call.over]:
            self._end(call)

    def _adopt(self) -> None:
        with self._lock:
            new, self._new = self._new, []
        for channel in new:
            try:
                channel.fileno()  # paramiko allocates a channel's descriptors on the first call
                server_end = self._socket(socket.AF_INET6 if ":" in self._server[0] else socket.AF_INET)
            except OSError as error:  # no descriptor is left; the caller may try again
                log.warning("a call over a tunnel can't be taken: %s", error)
                channel.close()
                self._give()
                continue
            call = _Call(channel, server_end)
            self._open.add(call)
            if server_end.connect_ex(self._server) in (0, errno.EINPROGRESS):
                self._update_events(call)
            else:
                self._end(call)

    def _give(self) -> None:
        """Release a call's place."""
        with self._lock:
            self._calls -= 1
            if self._calls >= LEAST_CALLS:
                self._spare.give()

    def _update_events(self, call: _Call) -> None:
        """Register the events that the call needs next."""
        if call.over:
            self._end(call)
            return
        for end in (call.channel, call.server_end):
            known, events = self._selector.get_map().get(end), call.events(end)
            if known is None and events:
                self._selector.register(end, events, call)
            elif known is not None and not events:
                self._selector.unregister(end)
            elif known is not None and known.events != events:
                self._selector.modify(end, events, call)

    def _end(self, call: _Call) -> None:
        if call not in self._open:
            return
        self._open.discard(call)
        for end in (call.channel, call.server_end):
            if end in self._selector.get_map():
                self._selector.unregister(end)
            end.close()
        call.broken = True
        self._give()

    def close(self) -> None:
        for call in list(self._open):
            self._end(call)
        self._selector.close()
        with self._lock:
            new, self._new = self._new, []
        for _ in new:
            self._give()
        for end in (*new, self._bell, self._ring):
            end.close()
