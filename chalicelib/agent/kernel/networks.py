"""Sockets in a job's network, to connect to a port there or to listen on one.

A container has a network namespace of its own, whose 127.0.0.1 can't be reached from outside. A single thread can enter
the namespace, and a socket stays in the one where it was created; so a thread enters, creates the socket, and ends.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Optional, Tuple, Union

from .lazy import LazyModule

if TYPE_CHECKING:
    import ctypes
else:
    ctypes = LazyModule("ctypes")

LOG_PORT = 10999  # of the job's log in its network (`log_stream`)
LOOPBACK = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
CLONE_NEWNET = 0x40000000
CONNECT_SECONDS = 5.0


@functools.lru_cache(maxsize=None)
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def open_network(pid_of: Callable[[], Optional[int]]) -> Iterator[Optional[int]]:
    """A descriptor of a job's network; None for the machine's own. `pid_of` returns a process in that network, or None.
    It is called twice, because the job may end in between and its pid be reused. Raises OSError."""
    pid = pid_of()
    if pid is None:
        yield None
        return
    namespace = os.open("/proc/%d/ns/net" % pid, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if pid_of() != pid:
            raise ProcessLookupError(errno.ESRCH, "the job has ended")
        yield namespace
    finally:
        os.close(namespace)


def connect(network: Optional[int], port: int) -> socket.socket:
    """A blocking connection to this loopback port in a network (`open_network`). Raises OSError."""
    return _within(network, lambda: _connected(port))


def start_connecting(network: Optional[int], port: int, place: int) -> socket.socket:
    """Start a non-blocking connection to this port at an address of `LOOPBACK`. Raises OSError."""
    return _within(network, lambda: _start_connecting(LOOPBACK[place], port))


def listen(network: Optional[int], port: int, address: str = "127.0.0.1") -> socket.socket:
    """A listening socket; with port 0 the kernel chooses one. Raises OSError."""
    return _within(network, lambda: _listening(port, address))


def log_port(port: int = LOG_PORT) -> Optional[socket.socket]:
    """Listen on the log's port in the machine's own network before there are jobs; None if the port is taken. A client
    on this machine that follows a run forwards a free local port to this one, so it must find this one occupied. Raises
    OSError."""
    try:
        return listen(None, port)
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            return None
        raise


def has_connection(pid: int, caller: Tuple[str, int]) -> bool:
    """Does the network of this process have the connection that comes from `caller`? What answers at a container's
    address may be something else, such as a proxy, or a container of another network with the same address."""
    address, port = caller
    remote = "%08X:%04X" % (struct.unpack("=I", socket.inet_aton(address))[0], port)
    for name in ("tcp", "tcp6"):  # tcp6 has those to sockets that accept both families
        try:
            with open("/proc/%d/net/%s" % (pid, name), encoding="ascii") as table:
                if any(line.split()[2].endswith(remote) for line in table):
                    return True
        except FileNotFoundError:
            continue  # the machine has no IPv6, or the process has ended
    return False


def _connected(port: int) -> socket.socket:
    for family, address in LOOPBACK:
        try:
            return _connected_to(family, address, port)
        except OSError as problem:
            if family == socket.AF_INET6 and problem.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                problem = ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            if family == socket.AF_INET6 or problem.errno != errno.ECONNREFUSED:
                raise problem from None
    raise AssertionError("one of the families answers or raises")


def _connected_to(family: int, address: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(CONNECT_SECONDS)
        sock.connect((address, port))
        sock.settimeout(None)
    except OSError:
        sock.close()
        raise
    return sock


def _start_connecting(place: Tuple[int, str], port: int) -> socket.socket:
    sock = socket.socket(place[0], socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        problem = sock.connect_ex((place[1], port))
        if problem not in (0, errno.EINPROGRESS):
            raise OSError(problem, os.strerror(problem))
    except OSError:
        sock.close()
        raise
    return sock


def _listening(port: int, address: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen(64)
    except OSError:
        sock.close()
        raise
    return sock


def _within(network: Optional[int], make: Callable[[], socket.socket]) -> socket.socket:
    if network is None or os.path.samestat(os.fstat(network), os.stat("/proc/self/ns/net")):
        return make()  # without a namespace to enter, which would need privileges
    return _in_thread(network, make)


def _in_thread(namespace: int, make: Callable[[], socket.socket]) -> socket.socket:
    outcome: List[Union[socket.socket, Exception]] = []

    def work() -> None:
        try:
            if _libc().setns(namespace, CLONE_NEWNET):
                number = ctypes.get_errno()
                raise OSError(number, "entering the job's network: %s" % os.strerror(number))
            outcome.append(make())
        except Exception as problem:  # the waiting thread raises it
            outcome.append(problem)

    thread = threading.Thread(target=work, name="network", daemon=True)
    thread.start()
    thread.join()
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]
