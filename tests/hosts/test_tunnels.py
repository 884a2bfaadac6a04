"""Tunnels and their calls, which everybody with an account on the host can make, and each of which costs the server
descriptors."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from chalicelib.domain.contacts import Contact
from chalicelib.hosts.connection import HostLogin, Ran
from chalicelib.hosts.inspection import HostReport
from chalicelib.hosts.tunnels import LEAST_CALLS, MOST_CALLS, Carrier, SpareCalls, Tunnels
from chalicelib.store import nouns
from chalicelib.store.memory import MemoryStore
from tests.harness.server import until
from tests.world import nouns as b


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that sends back what it gets."""

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = listener.accept()
                threading.Thread(target=answer, args=(accepted,), daemon=True).start()

    def answer(accepted: socket.socket) -> None:
        with accepted:
            while data := accepted.recv(100):
                accepted.sendall(data)

    with socket.create_server(("127.0.0.1", 0), backlog=200) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield listener.getsockname()[:2]
        listener.shutdown(socket.SHUT_RDWR)


def call(carrier: Carrier) -> socket.socket:
    near, far = socket.socketpair()
    near.settimeout(120)
    carrier.take(far)
    return near


def answered(carrier: Carrier, caller: socket.socket) -> bool:
    try:
        caller.sendall(b"hello")
    except BrokenPipeError:
        return False
    caller.setblocking(False)
    for _ in range(2000):
        carrier.move(0.1)
        with contextlib.suppress(BlockingIOError):
            return caller.recv(100) == b"hello"
    return False


@pytest.mark.slow
def test_a_tunnel_carries_so_many_calls_and_no_more(echo: tuple[str, int]) -> None:
    with contextlib.closing(Carrier(echo)) as carrier:
        callers = [call(carrier) for _ in range(MOST_CALLS + 20)]
        carrier.move(0.1)
        assert [answered(carrier, caller) for caller in callers] == [True] * MOST_CALLS + [False] * 20
        callers[0].close()
        carrier.move(1.0)
        assert answered(carrier, call(carrier)), "an end makes room for another"
        for caller in callers:
            caller.close()


@pytest.mark.slow
def test_calls_while_the_server_is_away_cost_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = gone.getsockname()[:2]
    with contextlib.closing(Carrier(address)) as carrier:
        for _ in range(MOST_CALLS * 3):
            caller = call(carrier)
            while carrier._new or carrier._open:
                carrier.move(0.1)
            assert caller.recv(1) == b"", "it is closed"
        carrier.move(0)


def test_tunnels_share_the_calls_beyond_their_least(echo: tuple[str, int]) -> None:
    spare = SpareCalls(3)
    with contextlib.closing(Carrier(echo, spare)) as one, contextlib.closing(Carrier(echo, spare)) as other:
        greedy = [call(one) for _ in range(LEAST_CALLS + 5)]
        assert [answered(one, caller) for caller in greedy] == [True] * (LEAST_CALLS + 3) + [False] * 2
        modest = [call(other) for _ in range(LEAST_CALLS + 1)]
        assert [answered(other, caller) for caller in modest] == [True] * LEAST_CALLS + [False]
        greedy[0].close()
        while len(one._open) > LEAST_CALLS + 2:
            one.move(1.0)
        assert answered(other, call(other)), "what one gives back another may have"
    assert all(spare.take() for _ in range(3)) and not spare.take(), "all was given back"


@pytest.mark.slow
def test_a_call_that_nobody_reads_stops_no_other_and_keeps_little(echo: tuple[str, int]) -> None:
    with contextlib.closing(Carrier(echo)) as carrier:
        stuck, lively = call(carrier), call(carrier)
        stuck.setblocking(False)
        sent, idle = 0, 0
        while idle < 20:  # it sends as long as anything is taken, and never reads what comes back
            try:
                sent += stuck.send(bytes(65536))
                idle = 0
            except BlockingIOError:
                idle += 1
            carrier.move(0.01)
        assert all(len(buffer) < 2**20 for each in carrier._open for buffer in each.waiting.values())
        for _ in range(20):
            assert answered(carrier, lively)
        found = 0
        while found < sent:  # it reads after all: everything is there
            carrier.move(0.01)
            with contextlib.suppress(BlockingIOError):
                found += len(stuck.recv(1 << 20))
        assert found == sent


def test_what_was_sent_before_the_end_arrives() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        contextlib.closing(Carrier(listener.getsockname()[:2])) as carrier,
    ):
        caller = call(carrier)
        carrier.move(1.0)
        accepted, _ = listener.accept()
        with accepted:
            accepted.sendall(b"x" * 100_000)
        found = b""
        while len(found) < 100_000:
            carrier.move(0.01)
            caller.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                found += caller.recv(100_000)
        while carrier._open:
            carrier.move(0.1)
        assert caller.recv(1) == b""


def test_a_call_that_both_sides_end_at_once_makes_room_for_one() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        contextlib.closing(Carrier(listener.getsockname()[:2])) as (carrier),
    ):
        for _ in range(20):
            caller = call(carrier)
            carrier.move(1.0)
            accepted, _ = listener.accept()
            caller.close()
            accepted.close()
            carrier.move(1.0)
        callers = [call(carrier) for _ in range(MOST_CALLS + 1)]
        assert callers[-1].recv(1) == b""


def test_without_a_descriptor_one_call_ends_and_the_others_go_on(echo: tuple[str, int]) -> None:
    left, spare = [True], SpareCalls(0)

    def opened(family: socket.AddressFamily) -> socket.socket:
        if left[0]:
            return socket.socket(family)
        raise OSError(errno.EMFILE, "Too many open files")

    with contextlib.closing(Carrier(echo, spare, opened)) as carrier:
        lively = call(carrier)
        assert answered(carrier, lively)
        left[0] = False
        for _ in range(LEAST_CALLS * 2):
            refused = call(carrier)
            carrier.move(1.0)
            assert refused.recv(1) == b"", "it is closed"
        assert answered(carrier, lively)
        left[0] = True
        callers = [call(carrier) for _ in range(LEAST_CALLS - 1)]
        assert [answered(carrier, caller) for caller in callers] == [True] * len(callers), "their places are free again"


@dataclass
class Host:
    """A connection to it, which whoever had it before may have left with a port."""

    port: int = 0
    report: HostReport = field(default_factory=lambda: HostReport(sudo="root"))
    commands: list[str] = field(default_factory=list)
    takes: list[Callable[[Any], object]] = field(default_factory=list)
    active: bool = True

    @property
    def transport(self) -> Host:
        return self

    def is_active(self) -> bool:
        return self.active

    @contextlib.contextmanager
    def connect(self, login: HostLogin, *, again: bool = False) -> Iterator[Host]:
        yield self

    def listen(self) -> int:
        self.port = self.port or 5000
        return self.port

    def calls_go_to(self, take: Callable[[Any], object]) -> None:
        self.takes.append(take)

    def run(self, command: str, **_: Any) -> Ran:
        self.commands.append(command)
        return Ran(0, "", "")


@pytest.mark.parametrize("left_with", [0, 4321])
def test_a_tunnel_that_is_wanted_now_needs_no_next_look(left_with: int) -> None:
    """And if the agent was told its address already, nobody tells it again."""
    host, store = Host(left_with), MemoryStore()
    instance = b.host(0, b.fleet("lab"))
    login_read = threading.Event()

    def login(_: Any) -> HostLogin:
        login_read.set()
        return HostLogin("h1", 22, "ubuntu", "a key")

    tunnels = Tunnels(store, host, login, "install", ("127.0.0.1", 9), every=3600.0)
    tunnels.start()
    try:
        store.commit([nouns.put(instance), nouns.put(Contact(instance_id=instance.id, shown=("k",), tunnel=True))])
        tunnels.wake()
        assert login_read.wait(120)
        until("its calls to be taken", lambda: host.takes)
        if not left_with:
            until("the agent to be told", lambda: host.commands)
    finally:
        host.active = False
        tunnels.stop()
    assert [("http://127.0.0.1:5000" in command) for command in host.commands] == ([] if left_with else [True])
