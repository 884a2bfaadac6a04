"""Limits the length of event chains, in which each event triggers the next.

A hint starts a pass, the pass's plan submits an effect, and the effect's outcome sends a hint again: where one offer
after another is refused, that makes a chain of many events. Lambda stops chains of more than about 16 events as
unintended recursion, so these functions are configured to allow it (`loops` in `infra/functions.py`), and only this
limit ends a chain that really is unintended. Each event carries its position in the chain, and in a chain that is too
long no hint is sent. Nothing is lost: the units of the hint are due, and the schedule begins a new chain within a
minute. Effects are sent in any case, because nothing else would execute them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LONGEST = 100  # events; a walk through fifty refused offers is one
_HOPS = "hops"  # the key in an event for the number of events that led to it


class EventChain:
    """The chain of the event that this process handles. A function handles one event at a time."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest, self._hops = longest, 0

    def begin(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Take over an event's position in its chain, and return the event without it. Without one, it begins a
        chain."""
        self._hops = int(event.get(_HOPS, 0))
        return {name: value for name, value in event.items() if name != _HOPS}

    def next(self, event: Mapping[str, Any]) -> dict[str, Any]:
        return {**event, _HOPS: self._hops + 1}

    @property
    def over(self) -> bool:
        return self._hops >= self._longest
