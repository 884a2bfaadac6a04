"""Sockets in the network of a job: to reach a port there, or to serve one.

A container has a network namespace of its own, whose 127.0.0.1 nobody else reaches. A thread may enter it by itself,
and a socket stays where it was made; so a thread enters, makes the socket, and ends.
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

LOG_PORT = 10999  # where a job's log is served in its network (`log_stream`)
LOOPBACK = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
CLONE_NEWNET = 0x40000000
CONNECT_SECONDS = 5.0


@functools.lru_cache(maxsize=None)
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def held(pid_of: Callable[[], Optional[int]]) -> Iterator[Optional[int]]:
    """A job's network, open until it was used; None is the machine's own. `pid_of` says which process is there, or
    None, and is asked twice: the job may end meanwhile, and its number may be that of a process of the machine's by
    then. Raises OSError."""
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
    """A blocking connection to what listens on this loopback port, in this network (`held`). Raises OSError."""
    return _within(network, lambda: _connected(port))


def connecting(network: Optional[int], port: int, place: int) -> socket.socket:
    """A connection that doesn't block, on its way to this port at a place of `LOOPBACK`. Raises OSError."""
    return _within(network, lambda: _on_its_way(LOOPBACK[place], port))


def listen(network: Optional[int], port: int, address: str = "127.0.0.1") -> socket.socket:
    """A listening socket; with port 0 the kernel chooses one. Raises OSError."""
    return _within(network, lambda: _listening(port, address))


def log_port(port: int = LOG_PORT) -> Optional[socket.socket]:
    """Take the port in the machine's own network before there are jobs; None: somebody has it. A client on this very
    machine that follows a run looks for a free port to read the log at, and sends what comes there to this one: two it
    must be. Raises OSError."""
    try:
        return listen(None, port)
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            return None
        raise


def arrived(pid: int, caller: Tuple[str, int]) -> bool:
    """Is the connection whose near end has this address known in the network of that process? What answers at an
    address of a container may be something else: another's container behind an address alike, or a proxy."""
    address, port = caller
    wanted = "%08X:%04X" % (struct.unpack("=I", socket.inet_aton(address))[0], port)
    for name in ("tcp", "tcp6"):  # the latter has those to sockets that take both
        try:
            with open("/proc/%d/net/%s" % (pid, name), encoding="ascii") as table:
                if any(line.split()[2].endswith(wanted) for line in table):
                    return True
        except FileNotFoundError:
            continue  # no IPv6, or the process has ended
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
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.settimeout(CONNECT_SECONDS)
        made.connect((address, port))
        made.settimeout(None)
    except OSError:
        made.close()
        raise
    return made


def _on_its_way(place: Tuple[int, str], port: int) -> socket.socket:
    made = socket.socket(place[0], socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        problem = made.connect_ex((place[1], port))
        if problem not in (0, errno.EINPROGRESS):
            raise OSError(problem, os.strerror(problem))
    except OSError:
        made.close()
        raise
    return made


def _listening(port: int, address: str) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        made.listen(64)
    except OSError:
        made.close()
        raise
    return made


def _within(network: Optional[int], make: Callable[[], socket.socket]) -> socket.socket:
    if network is None or os.path.samestat(os.fstat(network), os.stat("/proc/self/ns/net")):
        return make()  # which needs no privilege
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
