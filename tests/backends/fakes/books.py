"""What exists at a provider, by the test's clock: states that time brings about, and counters that have limits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from chalicelib.domain.instants import Micros

GONE = None
Step = tuple[Micros, str | None]  # how long from now, and the state from then on


@dataclass
class Resource:
    kind: str
    id: str
    number: int  # in the order of creation
    born: Micros
    facts: dict[str, Any]  # as the provider shows them, but for what follows from the state
    counts: Mapping[str, int] = field(default_factory=dict)  # what it takes of each counter
    visible: Micros = 0  # when it shows in listings and look-ups
    _states: list[Step] = field(default_factory=list)

    def goes(self, now: Micros, *steps: Step) -> None:
        """From now on: what was to come doesn't."""
        self._states = [each for each in self._states if each[0] <= now] + [(now + after, to) for after, to in steps]

    def state(self, now: Micros) -> str | None:
        for at, state in reversed(self._states):
            if at <= now:
                return state
        return GONE

    def since(self, now: Micros) -> Micros:
        return next((at for at, _ in reversed(self._states) if at <= now), self.born)

    def first(self, state: str, now: Micros) -> Micros | None:
        """When it came to this state; None: it hasn't been in it."""
        return next((at for at, to in self._states if at <= now and to == state), None)


class Books:
    def __init__(self, now: Callable[[], Micros]) -> None:
        self.now = now
        self._all: list[Resource] = []
        self._of_kind: dict[str, list[Resource]] = {}  # thousands are of a kind that is only sold
        self._counted: list[Resource] = []
        self._numbers = itertools.count(1)

    def add(
        self,
        kind: str,
        *steps: Step,
        lag: Micros = 0,
        counts: Mapping[str, int] | None = None,
        prefix: str = "",
        **facts: Any,
    ) -> Resource:
        """`prefix`: of its id."""
        number, now = next(self._numbers), self.now()
        identity = f"{prefix}{number >> 32:08x}-{number >> 16 & 0xFFFF:04x}-{number & 0xFFFF:04x}-0000-{0:012x}"
        states = [(now + after, to) for after, to in steps]
        made = Resource(kind, identity, number, now, facts, counts or {}, now + lag, states)
        self._all.append(made)
        self._of_kind.setdefault(kind, []).append(made)
        if made.counts:
            self._counted.append(made)
        return made

    def existing(self, kind: str = "") -> Iterator[Resource]:
        """The truth, in the order of creation."""
        now = self.now()
        all_ = self._of_kind.get(kind, ()) if kind else self._all
        return (each for each in all_ if each.state(now) is not GONE)

    def made(self, kind: str) -> list[Resource]:
        """All that there ever were."""
        return list(self._of_kind.get(kind, ()))

    def shown(self, kind: str) -> Iterator[Resource]:
        """What the provider shows: nothing before its lag is over."""
        return (each for each in self.existing(kind) if each.visible <= self.now())

    def find(self, kind: str, identity: str) -> Resource | None:
        return next((each for each in self.shown(kind) if each.id == identity), None)

    def used(self, counter: str) -> int:
        now, counted = self.now(), (each for each in self._counted if counter in each.counts)
        return sum(each.counts[counter] for each in counted if each.state(now) is not GONE)

    def over(self, counts: Mapping[str, int], limits: Mapping[str, int]) -> str | None:
        """The first counter that has no room for these; one without a limit has."""
        full = (name for name, more in counts.items() if name in limits and self.used(name) + more > limits[name])
        return next(full, None)
