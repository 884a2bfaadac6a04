"""What a project cost on one day, counted once the day is over. Events, of which it is counted, are erased sooner."""

from __future__ import annotations

from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, SECOND, Micros
from chalicelib.domain.noun import Noun, Value

KEPT = 400 * DAY  # a year, and the month of which it is compared with the same one
MOST_ROWS = 300  # of a day: the cheapest of more are added up in one
OTHERS = "(others)"
VOLUMES = "(volumes)"  # in the place of their fleet: no fleet can have this name


class CostRow(Value):
    """What somebody had of a fleet's machines with some kind of GPU, or of volumes, hour by hour."""

    user: str = ""  # their name; empty: nobody, the machines were idle
    fleet: str = ""  # its name
    gpu: str = ""  # empty: none
    hours: tuple[tuple[int, float, float], ...] = ()  # hour of the day, dollars, GPU hours

    @property
    def dollars(self) -> float:
        return sum(hour[1] for hour in self.hours)


class CostDay(Noun):
    kind: ClassVar[str] = "cost-day"

    project_id: str
    day: Micros  # its beginning, in UTC
    rows: tuple[CostRow, ...] = ()

    def place(self) -> keys.Place:
        key = keys.cost_day(self.project_id, self.day)
        return keys.Place(key, expires_at=(self.day + KEPT) // SECOND)
