"""The wires of a site: a control from which only the head is reached, and workers that only the head reaches.

    control 198.18.0.1 ── 198.18.0.2 head 198.18.1.1 ─┬─ 198.18.1.11 w1
                                                      └─ 198.18.1.12 w2
                                     head 198.18.2.1 ─┬─ 198.18.2.12 w2, on two networks
                                                      └─ 198.18.2.13 w3

Each is a network namespace of its own, so every site may use the same addresses (of the range for benchmarks, which
nobody routes), and the machine's own network isn't touched: wires are made inside the namespaces.
"""

from __future__ import annotations

import ctypes
import http.client
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.e2e.hosts.claim import NAMESPACES
from tests.harness.debian import NotHere, run

CONTROL, HEAD = "198.18.0.1", "198.18.0.2"
CLONE_NEWNET = 0x40000000
T = TypeVar("T")


@dataclass(frozen=True)
class Wire:
    """One interface of a worker. `plug` is its other end, in the head."""

    worker: str
    interface: str
    plug: str
    bridge: str
    address: str


def plan(workers: Mapping[str, Sequence[str]]) -> list[Wire]:
    """The wires of workers on named networks. A network's number is its turn, a worker's is the same on each."""
    names = list(dict.fromkeys(network for networks in workers.values() for network in networks))
    return [
        Wire(worker, f"eth{turn}", f"p{number}-{turn}", f"br{subnet}", f"198.18.{subnet}.{10 + number}")
        for number, (worker, networks) in enumerate(workers.items(), 1)
        for turn, network in enumerate(networks)
        for subnet in [names.index(network) + 1]
    ]


@dataclass(frozen=True)
class Namespace:
    """A place in the network, from which programs can be run and sockets opened."""

    name: str

    @property
    def path(self) -> Path:
        return NAMESPACES / self.name

    @property
    def prefix(self) -> tuple[str, ...]:
        """What to put before a command to run it here. Not `ip netns exec`: that remounts /sys, without cgroups."""
        return ("nsenter", f"--net={self.path}", "--")

    def run(self, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        options = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL, "timeout": 120.0, **options}
        return subprocess.run([*self.prefix, *command], **options)

    def connect(self, address: tuple[str, int], timeout: float | None = 10.0) -> socket.socket:
        """A connection from here for this process."""
        return self.within(lambda: socket.create_connection(address, timeout))

    def listen(self, address: tuple[str, int]) -> socket.socket:
        """A listener here, of this process."""
        return self.within(lambda: socket.create_server(address))

    def within(self, make: Callable[[], T]) -> T:
        """Sockets and processes stay where they were made: a thread goes there for them."""

        def there() -> T:
            self._enter()
            return make()

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(there).result()

    def _enter(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        with self.path.open("rb") as file:
            if libc.setns(file.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"can't enter {self.path}")

    def opener(self) -> urllib.request.OpenerDirector:
        """Calls URLs from here, past every proxy."""
        return urllib.request.build_opener(urllib.request.ProxyHandler({}), _Handler(self))


class _Handler(urllib.request.HTTPHandler):
    def __init__(self, namespace: Namespace) -> None:
        super().__init__()
        self.namespace = namespace

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        def connection(host: str, **options: Any) -> http.client.HTTPConnection:
            made = http.client.HTTPConnection(host, **options)
            made.sock = self.namespace.connect((made.host, made.port), made.timeout)
            return made

        return self.do_open(connection, request)  # type: ignore[arg-type]


class Network:
    def __init__(
        self, site: str, workers: Mapping[str, Sequence[str]], *, workers_reach_plane: bool, control: str = ""
    ) -> None:
        self.site, self.wires = site, plan(workers)
        self.control, self.head = Namespace(control or f"{site}-control"), Namespace(f"{site}-head")
        self.workers = {worker: Namespace(f"{site}-{worker}") for worker in workers}
        self._reach, self._own_control = workers_reach_plane, not control

    def up(self) -> None:
        for namespace in (*([self.control] if self._own_control else []), self.head, *self.workers.values()):
            run("ip", "netns", "add", namespace.name)
            _links(namespace, "link set lo up")
        self._wire_control()
        self._wire_workers()
        run(*self.head.prefix, "sysctl", "-qw", f"net.ipv4.ip_forward={int(self._reach)}")
        if self._reach:
            self._let_workers_out()

    def _wire_control(self) -> None:
        peer = f"type veth peer name plane netns {self.head.name}"
        _links(self.control, f"link add head0 {peer}", f"addr add {CONTROL}/24 dev head0", "link set head0 up")
        _links(self.head, f"addr add {HEAD}/24 dev plane", "link set plane up")

    def _wire_workers(self) -> None:
        for bridge, subnet in {wire.bridge: wire.address.rpartition(".")[0] for wire in self.wires}.items():
            made = f"link add {bridge} type bridge"
            _links(self.head, made, f"addr add {subnet}.1/24 dev {bridge}", f"link set {bridge} up")
        _links(self.head, *(line for wire in self.wires for line in self._plugged(wire)))
        for wire in self.wires:
            own = (f"addr add {wire.address}/24 dev {wire.interface}", f"link set {wire.interface} up")
            _links(self.workers[wire.worker], *own)

    def _plugged(self, wire: Wire) -> list[str]:
        peer = f"peer name {wire.interface} netns {self.workers[wire.worker].name}"
        return [f"link add {wire.plug} type veth {peer}", f"link set {wire.plug} master {wire.bridge} up"]

    def _let_workers_out(self) -> None:
        """By way of the head, behind its address: from control, workers are as unreachable as before."""
        head = self.head.prefix
        run(*head, "iptables", "-t", "nat", "-A", "POSTROUTING", "-o", "plane", "-j", "MASQUERADE")
        run(*head, "iptables", "-I", "FORWARD", "-o", "plane", "-j", "ACCEPT")
        run(*head, "iptables", "-I", "FORWARD", "-i", "plane", "-m", "state", "--state", "ESTABLISHED", "-j", "ACCEPT")
        for wire in self.wires:
            if wire.interface == "eth0":
                gateway = wire.address.rpartition(".")[0] + ".1"
                _links(self.workers[wire.worker], f"route add default via {gateway}")

    def plug(self, host: str, state: str, interface: str = "") -> None:
        """`up` or `down`, at the head's end: one interface of a worker, or all; of the head, its way to control."""
        wires = [wire for wire in self.wires if wire.worker == host]
        plugs = [wire.plug for wire in wires if interface in ("", wire.interface)] if wires else ["plane"]
        assert plugs, f"{host} has no {interface}"
        _links(self.head, *(f"link set {plug} {state}" for plug in plugs))

    def addresses(self, worker: str) -> list[str]:
        return [wire.address for wire in self.wires if wire.worker == worker] or [HEAD]


def _links(namespace: Namespace, *lines: str) -> None:
    done = subprocess.run(
        ["ip", "-n", namespace.name, "-batch", "-"], input="\n".join(lines), capture_output=True, text=True
    )
    if done.returncode:
        raise NotHere(f"the network of {namespace.name} can't be made: {done.stderr.strip()}")
