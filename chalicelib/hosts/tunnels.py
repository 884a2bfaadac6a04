"""Hosts that can't reach the server: their agents' calls are carried back over an SSH connection that we keep open.

A tunnel listens on the host's loopback, at a port that the host chooses, and writes that address to a file that the
agent rereads. If the connection breaks, it is reopened, and the agent finds the new address in the file.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import shlex
import socket
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from chalicelib.domain import keys
from chalicelib.domain.contacts import Contact
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.errors import BackendError, Transient
from chalicelib.hosts import install
from chalicelib.hosts.connection import Connection, Login
from chalicelib.hosts.look import SCRIPT, report
from chalicelib.hosts.steps import Logins
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from chalicelib.store.port import Store

log = logging.getLogger(__name__)

LOOK_EVERY = 2.0  # seconds between looks at which tunnels are wanted
AGAIN_AFTER = (1.0, 60.0)  # seconds after a failure: the first pause, and the longest
MOST_CALLS = 16  # at once over one tunnel, each at four descriptors here; an agent makes a few
_CHUNK = 64 * 1024


class Tunnels:
    """Keeps a tunnel open to every host that needs one, each on a thread of its own."""

    def __init__(
        self,
        store: Store,
        logins: Logins,
        login_of: Callable[[Instance], Login],
        install_id: str,
        server: tuple[str, int],
    ) -> None:
        """`server`: host and port to connect to from here."""
        self._store, self._logins, self._login_of = store, logins, login_of
        self._install_id, self._server = install_id, server
        self._stop = threading.Event()
        self._open: dict[str, _Tunnel] = {}
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, name="tunnels", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                self._match(self._wanted())
            except Exception:  # the store is failing; open tunnels stay open
                log.exception("looking for hosts that need a tunnel failed")
            self._stop.wait(LOOK_EVERY)
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
            tunnel = _Tunnel(instance.name, owner, contact, self._logins, login, self._server)
            self._open[instance_id] = tunnel
            tunnel.start()


class _Tunnel(threading.Thread):
    def __init__(
        self,
        name: str,
        owner: str,
        contact: Contact,
        logins: Logins,
        login: Callable[[], Login],
        server: tuple[str, int],
    ) -> None:
        super().__init__(name=f"tunnel to {name}", daemon=True)
        self._owner, self._contact, self._logins, self._login = owner, contact, logins, login
        self._server, self._closing = server, threading.Event()

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
        with self._logins.connect(login) as connection, contextlib.closing(Carrier(self._server)) as carrier:
            port = connection.transport.request_port_forward("127.0.0.1", 0, carrier.take)
            self._tell(connection, port)
            while connection.transport.is_active() and not self._closing.is_set():
                carrier.move()

    def _tell(self, connection: Connection, port: int) -> None:
        """Once the host is ours, write the tunnel's address to the file that the agent rereads."""
        sudo = report(connection.run(SCRIPT).out).as_root
        script = install.follow(self._owner, f"http://127.0.0.1:{port}")
        if connection.run(f"{sudo} sh -c {shlex.quote(script)}".strip()).status:
            raise Transient("the host isn't set up yet")


class Carrier:
    """Moves bytes between the channels of one connection and the server, on the thread that calls `move`."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._ways = selectors.DefaultSelector()
        self._bell, self._ring = socket.socketpair()
        self._bell.setblocking(False)
        self._ways.register(self._bell, selectors.EVENT_READ)
        self._new: list[Any] = []
        self._calls = 0  # that are open, new ones included
        self._lock = threading.Lock()

    def take(self, channel: Any, *_: object) -> None:
        """A new channel; called by paramiko's own thread. Whoever has an account on the host can open them."""
        with self._lock:
            if self._calls >= MOST_CALLS:
                channel.close()
                return
            self._calls += 1
            self._new.append(channel)
        self._ring.send(b"!")

    def move(self, timeout: float = 1.0) -> None:
        for key, _ in self._ways.select(timeout):
            if key.fileobj is self._bell:
                self._bell.recv(4096)
                self._adopt()
            else:
                self._pass_on(key.fileobj, key.data)

    def _adopt(self) -> None:
        with self._lock:
            fresh, self._new = self._new, []
        for channel in fresh:
            try:
                ours = socket.create_connection(self._server, timeout=5)
            except OSError:
                self._end(channel)
                continue
            self._ways.register(channel, selectors.EVENT_READ, ours)
            self._ways.register(ours, selectors.EVENT_READ, channel)

    def _pass_on(self, source: Any, target: Any) -> None:
        try:
            data = source.recv(_CHUNK)
            if data:
                target.sendall(data)
                return
        except OSError:
            data = b""
        with contextlib.suppress(KeyError, ValueError):  # its other end was first in the same round
            self._ways.unregister(source)
            self._ways.unregister(target)
            self._end(source, target)

    def _end(self, *ends: Any) -> None:
        for end in ends:
            end.close()
        with self._lock:
            self._calls -= 1

    def close(self) -> None:
        ends: Iterable[Any] = [key.fileobj for key in list(self._ways.get_map().values())]
        self._ways.close()
        for end in (*ends, self._ring, *self._new):
            end.close()
