"""Bytes that take long are worked on in short turns; others at once, and all of them in their order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chalicelib.serving.paced_reading import LARGEST, SHARE, SLICE, TURN, WAIT, PacedReader


class Loop:
    """Its time, and the processor's, are the test's own."""

    def __init__(self) -> None:
        self.now = self.used = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None], /) -> None:
        self.timers.append((when, callback))

    def pass_on(self) -> float:
        """To the next call; seconds from the one before."""
        before, (self.now, callback) = (
            self.now,
            self.timers.pop(self.timers.index(min(self.timers, key=lambda one: one[0]))),
        )
        callback()
        return self.now - before


class Connection:
    """Each byte takes so many seconds of the processor."""

    def __init__(self, loop: Loop, cost: float, *, enough: int = 10**9) -> None:
        self.loop, self.cost, self.enough = loop, cost, enough
        self.got, self.longest, self.held, self.ended = b"", 0, False, False
        self.turns = PacedReader(loop, self.feed, self.hold, lambda: loop.used)

    def feed(self, data: bytes) -> bool:
        self.loop.used += len(data) * self.cost
        self.got, self.longest = self.got + data, max(self.longest, len(data))
        return len(self.got) < self.enough

    def hold(self, hold: bool) -> None:
        self.held = hold


DATA = bytes(range(256)) * 1024


def test_what_is_quickly_done_is_done_at_once() -> None:
    one = Connection(Loop(), 1e-10)
    one.turns.received(DATA)
    assert one.got == DATA and not one.loop.timers and not one.held
    assert one.longest == LARGEST  # or each slice would be a call of its own


def test_what_takes_long_waits_and_isnt_read_meanwhile() -> None:
    one = Connection(Loop(), 1e-6)  # a quarter of a second
    one.turns.received(DATA)
    assert len(one.got) == SLICE and one.held and one.turns.waiting
    one.turns.received(b"more")  # which was on its way
    gaps = []
    while one.loop.timers:
        gaps.append(one.loop.pass_on())
        assert one.longest == SLICE, "a turn may be so long"
    assert one.got == DATA + b"more" and not one.held and not one.turns.waiting
    assert min(gaps) >= 0.99 * WAIT * SLICE * one.cost > WAIT * TURN


def test_the_next_bytes_have_a_turn_of_their_own() -> None:
    one = Connection(Loop(), 1e-6)
    one.turns.received(bytes(100))
    assert len(one.got) == 100 and not one.held


@pytest.mark.parametrize("count", [8, 100])
def test_most_of_the_time_is_left_to_others_however_many_wait(count: int) -> None:
    loop = Loop()
    many = [Connection(loop, 1e-6) for _ in range(count)]
    for one in many:
        one.turns.received(DATA)
    used = loop.used
    for _ in range(10 * count):
        loop.pass_on()
    assert (loop.used - used) / loop.now < 1.2 / SHARE
    assert len({len(one.got) for one in many}) == 1, "one of them had more turns than another"


def test_what_ends_a_connection_comes_after_what_arrived() -> None:
    one = Connection(Loop(), 1e-6)
    one.turns.received(DATA)

    def end() -> None:
        one.ended = one.got == DATA

    one.turns.afterwards(end)
    while one.loop.timers:
        one.loop.pass_on()
    assert one.ended
    one.ended = False
    one.turns.afterwards(end)
    assert one.ended, "nothing is to be waited for"


def test_nothing_is_fed_to_who_wants_no_more() -> None:
    enough = Connection(Loop(), 1e-6, enough=SLICE)
    enough.turns.received(DATA)
    assert len(enough.got) == SLICE and not enough.turns.waiting and not enough.loop.timers
    dropped = Connection(Loop(), 1e-6)
    dropped.turns.received(DATA)
    dropped.turns.drop()
    while dropped.loop.timers:
        dropped.loop.pass_on()
    assert len(dropped.got) == SLICE and dropped.held
