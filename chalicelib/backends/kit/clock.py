"""The time as backends get it: from outside, so that tests can have another."""

from __future__ import annotations

import time
from collections.abc import Callable

from chalicelib.domain.instants import Micros

Now = Callable[[], Micros]


def system_time() -> Micros:
    return time.time_ns() // 1000
