"""How many requests a client may send: one number a client, the time at which it will have been quiet enough.

The generic cell rate algorithm: each request that passes moves that time one interval on, and the next may come while
it is no further ahead than the burst allows. Of all limits of a service, the one with the longest prefix counts, alone.
Prefixes are compared with the path as applications read it, so that no spelling of a path has a limit of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.specs.services import HeaderPartitioningKey, RateLimit

MOST = 100_000  # clients that are remembered
LONGEST = 64  # characters of what tells them apart


def applying(limits: Sequence[RateLimit], path: bytes) -> RateLimit | None:
    """The limit of a path, as `routing.read` gives it."""
    fits = [limit for limit in limits if path.startswith(limit.prefix.encode())]
    return max(fits, key=lambda limit: len(limit.prefix), default=None)


def client(limit: RateLimit, address: str, header: Callable[[str], str]) -> str:
    """Whom a limit counts: an address, or the value of a header. Requests without that header count as one client.
    Long values are remembered by a hash, or clients would fill the memory with them."""
    key = limit.key
    if not isinstance(key, HeaderPartitioningKey):
        return address
    value = header(key.header.lower())
    return value if len(value) <= LONGEST else hashlib.sha256(value.encode()).hexdigest()


class Limiter:
    """The clients of one door."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._quiet_at: dict[tuple[str, str, str], Micros] = {}

    def __len__(self) -> int:
        return len(self._quiet_at)

    def admit(self, service: str, limit: RateLimit, who: str, now: Micros) -> Micros:
        """How long this client has to wait until a request passes; 0: this one passes, and counts."""
        key, interval = (service, limit.prefix, who), max(1, round(SECOND / limit.rps))
        ahead = limit.burst * interval
        quiet_at = max(now, self._quiet_at.get(key, now))
        if quiet_at - now > ahead:
            return quiet_at - now - ahead
        if key not in self._quiet_at and len(self._quiet_at) >= self._most:
            self._forget(now)
        self._quiet_at[key] = quiet_at + interval
        return 0

    def _forget(self, now: Micros) -> None:
        """Those who have been quiet long enough are as good as unknown. If there is none, those who will be soonest."""
        self._quiet_at = {key: at for key, at in self._quiet_at.items() if at > now}
        excess = len(self._quiet_at) - self._most * 3 // 4
        if excess > 0:
            for key in sorted(self._quiet_at, key=self._quiet_at.__getitem__)[:excess]:
                del self._quiet_at[key]
