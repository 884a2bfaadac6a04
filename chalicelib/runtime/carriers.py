"""Makes the carriers of an embedded server: when a container first needs one, and anew after an upgrade.

That takes longer than a purchase may, so a thread does it. Purchases wait for the first carrier; they don't wait for a
newer one, and not for long. Where Debian can't be reached, containers are bought without, and images need a Python.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from chalicelib.domain.instants import MINUTE, Micros
from chalicelib.domain.programs import ARCHITECTURES
from chalicelib.engine.ports import Clock
from chalicelib.errors import DstackError, Throttled
from chalicelib.usecases.agents import carriers

if TYPE_CHECKING:
    from chalicelib.store.blobs import Blobs

Make = Callable[[str], bytes]  # of an architecture; raises Refused if its packages can't be fetched
Start = Callable[[Callable[[], None]], None]

PATIENCE = 3 * MINUTE  # for which purchases wait for the first one
RETRY = 10 * MINUTE  # after a failure
ASK_AGAIN = 10.0  # seconds

log = logging.getLogger(__name__)


def in_a_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="carriers", daemon=True).start()


class CarrierMaker:
    def __init__(self, blobs: Blobs, clock: Clock, make: Make, start: Start = in_a_thread) -> None:
        self._blobs, self._clock, self._make, self._start = blobs, clock, make, start
        self._lock = threading.Lock()
        self._since: Micros | None = None  # when the thread began; None: none is running
        self._failed_at: Micros | None = None

    def digest(self, architecture: str) -> str:
        """The SHA-256 of the carrier for new containers; empty if there is none. Raises Throttled while the first is
        being made."""
        from chalicelib.carrier.packages import release

        known, digest = carriers.newest(self._blobs, architecture)
        if known != release() and self._begin() and not digest:
            raise Throttled("the Python for images without one is being made", retry_after=ASK_AGAIN)
        return digest

    def _begin(self) -> bool:
        """Have them made, unless that failed a moment ago. Returns whether to wait for them."""
        now = self._clock.now()
        with self._lock:
            failed = self._failed_at is not None
            if self._since is None and (self._failed_at is None or self._failed_at + RETRY <= now):
                self._since = now
                self._start(self._run)
            return not failed and self._since is not None and now < self._since + PATIENCE

    def _run(self) -> None:
        from chalicelib.carrier.packages import release

        failed_at = None
        for architecture in ARCHITECTURES:
            try:
                carriers.ensure(self._blobs, architecture, release(), self._make)
            except Exception as problem:  # whatever it is, containers are bought all the same
                failed_at = self._clock.now()
                log.warning("%s: %s", _consequence(carriers.newest(self._blobs, architecture)[1]), _text(problem))
        with self._lock:
            self._since, self._failed_at = None, failed_at


def _consequence(older: str) -> str:
    if older:
        return "new containers get an older carrier, because this version's can't be made"
    return "containers whose image has no Python won't start, because their carrier can't be made"


def _text(problem: Exception) -> str:
    return str(problem) if isinstance(problem, DstackError) else f"{type(problem).__name__}: {problem}"
