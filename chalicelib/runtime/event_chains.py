"""How long a chain may become of events of which each asks for the next.

A hint has a pass look, a plan of the pass has an effect carried out, and what comes of that is a hint again: where one
offer after the other is refused, that is a walk of many events. Lambda takes a chain of more than about 16 for a
mistake and drops the next event, so these functions say that it is meant (`loops` in `infra/functions.py`). Then
nothing but this ends a chain that is a mistake. Each event says which one of its chain it is, and in one that is too
long no hint is sent. Nothing is lost with it: what it would have named is due, and the schedule begins a new chain
within a minute. An effect is sent in any case, for nobody else would carry it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LONGEST = 100  # events; a walk through fifty refused offers is one
_HOPS = "hops"  # in an event: how many led to it


class EventChain:
    """Of the event that this process is at. A function is at one at a time."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest, self._hops = longest, 0

    def begin(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """The event without its place in the chain. One that has none begins a chain."""
        self._hops = int(event.get(_HOPS, 0))
        return {name: value for name, value in event.items() if name != _HOPS}

    def next(self, event: Mapping[str, Any]) -> dict[str, Any]:
        return {**event, _HOPS: self._hops + 1}

    @property
    def over(self) -> bool:
        return self._hops >= self._longest
