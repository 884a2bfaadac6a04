"""Sockets in another process's network, with a namespace that a process of a few milliseconds makes."""

from __future__ import annotations

import errno
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.agent.kernel import networks
from tests.harness.descriptors import descriptors, opened_since
from tests.harness.server import until

APART = """
import ctypes, fcntl, socket, struct, sys
if ctypes.CDLL(None, use_errno=True).unshare(0x40000000):
    sys.exit(7)
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(probe, 0x8914, struct.pack("16sh", b"lo", 1) + bytes(14))  # SIOCSIFFLAGS, IFF_UP
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    call, _ = server.accept()
    call.sendall(b"from inside")
    call.close()
"""


@pytest.fixture(scope="module")
def apart() -> Iterator[tuple[int, int]]:
    """A network of its own, held, and the port on which a process serves there."""
    with subprocess.Popen([sys.executable, "-S", "-c", APART], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line and process.wait() == 7:
            pytest.skip("this account can't make network namespaces")
        with networks.open_network(lambda: process.pid) as network:
            assert network is not None
            yield network, int(line)
        process.kill()


def test_reaches_a_port_that_exists_only_in_the_jobs_network(apart: tuple[int, int]) -> None:
    network, port = apart
    with networks.connect(network, port) as inside:
        assert inside.makefile("rb").read() == b"from inside"


def test_a_port_of_the_host_isnt_reached_in_the_jobs_network(apart: tuple[int, int]) -> None:
    with networks.listen(None, 0) as own, pytest.raises(ConnectionRefusedError):
        networks.connect(apart[0], own.getsockname()[1])


def test_what_listens_in_the_jobs_network_is_reached_only_there(apart: tuple[int, int]) -> None:
    network, _ = apart
    with networks.listen(network, 0) as listener:
        port = listener.getsockname()[1]
        with networks.connect(network, port) as caller, listener.accept()[0] as served:
            caller.sendall(b"x")
            assert served.recv(1) == b"x"
        with pytest.raises(ConnectionRefusedError):
            networks.connect(None, port)


def test_a_port_is_served_once(apart: tuple[int, int]) -> None:
    with networks.listen(apart[0], 0) as listener, pytest.raises(OSError) as refused:
        networks.listen(apart[0], listener.getsockname()[1])
    assert refused.value.errno == errno.EADDRINUSE


def test_the_agent_itself_stays_in_its_network(apart: tuple[int, int]) -> None:
    networks.listen(apart[0], 0).close()
    own = Path("/proc/thread-self/ns/net").readlink()

    def all_stay() -> bool:
        return all(_network(each) in (own, None) for each in Path("/proc/self/task").iterdir())

    until("the thread that entered to be gone from the kernel too", all_stay)
    assert Path("/proc/self/ns/net").stat().st_ino != os.fstat(apart[0]).st_ino


def _network(thread: Path) -> Path | None:
    try:
        return (thread / "ns/net").readlink()
    except OSError:  # it has just ended
        return None


def test_a_process_in_our_own_network_needs_no_entering() -> None:
    with (
        networks.open_network(os.getpid) as network,
        networks.listen(network, 0) as own,
        networks.connect(None, own.getsockname()[1]) as caller,
    ):
        assert caller.gettimeout() is None


def test_a_service_on_the_ipv6_loopback_only_is_reached() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and doesn't listen, so nobody else answers at this port of the other loopback
        port = taken.getsockname()[1]
        try:
            server = socket.create_server(("::1", port), family=socket.AF_INET6)
        except OSError:
            pytest.skip("no IPv6 here")
        with server, networks.connect(None, port):
            server.accept()[0].close()


def test_a_port_that_nobody_serves_refuses() -> None:
    with networks.listen(None, 0) as own:
        port = own.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        networks.connect(None, port)


def test_a_process_that_is_gone_is_an_error() -> None:
    with pytest.raises(FileNotFoundError), networks.open_network(lambda: 2**22 + 1):
        raise AssertionError("there is no such network")


@pytest.mark.parametrize("now", [None, os.getppid()], ids=["nobody", "another"])
def test_a_job_that_ends_meanwhile_leaves_its_number_to_nobody(now: int | None) -> None:
    """What was opened by then might be the network of the machine."""
    before, answers = descriptors(), iter([os.getpid(), now])
    with pytest.raises(ProcessLookupError, match="the job has ended"), networks.open_network(lambda: next(answers)):
        raise AssertionError("it must not be used")
    assert not opened_since(before)


def test_no_descriptor_is_left(apart: tuple[int, int]) -> None:
    networks.connect(*apart).close()
    before, threads = descriptors(), set(threading.enumerate())
    for _ in range(20):
        networks.connect(*apart).close()
        with pytest.raises(ConnectionRefusedError):
            networks.connect(apart[0], 1)
    assert not opened_since(before) and set(threading.enumerate()) <= threads


def test_a_connection_on_its_way_blocks_nobody_and_arrives_in_the_jobs_network(apart: tuple[int, int]) -> None:
    with networks.start_connecting(*apart, 0) as made:
        assert not made.getblocking()
        decided(made)
        made.setblocking(True)
        assert made.recv(100) == b"from inside"
    before = descriptors()
    with networks.start_connecting(apart[0], 1, 0) as made:
        decided(made)
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED
    assert not opened_since(before)


def decided(made: socket.socket) -> None:
    assert select.select([], [made], [], 120)[1]


@pytest.mark.parametrize("address", ["127.0.0.1", "::"])
def test_a_connection_is_known_where_it_arrives(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        server = socket.create_server((address, 0), family=family, dualstack_ipv6=family == socket.AF_INET6)
    except (OSError, ValueError):
        pytest.skip("no IPv6 here")
    with server, socket.create_connection(("127.0.0.1", server.getsockname()[1])) as made:
        assert networks.has_connection(os.getpid(), made.getsockname())
        assert not networks.has_connection(os.getpid(), ("127.0.0.9", made.getsockname()[1]))
        assert not networks.has_connection(2**22 + 1, made.getsockname())
