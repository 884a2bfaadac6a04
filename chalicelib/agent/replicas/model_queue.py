"""How many requests wait inside a model server, by its own metrics, and which changes of that are worth reporting.

Each new number is a write to the control plane, and a service may have hundreds of replicas whose numbers change with
every look. A scaler must know at once that requests pile up, but not whether there are 40 or 42 of them. So a change of
more than a quarter is reported, a smaller one after a minute, and never two in quick succession. A model server that
stops answering soon counts as unknown: otherwise its last number would count for ever.
"""

from __future__ import annotations

import re
from typing import Optional

WAITING = re.compile(rb"^(?:vllm:num_requests_waiting|sglang:num_queue_reqs)(?:\{.*\})?[ \t]+([^ \t\r\n]+)", re.M)
SPACE, SETTLED = 15.0, 60.0  # seconds between two that differ, and until a small difference matters
MISSES = 3  # in a row, and the number isn't known any more


def waiting(metrics: bytes) -> Optional[int]:
    """The requests that wait, of all its engines together; None: it counts none that we know. Raises ValueError."""
    counts = [float(value) for value in WAITING.findall(metrics)]
    if not counts:
        return None
    if not 0 <= sum(counts) < 1e15:
        raise ValueError("no number of requests: %s" % sum(counts))
    return round(sum(counts))


class Gauge:
    """The number that is told of one replica."""

    def __init__(self) -> None:
        self.reported: Optional[int] = None  # None: unknown
        self._at, self._missed = float("-inf"), 0

    def take(self, found: Optional[int], now: float) -> bool:
        """A look at the model server; None if it said nothing. Is there something else to tell now?"""
        self._missed = 0 if found is not None else self._missed + 1
        if found is None:
            news = self._missed >= MISSES and self.reported is not None
        else:
            news = self._differs(found, now - self._at)
        if news:
            self.reported, self._at = found, now
        return news

    def _differs(self, found: int, since: float) -> bool:
        much = self.reported is None or 4 * abs(found - self.reported) > max(found, self.reported)
        return found != self.reported and since >= (SPACE if much else SETTLED)
