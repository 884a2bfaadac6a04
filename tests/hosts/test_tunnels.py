"""A tunnel's calls: everybody with an account on the host can make them, and each costs the server descriptors."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from chalicelib.hosts.tunnels import MOST_CALLS, Carrier


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
    near.settimeout(10)
    carrier.take(far)
    return near


def answered(carrier: Carrier, caller: socket.socket) -> bool:
    try:
        caller.sendall(b"hello")
    except BrokenPipeError:
        return False
    caller.setblocking(False)
    for _ in range(200):
        carrier.move(0.1)
        with contextlib.suppress(BlockingIOError):
            return caller.recv(100) == b"hello"
    return False


def test_a_tunnel_carries_so_many_calls_and_no_more(echo: tuple[str, int]) -> None:
    with contextlib.closing(Carrier(echo)) as carrier:
        callers = [call(carrier) for _ in range(MOST_CALLS + 50)]
        carrier.move(0.1)
        assert [answered(carrier, caller) for caller in callers] == [True] * MOST_CALLS + [False] * 50
        callers[0].close()
        carrier.move(1.0)
        assert answered(carrier, call(carrier)), "an end makes room for another"
        for caller in callers:
            caller.close()


def test_calls_while_the_server_is_away_cost_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = gone.getsockname()[:2]
    with contextlib.closing(Carrier(address)) as carrier:
        for _ in range(MOST_CALLS * 3):
            caller = call(carrier)
            carrier.move(0.1)
            assert caller.recv(1) == b"", "it is closed"
        carrier.move(0)


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
