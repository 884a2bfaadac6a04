"""What markets are asked for a unit before it buys, and what it waits for until they have answered."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.placing.buying import Purchase
from chalicelib.planning.placing.capacity import Capacity
from chalicelib.planning.placing.markets import ASK_AGAIN_EVERY, CHECK_ANSWER_EVERY, Markets, Unanswered, least
from chalicelib.planning.placing.options import Unplaceable, Waiting
from chalicelib.planning.placing.quotas import Allowance


class Question:
    """To be made before the unit is placed, which takes of the capacity."""

    def __init__(self, capacity: Capacity, allowance: Allowance, markets: Markets, unit: Sequence[QueuedJob]) -> None:
        self._capacity, self._allowance, self._markets, self._unit = capacity, allowance, markets, unit
        self._unanswered, self._no_quota = self._to_ask()

    def first(self, found: Sequence[object] | Waiting | Unplaceable) -> Waiting | None:
        """What the unit waits for before what was `found` for it counts: places, or why there are none."""
        if isinstance(found, Waiting):
            again = None if self._no_quota else self._markets.unanswered(self._capacity, self._unit, ASK_AGAIN_EVERY)
            return _wait(self._unanswered if self._no_quota else again)
        if not isinstance(found, Unplaceable):
            return _wait(self._unanswered) if any(isinstance(place, Purchase) for place in found) else None
        if self._unanswered is None and self._no_quota:
            return Waiting("", self._no_quota)
        return _wait(self._unanswered or self._markets.unanswered(self._capacity, self._unit, retry=True))

    def _to_ask(self) -> tuple[Unanswered | None, str]:
        """What to ask before the unit buys, and the quota that it would have to wait for, whatever the silent markets
        said: then none is asked, or seldom."""
        capacity, markets, unit = self._capacity, self._markets, self._unit
        run = unit[0].run
        if self._allowance.limits(run) and markets.silent(capacity, unit):
            if wait := self._allowance.refuses(run, least(unit)):
                return None, wait
            if wait := self._allowance.refuses(run, markets.expected(capacity, unit)):
                return markets.unanswered(capacity, unit, again=ASK_AGAIN_EVERY), wait
        return markets.unanswered(capacity, unit), ""


def _wait(unanswered: Unanswered | None) -> Waiting | None:
    return None if unanswered is None else Waiting("", unanswered.message, CHECK_ANSWER_EVERY, unanswered)
