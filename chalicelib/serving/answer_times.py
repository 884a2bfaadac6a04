"""How long an answer takes: until the first byte of its body, and until its last. Both since the request was let in.

Servers of models send the head of a streamed answer before the model has read the prompt, so the head says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chalicelib.domain.instants import SECOND, Micros
from chalicelib.serving.traffic_counts import Counts


class AnswerTimes:
    """Observes the answer of a replica, and counts its times."""

    def __init__(self, counts: Counts, run_id: str, now: Callable[[], Micros]) -> None:
        self._counts, self._run_id, self._now, self._since = counts, run_id, now, now()
        self._begun = self._came = False

    def begins(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._begun = True

    def part(self, data: bytes) -> None:
        if data and not self._came:
            self._first_byte(self._now())

    def ends(self, now: Micros) -> None:
        """The request is over. Nothing is counted if no replica began to answer, and not what the door then says."""
        came, self._came = self._came, True
        if not self._begun:
            return
        if not came:  # the answer has no body
            self._first_byte(now)
        self._counts.whole(self._run_id, self._seconds(now), now)

    def _first_byte(self, now: Micros) -> None:
        self._came = True
        self._counts.first_byte(self._run_id, self._seconds(now), now)

    def _seconds(self, now: Micros) -> float:
        return max(0, now - self._since) / SECOND  # clocks can be set back
