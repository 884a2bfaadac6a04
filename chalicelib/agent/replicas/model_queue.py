"""The number of requests that wait in a model server, from its own metrics, and when a change of it is reported.

Each report is a write to the control plane, and a service may have hundreds of replicas whose numbers change every few
seconds. A scaler must know at once that requests pile up, but not whether there are 40 or 42 of them. So a change of
more than a quarter is reported, a smaller one after a minute, and never two in quick succession. The number of a model
server that stops answering soon becomes unknown: otherwise its last number would count for ever.
"""

from __future__ import annotations

import re
from typing import Optional

WAITING = re.compile(rb"^(?:vllm:num_requests_waiting|sglang:num_queue_reqs)(?:\{.*\})?[ \t]+([^ \t\r\n]+)", re.M)
SPACE, SETTLED = 15.0, 60.0  # seconds between two reports, and until a small difference is reported
MISSES = 3  # failed queries in a row, after which the number is unknown


def waiting(metrics: bytes) -> Optional[int]:
    """The waiting requests of all its engines; None if the metrics have no known counter. Raises ValueError."""
    counts = [float(value) for value in WAITING.findall(metrics)]
    if not counts:
        return None
    if not 0 <= sum(counts) < 1e15:
        raise ValueError("no number of requests: %s" % sum(counts))
    return round(sum(counts))


class Gauge:
    """The reported number of one replica."""

    def __init__(self) -> None:
        self.reported: Optional[int] = None  # None: unknown
        self._at, self._missed = float("-inf"), 0

    def update(self, found: Optional[int], now: float) -> bool:
        """Take a new number, None after a failed query. Returns whether there is a new number to report."""
        self._missed = 0 if found is not None else self._missed + 1
        if found is None:
            changed = self._missed >= MISSES and self.reported is not None
        else:
            changed = self._differs(found, now - self._at)
        if changed:
            self.reported, self._at = found, now
        return changed

    def _differs(self, found: int, elapsed: float) -> bool:
        large = self.reported is None or 4 * abs(found - self.reported) > max(found, self.reported)
        return found != self.reported and elapsed >= (SPACE if large else SETTLED)
