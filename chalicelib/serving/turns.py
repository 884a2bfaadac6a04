"""What arrives on a connection is worked on in short turns, whatever it is.

A parser calls us for each chunk, header or frame, so a quarter of a megabyte of the smallest ones takes a tenth of a
second, in which the event loop serves nobody else. So bytes are fed in slices. A connection whose slices have taken all
of its turn stops reading and waits for several times as long: a few such together leave most of the time to others.
Bytes that are quickly done with, as nearly all are, never wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

TURN = 0.001  # seconds after which the rest waits
WAIT = 16  # times as long as the turn took
SLICE = 4096  # bytes at first; twice as many after each slice that took almost no time
LARGEST = 32 * 1024
QUICK = 0.0001  # seconds


class Later(Protocol):
    """An event loop, as far as it is needed here."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> object: ...


class Turns:
    """`feed` takes some bytes, and says whether more of them are wanted. `hold` stops the connection's reading, or lets
    it go on."""

    def __init__(
        self,
        loop: Later,
        feed: Callable[[bytes], bool],
        hold: Callable[[bool], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._loop, self._feed, self._hold, self._clock = loop, feed, hold, clock
        self._rest = b""
        self._after: Callable[[], None] | None = None
        self._over = False

    @property
    def waiting(self) -> bool:
        """Is there something that arrived, and whose turn is yet to come?"""
        return bool(self._rest)

    def received(self, data: bytes) -> None:
        if self._rest:
            self._rest += data  # the transport was told to go on by somebody else
            self._hold(True)
        elif len(data) <= SLICE:
            self._feed(data)
        else:
            self._turn(data)

    def afterwards(self, action: Callable[[], None]) -> None:
        """Do this once all that has arrived is done with: at once, if it is."""
        if self._rest:
            self._after = action
        else:
            action()

    def drop(self) -> None:
        """Nothing more is wanted."""
        self._rest, self._over = b"", True

    def _turn(self, data: bytes) -> None:
        begun, at, size = self._clock(), 0, SLICE
        sliced = begun
        while at < len(data):
            if not self._feed(data[at : at + size]) or self._over:
                self._rest = b""
                return
            at += size
            now = self._clock()
            if now - begun >= TURN and at < len(data):
                self._rest = data[at:]
                self._hold(True)
                self._loop.call_later((now - begun) * WAIT, self._go_on)
                return
            size = min(LARGEST, 2 * size) if now - sliced < QUICK else SLICE
            sliced = now
        self._rest = b""

    def _go_on(self) -> None:
        data, self._rest = self._rest, b""
        self._turn(data)
        if self._rest or self._over:
            return
        self._hold(False)
        if self._after is not None:
            self._after()
