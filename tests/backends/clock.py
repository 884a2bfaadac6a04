"""The time of a test, which passes when the test says so."""

from __future__ import annotations

from chalicelib.domain.instants import SECOND, Micros


class Clock:
    def __init__(self, at: Micros = 1_795_000_000 * SECOND) -> None:
        self.at = at

    def now(self) -> Micros:
        return self.at

    def passes(self, seconds: float) -> None:
        self.at += round(seconds * SECOND)
