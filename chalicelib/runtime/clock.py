"""The real clock, random ids and tokens: the inputs that pure code must not create itself."""

from __future__ import annotations

import secrets
import time
import uuid

from chalicelib.domain.instants import Micros


class SystemClock:
    """Wall time that never steps back within a process, so that versions of a noun keep their order."""

    def __init__(self) -> None:
        self._last = 0

    def now(self) -> Micros:
        self._last = max(self._last, time.time_ns() // 1000)
        return self._last


def random_id() -> str:
    return str(uuid.uuid4())


def random_token() -> str:
    return secrets.token_urlsafe(32)
