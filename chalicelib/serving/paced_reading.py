"""Paced processing of received bytes, so that no connection blocks the event loop.

A parser calls back for each chunk, header or frame, so a quarter of a megabyte of the smallest ones takes a tenth of a
second, in which the event loop serves nothing else. So bytes are fed in slices. A connection whose slices have used up
its turn stops reading, and waits for several times as long and until all other waiting connections have had their turn:
however many there are, most of the time is left for the rest. Bytes that are processed quickly, as nearly all are,
don't count and never wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol
from weakref import WeakKeyDictionary

TURN = 0.0005  # seconds of processor time in a turn, after which the rest waits …
WAIT = 16  # … for at least this many times as long as the turn took
SHARE = 10  # the time between two waiting connections' turns, as a multiple of the first one's length
SLICE = 2048  # bytes at first; doubled after each slice that was quick, up to …
LARGEST = 64 * 1024
QUICK = 15e-9  # seconds a byte: frames of some kilobytes take a tenth of that, frames of one byte ten times as much


class LoopTimer(Protocol):
    """The part of an event loop that is needed here."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], None], /) -> object: ...


_free: WeakKeyDictionary[LoopTimer, float] = WeakKeyDictionary()  # when the next waiting connection may have its turn


def next_turn(loop: LoopTimer, took: float) -> float:
    """When a connection may go on whose turn took this long."""
    when = max(loop.time() + WAIT * took, _free.get(loop, 0.0))
    _free[loop] = when + SHARE * took
    return when


class PacedReader:
    """`feed` takes some bytes and returns whether it wants more. `hold` pauses the connection's reading, or resumes it.
    `clock` returns the processor time of this thread."""

    def __init__(
        self,
        loop: LoopTimer,
        feed: Callable[[bytes], bool],
        hold: Callable[[bool], None],
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._loop, self._feed, self._hold, self._clock = loop, feed, hold, clock
        self._unread, self._size = b"", SLICE
        self._after: Callable[[], None] | None = None
        self._over = False

    @property
    def waiting(self) -> bool:
        """Whether received bytes wait for their turn."""
        return bool(self._unread)

    def received(self, data: bytes) -> None:
        if self._unread:
            self._unread += data  # it had been received before reading was paused
        elif len(data) <= SLICE:
            self._feed(data)
        else:
            self._turn(data)

    def afterwards(self, action: Callable[[], None]) -> None:
        """Call `action` once all received bytes are processed; at once if they are."""
        if self._unread:
            self._after = action
        else:
            action()

    def drop(self) -> None:
        """Discard the waiting bytes, and stop."""
        self._unread, self._over = b"", True

    def _turn(self, data: bytes) -> None:
        at, took, begun = 0, 0.0, self._clock()
        while at < len(data):
            piece = data[at : at + self._size]
            if not self._feed(piece) or self._over:
                return
            at += len(piece)
            now = self._clock()
            quick = now - begun < QUICK * len(piece)
            self._size = min(LARGEST, 2 * self._size) if quick else SLICE
            took += 0.0 if quick else now - begun
            begun = now
            if took >= TURN and at < len(data):
                self._unread = data[at:]
                self._hold(True)
                self._loop.call_at(next_turn(self._loop, took), self._go_on)
                return

    def _go_on(self) -> None:
        data, self._unread = self._unread, b""
        self._turn(data)
        if self._unread or self._over:
            return
        self._hold(False)
        if self._after is not None:
            self._after()
