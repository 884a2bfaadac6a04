"""What arrives on a connection is worked on in short turns, whatever it is.

A parser calls us for each chunk, header or frame, so a quarter of a megabyte of the smallest ones takes a tenth of a
second, in which the event loop serves nobody else. So bytes are fed in slices. A connection whose slices have taken all
of its turn stops reading, and waits for several times as long, and until all others that wait so have had their turn:
however many they are, most of the time is left to everybody else. Bytes that are quickly done with, as nearly all are,
don't count, and never wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol
from weakref import WeakKeyDictionary

TURN = 0.0005  # seconds of the processor after which the rest waits …
WAIT = 16  # … for so many times as long as the turn took, at least
SHARE = 10  # from one such turn to the next, as many times as long
SLICE = 2048  # bytes at first; twice as many after each slice that was quickly done with, up to …
LARGEST = 64 * 1024
QUICK = (
    15e-9  # seconds a byte: a frame or a chunk of some kilobytes takes a tenth of it, one of a byte ten times as long
)


class LoopTimer(Protocol):
    """An event loop, as far as it is needed here."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], None], /) -> object: ...


_free: WeakKeyDictionary[LoopTimer, float] = WeakKeyDictionary()  # when the next that waits has its turn


def next_turn(loop: LoopTimer, took: float) -> float:
    """When somebody whose turn took so long may go on."""
    when = max(loop.time() + WAIT * took, _free.get(loop, 0.0))
    _free[loop] = when + SHARE * took
    return when


class PacedReader:
    """`feed` takes some bytes, and says whether more of them are wanted. `hold` stops the connection's reading, or lets
    it go on. `clock` is the processor's, of this thread."""

    def __init__(
        self,
        loop: LoopTimer,
        feed: Callable[[bytes], bool],
        hold: Callable[[bool], None],
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._loop, self._feed, self._hold, self._clock = loop, feed, hold, clock
        self._rest, self._size = b"", SLICE
        self._after: Callable[[], None] | None = None
        self._over = False

    @property
    def waiting(self) -> bool:
        """Is there something that arrived, and whose turn is yet to come?"""
        return bool(self._rest)

    def received(self, data: bytes) -> None:
        if self._rest:
            self._rest += data  # it was on its way already
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
                self._rest = data[at:]
                self._hold(True)
                self._loop.call_at(next_turn(self._loop, took), self._go_on)
                return

    def _go_on(self) -> None:
        data, self._rest = self._rest, b""
        self._turn(data)
        if self._rest or self._over:
            return
        self._hold(False)
        if self._after is not None:
            self._after()
