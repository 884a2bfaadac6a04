"""Who may use a service: members of its project, with their own token or with one that was made for the service.

Verdicts are cached for a while, under a hash of the token, because most callers call again. The server clears the cache
when rights change; even without that, a revoked token is accepted for a minute at most. A token's own expiry applies to
the instant.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from chalicelib.domain.serving import CallerVerdict
from chalicelib.serving.headers import one
from chalicelib.serving.ports import MemberRights

T = TypeVar("T")
GOOD, BAD = 60.0, 5.0  # seconds for which a verdict is cached
MOST = 10_000  # cached verdicts
LONGEST = 4096  # bytes of a token


def bearer(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The token of the request; empty if there is none, or none that could be valid."""
    scheme, _, token = (one(headers, b"authorization") or b"").partition(b" ")
    good = scheme.lower() == b"bearer" and len(token) <= LONGEST and token.isascii()
    return token.strip().decode("ascii") if good else ""


class ServiceAccess:
    """Used on the event loop. `clock` is in seconds."""

    def __init__(
        self,
        rights: MemberRights,
        in_thread: Callable[[Callable[[], CallerVerdict]], Awaitable[CallerVerdict]],
        clock: Callable[[], float],
    ) -> None:
        self._rights, self._in_thread, self._clock = rights, in_thread, clock
        self._verdicts: OrderedDict[tuple[bytes, str, str], tuple[bool, float]] = OrderedDict()
        self._round = 0  # counts changes of rights: verdicts on older rights aren't cached

    def known(self, token: str, project: str, run: str) -> bool | None:
        """The cached verdict; None if there is none."""
        found = self._verdicts.get(self._key(token, project, run))
        return None if found is None or found[1] <= self._clock() else found[0]

    async def judge(self, token: str, project: str, run: str = "") -> bool:
        """Whether the caller may use the service. Empty `run`: all services of the project."""
        if (known := self.known(token, project, run)) is not None:
            return known
        began, requested_at = self._round, self._clock()
        verdict = await self._in_thread(lambda: self._rights.member(token, project, run))
        if began == self._round:
            key = self._key(token, project, run)
            self._verdicts[key] = verdict.allowed, requested_at + _lasts(verdict)
            self._verdicts.move_to_end(key)
            if len(self._verdicts) > MOST:
                self._verdicts.popitem(last=False)
        return verdict.allowed

    def changed(self) -> None:
        """Drop all verdicts, because somebody's rights may have changed."""
        self._round += 1
        self._verdicts.clear()

    @staticmethod
    def _key(token: str, project: str, run: str) -> tuple[bytes, str, str]:
        return hashlib.sha256(token.encode()).digest(), project, run


def _lasts(verdict: CallerVerdict) -> float:
    """The seconds for which a verdict is cached, counted from its request."""
    if not verdict.allowed:
        return BAD
    return GOOD if verdict.ends_in is None else min(GOOD, verdict.ends_in)
