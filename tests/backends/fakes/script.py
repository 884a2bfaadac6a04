"""How a fake misbehaves: what a test switches on, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from chalicelib.domain.instants import SECOND, Micros
from tests.backends.fakes.schema import Operation


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Cut(Exception):
    """The connection ends without an answer."""


@dataclass(frozen=True)
class Call:
    """A request that fits its operation."""

    operation: Operation
    path: Mapping[str, str]
    query: Mapping[str, Any]
    headers: Mapping[str, str]  # names in lower case
    body: Any
    at: Micros


Lie = Callable[[Any], Any]  # the true body of an answer to the one that is sent


@dataclass
class Fault:
    """What becomes of the next `times` calls that fit: an error, a connection that is cut, or a lie."""

    operation: str  # a pattern: `create*`
    becomes: Answer | type[Cut] | Lie
    when: Literal["before", "after"] = "before"  # it has its effect; a lie is always about what was done
    times: int = 1
    passing: int = 0  # so many calls that fit go well first
    fits: Callable[[Call], bool] = lambda call: True

    def met(self, call: Call, when: str) -> bool:
        """Is it this call's turn? Counts it."""
        due = self.when if isinstance(self.becomes, Answer | type) else "after"
        if self.times <= 0 or due != when or not fnmatchcase(call.operation.name, self.operation):
            return False
        if not self.fits(call):
            return False
        if self.passing > 0:
            self.passing -= 1
            return False
        self.times -= 1
        return True


@dataclass
class Rate:
    """A bucket of tokens: so many calls within a time, and then one by one as they come back."""

    calls: int
    within: Micros
    _left: float = -1.0
    _at: Micros = 0

    def wait(self, now: Micros) -> float:
        """Seconds until there is a token; 0: one was taken."""
        full, each = float(self.calls), self.within / self.calls
        self._left = full if self._left < 0 else min(full, self._left + (now - self._at) / each)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) * each / SECOND


@dataclass
class Script:
    lag: Micros = 0  # until what was created shows
    page: int = 0  # items of a page, at most; 0: the provider's own number
    limits: dict[str, int] = field(default_factory=dict)  # of counters: stock and quotas; absent: none
    rates: dict[str, Rate] = field(default_factory=dict)  # by a pattern of operations
    faults: list[Fault] = field(default_factory=list)

    def fault(self, call: Call, when: str) -> Fault | None:
        return next((each for each in self.faults if each.met(call, when)), None)

    def wait(self, operation: str, now: Micros) -> float:
        return max((rate.wait(now) for name, rate in self.rates.items() if fnmatchcase(operation, name)), default=0.0)


def misses(items: str, which: int = 0) -> Lie:
    """A listing without something that exists."""
    return lambda body: {**body, items: [each for at, each in enumerate(body[items]) if at != which]}


def repeats(items: str) -> Lie:
    """A listing that has something twice."""
    return lambda body: {**body, items: [*body[items], *body[items][:1]]}
