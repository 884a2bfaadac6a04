"""The real clock, random ids and tokens: the inputs that pure code must not create itself."""

from __future__ import annotations

import logging
import secrets
import threading
import time
import uuid
from collections.abc import Callable

from chalicelib.domain.instants import DAY, SECOND, Micros

log = logging.getLogger(__name__)

NOTABLE: Micros = 10 * SECOND  # a step back of the machine's clock from which on a warning is logged
LONGEST: Micros = DAY  # how far ahead of the machine's clock a server may start


class SystemClock:
    """A clock that only goes forward, so that the versions of a noun and all events keep their order.

    No time is returned twice. If the machine's clock is set back, time continues from where it was at half its pace,
    until the machine's clock has caught up: deadlines still pass, in their order.
    """

    def __init__(
        self,
        wall: Callable[[], int] = time.time_ns,
        elapsed: Callable[[], int] = time.monotonic_ns,
        after: Micros = 0,
    ) -> None:
        """`after`: the latest time that an earlier process of this server recorded. One too far ahead means that the
        clock was wrong then, and is ignored."""
        self._wall, self._elapsed = wall, elapsed
        self._lock = threading.Lock()
        now = wall() // 1000
        if after > now + LONGEST:
            log.warning(
                "the last event here is %d s ahead of this machine's clock, which counts", _seconds(after - now)
            )
            after = 0
        self._last, self._at = after, elapsed()
        self._warned = False

    def now(self) -> Micros:
        with self._lock:
            wall, at = self._wall() // 1000, self._elapsed()
            behind = self._last - wall
            if behind > NOTABLE and not self._warned:
                log.warning("this machine's clock is %d s behind: time goes on at half its pace", _seconds(behind))
            self._warned = behind > NOTABLE
            self._last = wall if behind < 0 else self._last + max(1, (at - self._at) // 2000)
            self._at = at
            return self._last


def _seconds(micros: Micros) -> int:
    return round(micros / SECOND)


def random_id() -> str:
    return str(uuid.uuid4())


def random_token() -> str:
    return secrets.token_urlsafe(32)
