"""Rate limits for a service's clients, by the generic cell rate algorithm.

One number is stored for each client, its theoretical arrival time. Each admitted request moves it on by one interval;
a request is admitted while it isn't further ahead than the burst allows. Only the limit with the longest matching
prefix applies. Prefixes are compared with the path as applications read it, so another spelling of a path doesn't get
around a limit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.specs.services import HeaderPartitioningKey, RateLimit

MOST = 100_000  # clients with a stored time
LONGEST = 64  # characters of a client's key; longer ones are hashed


def applying(limits: Sequence[RateLimit], path: bytes) -> RateLimit | None:
    """The limit that applies to a path as returned by `routing.read`."""
    fits = [limit for limit in limits if path.startswith(limit.prefix.encode())]
    return max(fits, key=lambda limit: len(limit.prefix), default=None)


def client(limit: RateLimit, address: str, header: Callable[[str], str]) -> str:
    """The client that a limit counts: an address, or the value of a header. Requests without that header count as one
    client. Long values are hashed, so that clients can't fill the memory."""
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
        """The time that this client has to wait before a request is admitted; 0: this one is admitted and counted."""
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
        """Drop the clients whose time has passed; if they are too few, also those whose time comes next."""
        self._quiet_at = {key: at for key, at in self._quiet_at.items() if at > now}
        excess = len(self._quiet_at) - self._most * 3 // 4
        if excess > 0:
            for key in sorted(self._quiet_at, key=self._quiet_at.__getitem__)[:excess]:
                del self._quiet_at[key]
