"""Who keeps a connection and who gives it up; and what the acceptor does when there are none left."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from uvicorn.server import ServerState

from chalicelib.runtime import web
from chalicelib.runtime.connection import HttpConnection
from chalicelib.runtime.connection_admission import (
    AT_ONCE,
    ENOUGH,
    MOST,
    Acceptor,
    Seats,
    doors_share,
    enough,
    most_connections,
)


@dataclass(eq=False)
class Guest(asyncio.Protocol):
    name: str = ""
    gone: list[str] = field(default_factory=list)

    def leave(self) -> None:
        self.gone.append(self.name)


def seated(seats: Seats, names: str, gone: list[str], peer: str = "") -> list[Guest]:
    guests = [Guest(name, gone) for name in names]
    for guest in guests:
        seats.sit(guest, peer or guest.name)
    return guests


@pytest.mark.parametrize(
    ("descriptors", "connections"),
    [(resource.RLIM_INFINITY, MOST), (10**6, MOST), (1024, 896), (256, 128), (64, 32), (1, 1)],
)
def test_connections_are_fewer_than_descriptors(descriptors: int, connections: int) -> None:
    assert most_connections(descriptors) == connections


def test_the_stranger_who_waits_longest_makes_room() -> None:
    seats, gone = Seats(3), []
    first, second, _third = seated(seats, "abc", gone)
    seats.works(first)
    seats.waits(first)  # it was answered just now
    seated(seats, "d", gone)
    assert gone == ["b"] and len(seats) == 3
    seats.left(second)  # the transport tells once more
    assert len(seats) == 3


def test_those_with_a_token_stay_longer_than_strangers_and_those_at_work_stay() -> None:
    seats, gone = Seats(3), []
    known, at_work, _stranger = seated(seats, "kws", gone)
    seats.recognise(known)
    seats.works(at_work)
    seated(seats, "x", gone)
    assert gone == ["s"]
    seated(seats, "y", gone)
    assert gone == ["s", "x"]
    newest = seated(seats, "z", gone)
    seats.works(newest[0])
    seated(seats, "q", gone)
    assert gone == ["s", "x", "y", "k"]  # nobody else waited


def test_one_address_has_a_quarter_of_the_seats_for_strangers_who_wait() -> None:
    seats, gone = Seats(8), []
    one, two = seated(seats, "ab", gone, peer="10.0.0.1")
    seats.works(one)
    seated(seats, "cd", gone, peer="10.0.0.1")
    assert gone == ["b"]
    seated(seats, "efgh", gone)
    assert gone == ["b"]  # the others are of other addresses
    seats.waits(one)
    seats.recognise(one)
    seated(seats, "i", gone, peer="10.0.0.1")
    assert gone == ["b", "c"]  # who is known doesn't count
    assert two.name == "b"


def test_where_all_work_it_is_closed_until_one_waits_or_leaves() -> None:
    seats, gone = Seats(2), []
    calls: list[str] = []
    seats.when_freed(lambda: calls.append("freed"))
    one, two = seated(seats, "ab", gone)
    seats.works(one)
    assert not seats.closed
    seats.works(two)
    assert seats.closed
    calls.clear()
    seats.waits(one)
    assert not seats.closed and calls == ["freed"]
    seats.works(one)
    seats.left(two)
    assert not seats.closed and calls == ["freed", "freed"] and gone == []


# --- the acceptor -----------------------------------------------------------------------------------------------------


class Listener:
    """A listening socket whose `accept` does what the test says, on a descriptor that is always readable."""

    def __init__(self) -> None:
        self.here, self.there = socket.socketpair()
        self.there.send(b"!")
        self.errors: list[int] = []
        self.accepts = 0

    def setblocking(self, flag: bool) -> None:
        self.here.setblocking(flag)

    def fileno(self) -> int:
        return self.here.fileno()

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        self.accepts += 1
        if self.errors:
            number = self.errors.pop(0)
            raise OSError(number, "the test says so")
        near, far = socket.socketpair()
        far.close()
        return near, ("10.0.0.1", 1)

    def close(self) -> None:
        self.here.close()
        self.there.close()


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose timers the test plays."""

    def __init__(self) -> None:
        super().__init__()
        self.at, self.timers = 0.0, list[Any]()

    def time(self) -> float:
        return self.at

    def call_later(self, delay: float, callback: Any, *args: Any, **more: Any) -> Any:
        self.timers.append((self.at + delay, callback, args))

    async def play(self, seconds: float) -> None:
        self.at += seconds
        due, self.timers = [t for t in self.timers if t[0] <= self.at], [t for t in self.timers if t[0] > self.at]
        for _, callback, args in due:
            callback(*args)
        for _ in range(5):
            await asyncio.sleep(0)


def test_without_descriptors_it_rests_and_says_so_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    listener, loop = Listener(), Clock()
    listener.errors = [errno.EMFILE] * 1000

    async def story() -> None:
        acceptor = Acceptor(listener, Seats(10), Guest)  # type: ignore[arg-type]
        await loop.play(0)
        assert listener.accepts == 1  # though the socket stays readable
        for _ in range(100):
            await loop.play(1)
        assert listener.accepts == 101  # once a second
        acceptor.close()

    with caplog.at_level(logging.WARNING):
        loop.run_until_complete(story())
    assert len(caplog.records) == 2  # at once, and after a minute
    assert "no more can be accepted now" in caplog.text
    loop.close()
    listener.close()


def test_it_accepts_a_few_at_once_and_none_while_all_seats_are_at_work(caplog: pytest.LogCaptureFixture) -> None:
    listener, loop = Listener(), Clock()
    seats = Seats(AT_ONCE + 2)
    made: list[Guest] = []

    def guest() -> Guest:
        made.append(Guest())
        loop.call_soon(seats.works, made[-1])
        return made[-1]

    async def story() -> None:
        acceptor = Acceptor(listener, seats, guest)  # type: ignore[arg-type]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(made) == AT_ONCE
        await loop.play(0)
        await loop.play(100)
        full = listener.accepts
        assert seats.closed
        await loop.play(100)
        assert listener.accepts == full
        seats.left(next(one for one in made if not one.gone))
        await loop.play(0)
        assert listener.accepts > full
        acceptor.close()
        await loop.play(0)

    with caplog.at_level(logging.WARNING):
        loop.run_until_complete(story())
    assert "ulimit -n" in caplog.text
    loop.close()
    listener.close()


def test_each_listener_accepts_again_when_a_seat_is_free() -> None:
    """A server with TLS listens at several places, whose connections share the seats."""
    first, second, loop = Listener(), Listener(), Clock()
    seats, made = Seats(2), list[Guest]()

    def guest() -> Guest:
        made.append(Guest())
        loop.call_soon(seats.works, made[-1])
        return made[-1]

    async def story() -> None:
        acceptors = [Acceptor(each, seats, guest) for each in (first, second)]  # type: ignore[arg-type]
        await loop.play(0)
        await loop.play(0)
        assert seats.closed
        for each in (first, second):
            before = each.accepts
            for one in list(made):
                seats.left(one)
            await loop.play(0)
            assert each.accepts > before
            await loop.play(0)
        for acceptor in acceptors:
            acceptor.close()
        await loop.play(0)

    loop.run_until_complete(story())
    loop.close()
    first.close()
    second.close()


def test_whoever_never_ends_a_handshake_costs_no_more_than_a_seat() -> None:
    """A connection that is sent away meanwhile gives its descriptor back at once."""
    listener, loop, pairs = Listener(), Clock(), [socket.socketpair() for _ in range(5)]
    left = [near for near, _ in pairs]

    def accept() -> tuple[socket.socket, tuple[str, int]]:
        if not left:
            raise BlockingIOError
        return left.pop(0), ("10.0.0.1", 1)

    async def story() -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        connection = partial(HttpConnection, web._config(None), ServerState(), {})
        listener.accept = accept  # type: ignore[method-assign]
        acceptor = Acceptor(listener, Seats(8), connection, tls=lambda: tls)  # type: ignore[arg-type]
        for _ in range(3):
            await loop.play(0)
        assert [near.fileno() < 0 for near, _ in pairs] == [True, True, True, False, False]
        acceptor.close()
        for _, far in pairs:
            far.close()
        await loop.play(0)

    loop.run_until_complete(story())
    loop.close()
    listener.close()


def test_a_limit_that_nobody_thought_of_is_raised_and_any_other_meant() -> None:
    assert enough(1024, 524_288) == enough(1024, resource.RLIM_INFINITY) == ENOUGH
    assert enough(1024, 2000) == 2000 and enough(1024, 1024) == 1024
    assert [enough(soft, 524_288) for soft in (256, 1025, 65_536)] == [256, 1025, 65_536]
    assert doors_share(most_connections(ENOUGH)) > 1200
