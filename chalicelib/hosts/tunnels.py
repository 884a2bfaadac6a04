"""Hosts that can't reach the server: their agents' calls are carried back over an SSH connection that we keep open.

A tunnel listens on the host's loopback, at a port that the host chooses, and writes that address to a file that the
agent rereads. If the connection breaks, it is reopened, and the agent finds the new address in the file. The step that
starts an agent does the same, so that it knows the way at once, and leaves its connection to us.
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
from chalicelib.hosts.inspection import SHORT, report
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from chalicelib.store.port import Store

log = logging.getLogger(__name__)

LOOK_EVERY = 2.0  # seconds between looks at which tunnels are wanted
AGAIN_AFTER = (1.0, 60.0)  # seconds after a failure: the first pause, and the longest
LEAST_CALLS = 16  # at once over one tunnel: an agent makes a few, and each of its streams is one
MOST_CALLS = 256  # as far as all tunnels together have descriptors
REST_SECONDS = 30.0  # for what one side sent, after it has ended
AGAIN_EVERY = 0.01  # seconds between two tries at a channel that takes nothing now
_CHUNK, _FULL = 64 * 1024, 256 * 1024


def loopback(port: int) -> str:
    """The server's address at the host's end of a tunnel."""
    return f"http://127.0.0.1:{port}"


class Tunnels:
    """Keeps a tunnel open to every host that needs one, each on a thread of its own."""

    def __init__(
        self,
        store: Store,
        logins: HostLogins,
        login_of: Callable[[Instance], HostLogin],
        install_id: str,
        server: tuple[str, int],
        every: float = LOOK_EVERY,
    ) -> None:
        """`server`: host and port to connect to from here."""
        self._store, self._logins, self._login_of = store, logins, login_of
        self._install_id, self._server, self._every = install_id, server, every
        self._stop, self._bell = threading.Event(), threading.Event()
        self._spare = Spare.of_descriptors()
        self._open: dict[str, _Tunnel] = {}
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, name="tunnels", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Now: another one is wanted."""
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
                self._match(self._wanted())
            except Exception:  # the store is failing; open tunnels stay open
                log.exception("looking for hosts that need a tunnel failed")
            self._bell.wait(self._every)
        self._match({})

    def _wanted(self) -> dict[str, tuple[Instance, Contact]]:
        records = all_of(self._store, "gsi1", keys.TUNNELS)
        contacts = [nouns.read(Contact, record) for record in records]
        found = nouns.find_many(self._store, Instance, [keys.instance(each.instance_id) for each in contacts])
        return {
            instance.id: (instance, contact)
            for instance, contact in zip(found, contacts, strict=True)
            if instance is not None and instance.status is not InstanceStatus.terminated
        }

    def _match(self, wanted: dict[str, tuple[Instance, Contact]]) -> None:
        for instance_id in self._open.keys() - wanted.keys():
            self._open.pop(instance_id).close()
        for instance_id in wanted.keys() - self._open.keys():
            instance, contact = wanted[instance_id]
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
        spare: Spare,
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
                self._carry()
                pause = AGAIN_AFTER[0]
            except BackendError as error:
                log.warning("%s: %s; trying again in %.0f s", self.name, error, pause)
            except Exception:
                log.exception("%s failed; trying again in %.0f s", self.name, pause)
            self._closing.wait(pause)
            pause = min(pause * 2, longest)

    def _carry(self) -> None:
        """One connection, until it breaks or is no longer wanted."""
        login = self._login().expecting(self._contact.shown)
        with (
            self._logins.connect(login) as connection,
            contextlib.closing(Carrier(self._server, self._spare)) as carrier,
        ):
            told = connection.port != 0  # by the step that left the connection
            port = connection.listen()
            connection.calls_go_to(carrier.take)
            if not told:
                self._tell(connection, port)
            while connection.transport.is_active() and not self._closing.is_set():
                carrier.move()

    def _tell(self, connection: HostConnection, port: int) -> None:
        """Once the host is ours, write the tunnel's address to the file that the agent rereads."""
        sudo = (connection.seen or report(connection.run(SHORT).out)).as_root
        script = install.follow(self._owner, loopback(port))
        if connection.run(f"{sudo} sh -c {shlex.quote(script)}".strip()).status:
            raise Transient("the host isn't set up yet")


class Spare:
    """Calls beyond each tunnel's LEAST_CALLS, shared by all tunnels: each costs three descriptors here, and whoever has
    an account on a host can open them."""

    def __init__(self, most: int) -> None:
        self._left, self._lock = most, threading.Lock()

    @classmethod
    def of_descriptors(cls) -> Spare:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return cls(4096 if limit == resource.RLIM_INFINITY else limit // 32)

    def take(self) -> bool:
        with self._lock:
            if not self._left:
                return False
            self._left -= 1
            return True

    def give(self) -> None:
        with self._lock:
            self._left += 1


class _Call:
    """A channel and the connection to the server that it goes on as. What one side doesn't take waits here, and while
    much does, the other side isn't read: so each call stops by itself, and no other with it."""

    def __init__(self, channel: Any, ours: socket.socket) -> None:
        self.channel, self.ours = channel, ours
        self.waiting: dict[Any, bytes] = {channel: b"", ours: b""}
        self.until = math.inf  # one side has ended: when the other must have taken the rest
        self.broken = False
        for end in (channel, ours):
            end.setblocking(False)

    def read(self, source: Any) -> None:
        target = self.ours if source is self.channel else self.channel
        try:
            data = source.recv(_CHUNK)
        except (BlockingIOError, TimeoutError):
            return
        except OSError:
            data = b""
        if not data:
            self.until = time.monotonic() + REST_SECONDS
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

    def wanted(self, end: Any) -> int:
        """What to wait for at this end; a channel can't be waited for to take more."""
        other = self.ours if end is self.channel else self.channel
        reads = len(self.waiting[other]) < _FULL and self.until == math.inf
        writes = end is self.ours and self.waiting[end]
        return (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if writes else 0)


class Carrier:
    """Moves bytes between the channels of one connection and the server, on the thread that calls `move`."""

    def __init__(
        self,
        server: tuple[str, int],
        spare: Spare | None = None,
        opened: Callable[[socket.AddressFamily], socket.socket] = socket.socket,
    ) -> None:
        self._server, self._spare, self._socket = server, spare or Spare(MOST_CALLS), opened
        self._ways = selectors.DefaultSelector()
        self._bell, self._ring = socket.socketpair()
        self._bell.setblocking(False)
        self._ways.register(self._bell, selectors.EVENT_READ)
        self._new: list[Any] = []
        self._open: set[_Call] = set()
        self._calls = 0  # that are open, new ones included
        self._lock = threading.Lock()

    def take(self, channel: Any, *_: object) -> None:
        """A new channel; called by paramiko's own thread. Whoever has an account on the host can open them."""
        with self._lock:
            if self._calls >= MOST_CALLS or (self._calls >= LEAST_CALLS and not self._spare.take()):
                channel.close()
                return
            self._calls += 1
            self._new.append(channel)
        self._ring.send(b"!")

    def move(self, timeout: float = 1.0) -> None:
        stuck = [call for call in self._open if call.waiting[call.channel]]
        for key, events in self._ways.select(min(timeout, AGAIN_EVERY) if stuck else timeout):
            if key.fileobj is self._bell:
                self._bell.recv(4096)
                self._adopt()
            elif not key.data.broken:
                if events & selectors.EVENT_WRITE:
                    key.data.write(key.fileobj)
                if events & selectors.EVENT_READ:
                    key.data.read(key.fileobj)
                self._look(key.data)
        for call in stuck:
            if call in self._open:
                call.write(call.channel)
                self._look(call)
        for call in [call for call in self._open if call.over]:
            self._end(call)

    def _adopt(self) -> None:
        with self._lock:
            fresh, self._new = self._new, []
        for channel in fresh:
            try:
                channel.fileno()  # a channel of paramiko's takes its descriptors when it is first asked for them
                ours = self._socket(socket.AF_INET6 if ":" in self._server[0] else socket.AF_INET)
            except OSError as error:  # none is left: whoever called may call again
                log.warning("a call over a tunnel can't be taken: %s", error)
                channel.close()
                self._give()
                continue
            call = _Call(channel, ours)
            self._open.add(call)
            if ours.connect_ex(self._server) in (0, errno.EINPROGRESS):
                self._look(call)
            else:
                self._end(call)

    def _give(self) -> None:
        """A call's place, back."""
        with self._lock:
            self._calls -= 1
            if self._calls >= LEAST_CALLS:
                self._spare.give()

    def _look(self, call: _Call) -> None:
        """Wait for what the call needs next."""
        if call.over:
            self._end(call)
            return
        for end in (call.channel, call.ours):
            known, wanted = self._ways.get_map().get(end), call.wanted(end)
            if known is None and wanted:
                self._ways.register(end, wanted, call)
            elif known is not None and not wanted:
                self._ways.unregister(end)
            elif known is not None and known.events != wanted:
                self._ways.modify(end, wanted, call)

    def _end(self, call: _Call) -> None:
        if call not in self._open:
            return
        self._open.discard(call)
        for end in (call.channel, call.ours):
            if end in self._ways.get_map():
                self._ways.unregister(end)
            end.close()
        call.broken = True
        self._give()

    def close(self) -> None:
        for call in list(self._open):
            self._end(call)
        self._ways.close()
        with self._lock:
            fresh, self._new = self._new, []
        for _ in fresh:
            self._give()
        for end in (*fresh, self._bell, self._ring):
            end.close()
