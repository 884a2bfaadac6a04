"""What a control plane promises its users, measured by itself: objectives, each a share of events that must go well.

A day's tallies are one record, so an answer about weeks reads a page of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, MINUTE, SECOND, Micros
from chalicelib.domain.noun import Noun, Value

WINDOW_DAYS = 28  # of four whole weeks: each has as many weekends
KEPT_DAYS = 60


@dataclass(frozen=True)
class Objective:
    name: str
    what: str  # what goes well
    target: float  # the share of events that must
    within: Micros = 0  # how long a good one takes at most; 0: that isn't what it is about


ANSWERS, SPEED, DECISIONS, STARTS = "answers", "speed", "decisions", "starts"
OBJECTIVES: Mapping[str, Objective] = {
    each.name: each
    for each in (
        Objective(ANSWERS, "requests get an answer that isn't an error of the server", 0.999),
        Objective(SPEED, "requests are answered within 1 s", 0.99, SECOND),
        Objective(DECISIONS, "jobs have a place, or are told why they wait, within 10 s", 0.99, 10 * SECOND),
        Objective(STARTS, "jobs are begun by a machine that is up within 1 min", 0.99, MINUTE),
    )
}


class Tally(Value):
    events: int = 0
    misses: int = 0  # of the events

    def and_(self, other: Tally) -> Tally:
        return Tally(events=self.events + other.events, misses=self.misses + other.misses)


class ObjectiveDay(Noun):
    kind: ClassVar[str] = "objective-day"

    day: Micros  # its beginning, in UTC
    tallies: Mapping[str, Tally] = {}  # by objective

    def place(self) -> keys.Place:
        return keys.Place(keys.objective_day(self.day), expires_at=(self.day + KEPT_DAYS * DAY) // SECOND)

    def plus(self, more: Mapping[str, Tally]) -> ObjectiveDay:
        names = {**self.tallies, **more}
        return self.with_(
            tallies={name: self.tallies.get(name, Tally()).and_(more.get(name, Tally())) for name in names}
        )


@dataclass(frozen=True)
class Standing:
    """How an objective fares over some days."""

    objective: Objective
    tally: Tally

    @property
    def attained(self) -> float | None:
        """The share of events that went well; None if there were none."""
        return 1 - self.tally.misses / self.tally.events if self.tally.events else None

    @property
    def budget_left(self) -> float:
        """The share of the allowed misses that is left; negative if more were missed than allowed."""
        if not self.tally.misses:
            return 1.0
        return 1 - self.tally.misses / (self.tally.events * (1 - self.objective.target))

    @property
    def met(self) -> bool:
        return self.attained is None or self.attained >= self.objective.target


def standings(days: Iterable[ObjectiveDay], since: Micros) -> list[Standing]:
    """Each objective over the days from `since` on."""
    total = {name: Tally() for name in OBJECTIVES}
    for day in days:
        if day.day >= since:
            total = {name: tally.and_(day.tallies.get(name, Tally())) for name, tally in total.items()}
    return [Standing(objective, total[name]) for name, objective in OBJECTIVES.items()]
