"""Who may use a service: a member of its project, by the token that they use for everything else, or by one for this.

Verdicts are remembered for a while, under a hash of the token, because most callers call again; whoever opens the door
tells it when rights have changed, and without that a revoked token is good for a minute at most. A token's own end is
kept to the instant.
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
GOOD, BAD = 60.0, 5.0  # seconds that a verdict is believed
MOST = 10_000  # verdicts that are remembered
LONGEST = 4096  # bytes of a token


def bearer(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The token of the request; empty: there is none that could be judged."""
    scheme, _, token = (one(headers, b"authorization") or b"").partition(b" ")
    good = scheme.lower() == b"bearer" and len(token) <= LONGEST and token.isascii()
    return token.strip().decode("ascii") if good else ""


class ServiceAccess:
    """Used on the event loop. `clock` is in seconds."""

    def __init__(
        self,
        rights: MemberRights,
        aside: Callable[[Callable[[], CallerVerdict]], Awaitable[CallerVerdict]],
        clock: Callable[[], float],
    ) -> None:
        self._rights, self._aside, self._clock = rights, aside, clock
        self._verdicts: OrderedDict[tuple[bytes, str, str], tuple[bool, float]] = OrderedDict()
        self._round = 0  # moves on when rights have changed: what was judged before isn't remembered

    def known(self, token: str, project: str, run: str) -> bool | None:
        """The verdict, if it is remembered."""
        found = self._verdicts.get(self._key(token, project, run))
        return None if found is None or found[1] <= self._clock() else found[0]

    async def judge(self, token: str, project: str, run: str = "") -> bool:
        """Empty `run`: may they use all services of the project?"""
        if (known := self.known(token, project, run)) is not None:
            return known
        began, asked = self._round, self._clock()
        verdict = await self._aside(lambda: self._rights.member(token, project, run))
        if began == self._round:
            key = self._key(token, project, run)
            self._verdicts[key] = verdict.allowed, asked + _lasts(verdict)
            self._verdicts.move_to_end(key)
            if len(self._verdicts) > MOST:
                self._verdicts.popitem(last=False)
        return verdict.allowed

    def changed(self) -> None:
        """Somebody's rights may be others now."""
        self._round += 1
        self._verdicts.clear()

    @staticmethod
    def _key(token: str, project: str, run: str) -> tuple[bytes, str, str]:
        return hashlib.sha256(token.encode()).digest(), project, run


def _lasts(verdict: CallerVerdict) -> float:
    """For how many seconds it is believed, from when it was asked for."""
    if not verdict.allowed:
        return BAD
    return GOOD if verdict.ends_in is None else min(GOOD, verdict.ends_in)
