"""Limits how often an account calls its provider.

Nothing waits here. A call that comes too early is refused with the time after which it may be repeated, and the engine
calls again. An operation that is refused halfway starts again from the beginning. So a bucket must hold a token for
each call of the longest operation, or that operation would never finish. All clients of an account in a process share
its buckets, those of a check or an update as well. If several processes serve an account, the provider's own throttling
limits each of them to its share.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from weakref import WeakValueDictionary

from chalicelib.backends.kit.clock import Now
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.errors import Throttled


class TokenBucket:
    def __init__(self, provider: str, rate: float, burst: int, now: Now) -> None:
        """`rate`: calls per second in the long run; `burst`: calls at once after a pause."""
        self._provider, self._now = provider, now
        self._interval = round(SECOND / rate)
        self._ahead = (burst - 1) * self._interval
        self._full_at: Micros = 0  # when the bucket is full again
        self._paused_until: Micros = 0
        self._lock = threading.Lock()

    def take(self) -> None:
        """Raises Throttled if there is no token."""
        take_from_all([self])

    def _wait(self) -> Micros:
        """Until there is a token; 0 or less: there is one."""
        now = self._now()
        return max(self._paused_until - now, self._full_at - now - self._ahead)

    def _take(self) -> None:
        self._full_at = max(self._now(), self._full_at) + self._interval

    def pause(self, seconds: float) -> None:
        """Stops all calls for this long, after the provider has refused one."""
        with self._lock:
            self._paused_until = max(self._paused_until, self._now() + round(seconds * SECOND))


_shared: WeakValueDictionary[tuple[object, ...], TokenBucket] = WeakValueDictionary()
_sharing = threading.Lock()


def bucket_of(provider: str, account: str, rate: float, burst: int, now: Now, calls: str = "") -> TokenBucket:
    """The account's bucket, for all of its calls or for those of a kind. It lasts as long as some client has it.
    `account`: what identifies it at the provider, such as its key."""
    key = (provider, account, calls, rate, burst, now)
    with _sharing:
        found = _shared.get(key)
        if found is None:
            found = _shared[key] = TokenBucket(provider, rate, burst, now)
        return found


def take_from_all(buckets: Sequence[TokenBucket]) -> None:
    """A token of each, or of none: raises Throttled if one of them has none. They are always in the same order."""
    with ExitStack() as locked:
        for bucket in buckets:
            locked.enter_context(bucket._lock)
        waits = [bucket._wait() for bucket in buckets]
        if max(waits, default=0) <= 0:
            for bucket in buckets:
                bucket._take()
            return
    provider = buckets[waits.index(max(waits))]._provider
    raise Throttled(f"{provider} takes no more calls of this account now.", retry_after=max(waits) / SECOND)
