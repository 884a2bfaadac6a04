"""Relays on head nodes, for hosts that can't reach the server where no connection to them can stay open.

A relay is a systemd socket on the head node, with `systemd-socket-proxyd` behind it. It listens at the address at which
the hosts see the head node, which must be a private one, and passes bytes on to the server's address: it holds no key
and doesn't terminate TLS. Its address identifies it completely, so setting it up and removing it need nothing else, and
all hosts that see the head node at that address share it; the last one to leave removes it.

| path on the head node | what |
|---|---|
| /etc/systemd/system/dstack-relay-*.socket, .service | the socket, and the proxy behind it |
| /var/lib/dstack-relay/*/ | an empty file for each host that uses it |
"""

from __future__ import annotations

import hashlib
import ipaddress
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from chalicelib.domain.ids import server_mark
from chalicelib.errors import Transient, Unfit
from chalicelib.hosts import reachability
from chalicelib.hosts.connection import HostConnection, HostLogin, HostLogins, Ran
from chalicelib.hosts.inspection import RELAYING, HostReport, Lack, basics, parse_report

UNITS = "/etc/systemd/system"
FOLDER = "/var/lib/dstack-relay"
PORTS = range(20000, 30000)  # below the ephemeral ports of Linux
MOST_CALLS = 4096  # at once: agents keep two connections each, and a fleet has 1000 hosts


@dataclass(frozen=True)
class HeadRelays:
    logins: HostLogins
    install_id: str
    server_url: str

    def place(self, head: HostLogin, login_address: str) -> str:
        """The address at which this head node can listen for a host that logs in from `login_address`. Raises Unfit if
        it can't relay."""
        address = _private(login_address)
        with self._on(head) as (connection, host):
            missing = tuple(_lacks(host, head.user))
            if missing:
                raise Unfit(f"its head node {head} can't relay its calls: " + "; ".join(map(str, missing)))
            if _as_root(connection, host, reachability.reach(self.server_url, server_mark(self.install_id))).status:
                raise Unfit(f"nor can its head node {head}")
        return f"[{address}]:{self._port(address)}" if ":" in address else f"{address}:{self._port(address)}"

    def set_up(self, head: HostLogin, relay: str, instance_id: str) -> None:
        with self._on(head) as (connection, host):
            name, folder = self._name(relay), f"{FOLDER}/{self._name(relay)}"
            script = _SET_UP.format(
                units=UNITS,
                folder=folder,
                mark=f"{folder}/{instance_id}",
                name=name,
                service=shlex.quote(_service(name, host.proxyd, self._server)),
                socket=shlex.quote(_socket(relay)),
                relay=shlex.quote(relay),
            )
            _must(_as_root(connection, host, script), head)

    def give_up(self, head: HostLogin, relay: str, instance_id: str) -> None:
        """Stop using the relay for this host. The last one to do so removes it."""
        with self._on(head) as (connection, host):
            name, folder = self._name(relay), f"{FOLDER}/{self._name(relay)}"
            script = _GIVE_UP.format(units=UNITS, all=FOLDER, folder=folder, mark=f"{folder}/{instance_id}", name=name)
            _must(_as_root(connection, host, script), head)

    @property
    def _server(self) -> str:
        parts = urlsplit(self.server_url)
        return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"

    def _port(self, address: str) -> int:
        """The relay's port, which is the same for all hosts that share it, so that a firewall can admit it."""
        digest = hashlib.sha256(f"{self.install_id}/{address}/{self._server}".encode()).digest()
        return PORTS[int.from_bytes(digest[:4], "big") % len(PORTS)]

    def _name(self, relay: str) -> str:
        return f"dstack-relay-{self.install_id[:8]}-{hashlib.sha256(relay.encode()).hexdigest()[:8]}"

    @contextmanager
    def _on(self, head: HostLogin) -> Iterator[tuple[HostConnection, HostReport]]:
        with self.logins.connect(head) as connection:
            host = parse_report(connection.run(RELAYING, timeout=30.0).out)
            if not host.complete:
                raise Transient(f"{head}: inspecting the head node was cut short")
            yield connection, host


def _private(login_address: str) -> str:
    """The address, if it is private: the relay must not be reachable from the internet. Raises Unfit."""
    try:
        address = ipaddress.ip_address(login_address)
    except ValueError:
        raise Unfit(f"where it sees its head node isn't known (SSH_CONNECTION begins with {login_address!r})") from None
    if address.is_global or address.is_link_local or address.is_loopback:
        raise Unfit(f"it sees its head node at {address}, where that can't relay its calls: it isn't a private address")
    return str(address)


def _lacks(host: HostReport, user: str) -> Iterator[Lack]:
    yield from basics(host, user)
    if not host.proxyd:
        yield Lack("its systemd has no systemd-socket-proxyd", "sudo apt-get install --reinstall systemd")


def _as_root(connection: HostConnection, host: HostReport, script: str) -> Ran:
    return connection.run(f"{host.as_root} sh -c {shlex.quote(script)}".strip())


def _must(ran: Ran, head: HostLogin) -> None:
    if ran.status:
        raise Transient(f"{head}: {ran.last_line}")


def _service(name: str, program: str, server: str) -> str:
    return f"""[Unit]
Description=dstack relay: passes the calls of hosts behind this machine on to {server}, unopened
Requires={name}.socket
After={name}.socket

[Service]
Type=notify
ExecStart={program} --connections-max={MOST_CALLS} {server}
DynamicUser=yes
LimitNOFILE={8 * MOST_CALLS}
TimeoutStopSec=5
"""


def _socket(relay: str) -> str:
    """The socket's unit. `FreeBind` lets it start before the network."""
    return f"""[Unit]
Description=dstack relay: where the hosts behind this machine call

[Socket]
ListenStream={relay}
FreeBind=yes
NoDelay=yes

[Install]
WantedBy=sockets.target
"""


# Hosts may be set up and cleared at the same time, so their marks are counted under a lock, which leaves no file
# behind.
_SET_UP = """
set -eu
exec 9< {units}
flock 9
mkdir -p {folder}
: > {mark}
printf %s {service} > {units}/{name}.service
printf %s {socket} > {units}/{name}.socket
chmod 644 {units}/{name}.service {units}/{name}.socket
systemctl enable --quiet --no-reload {name}.socket
systemctl daemon-reload
systemctl start {name}.socket 2>/dev/null || {{
  echo "it can't listen at" {relay}: "$(journalctl -u {name}.socket -n 20 -o cat --no-pager | grep -m 1 -i failed)" >&2
  exit 1; }}
"""

_GIVE_UP = """
set -eu
exec 9< {units}
flock 9
rm -f {mark}
rmdir {folder} 2>/dev/null || [ ! -e {folder} ] || exit 0
systemctl disable --quiet --now {name}.socket 2>/dev/null || true
systemctl stop {name}.socket {name}.service 2>/dev/null || true
rm -f {units}/{name}.socket {units}/{name}.service
systemctl daemon-reload
systemctl reset-failed {name}.socket {name}.service 2>/dev/null || true
rmdir {all} 2>/dev/null || true
"""
