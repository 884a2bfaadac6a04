"""The ledger: what machines and volumes cost hour by hour, who had them, and what nobody had. Pure.

A machine costs its price from when it is ordered until it is given back. A job costs its user the price of its share
while it has it. What is left of a machine's price was idle. So the rows of an hour add up to what the machines cost,
those of all projects together if some have lent machines to others: a share is counted where its job is. A volume
costs the user who made it; it is a share of no machine, and never idle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from chalicelib.domain.costs import MOST_ROWS, OTHERS, CostDay, CostRow
from chalicelib.domain.instants import DAY, HOUR, Micros, day_of

By = Literal["user", "project", "fleet", "gpu"]
IDLE = ""  # the user of what nobody had
TREND = 7 * DAY  # the time whose costs a forecast goes on with


@dataclass(frozen=True)
class Holding:
    """A machine, a job's share of one, or a volume, while it is held."""

    machine: str  # the instance's id, or the volume's
    start: Micros
    end: Micros | None  # None: still held
    price: float  # dollars an hour
    gpus: int
    gpu: str  # the name of the GPUs; empty: none
    fleet: str  # its name
    user: str | None = None  # of the job or the volume; None: this is the machine itself
    lent: bool = False  # the job is another project's, which counts this share as its own


class Amount(NamedTuple):
    dollars: float = 0.0
    idle: float = 0.0  # those of the dollars for which nobody had anything
    gpu_hours: float = 0.0
    idle_gpu_hours: float = 0.0

    def plus(self, other: Amount) -> Amount:
        return Amount(*map(sum, zip(self, other, strict=True)))


class Spent(NamedTuple):
    """What one row has in one hour."""

    at: Micros  # the beginning of the hour
    user: str
    fleet: str
    gpu: str
    dollars: float
    gpu_hours: float

    @property
    def amount(self) -> Amount:
        idle = self.user == IDLE
        return Amount(self.dollars, self.dollars if idle else 0.0, self.gpu_hours, self.gpu_hours if idle else 0.0)


# --- counting ---------------------------------------------------------------------------------------------------------


def spent(holdings: Iterable[Holding], since: Micros, until: Micros, now: Micros) -> list[Spent]:
    """The rows of all hours from `since` to `until`, which begin hours, up to `now`."""
    had: dict[tuple[Micros, str, str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    left: dict[tuple[Micros, str], list[float]] = {}  # of each machine, in each hour
    machines: dict[str, Holding] = {}
    shares: list[Holding] = []
    for each in holdings:
        if each.user is not None:
            shares.append(each)
            continue
        machines[each.machine] = each
        for hour, held in _hours(each, since, until, now):
            rest = left.setdefault((hour, each.machine), [0.0, 0.0])
            rest[0], rest[1] = rest[0] + each.price * held, rest[1] + each.gpus * held
    for each in shares:
        for hour, held in _hours(each, since, until, now):
            if not each.lent:
                row = had[hour, each.user or OTHERS, each.fleet, each.gpu]
                row[0], row[1] = row[0] + each.price * held, row[1] + each.gpus * held
            rest = left.get((hour, each.machine), [0.0, 0.0])
            rest[0], rest[1] = rest[0] - each.price * held, rest[1] - each.gpus * held
    for (hour, machine), (dollars, gpu_hours) in left.items():
        row = had[hour, IDLE, machines[machine].fleet, machines[machine].gpu]
        row[0], row[1] = row[0] + max(0.0, dollars), row[1] + max(0.0, gpu_hours)
    found = [Spent(*row, round(amount[0], 6), round(amount[1], 4)) for row, amount in had.items()]
    return sorted(each for each in found if each.dollars or each.gpu_hours)


def _hours(held: Holding, since: Micros, until: Micros, now: Micros) -> Iterator[tuple[Micros, float]]:
    """The hours of a time in which something is held, and for which part of each."""
    start, end = max(held.start, since), min(now if held.end is None else held.end, until)
    hour = start - start % HOUR
    while hour < end:
        yield hour, (min(end, hour + HOUR) - max(start, hour)) / HOUR
        hour += HOUR


# --- storing ----------------------------------------------------------------------------------------------------------


def days(project_id: str, rows: Iterable[Spent], since: Micros, until: Micros) -> list[CostDay]:
    """A record for each day from `since` to `until`, those without costs included."""
    by_day: dict[Micros, dict[tuple[str, str, str], list[tuple[int, float, float]]]] = defaultdict(dict)
    for each in rows:
        of_day = by_day[day_of(each.at)].setdefault((each.user, each.fleet, each.gpu), [])
        of_day.append(((each.at - day_of(each.at)) // HOUR, each.dollars, each.gpu_hours))
    return [
        CostDay(project_id=project_id, day=day, rows=_bounded(by_day.get(day, {}))) for day in range(since, until, DAY)
    ]


def _bounded(rows: Mapping[tuple[str, str, str], list[tuple[int, float, float]]]) -> tuple[CostRow, ...]:
    found = [CostRow(user=key[0], fleet=key[1], gpu=key[2], hours=tuple(hours)) for key, hours in rows.items()]
    found.sort(key=lambda row: (-row.dollars, row.user, row.fleet, row.gpu))
    kept, more = found[: MOST_ROWS - 2], found[MOST_ROWS - 2 :]
    for user in (IDLE, OTHERS):
        added = [row for row in more if (row.user == IDLE) == (user == IDLE)]
        if added:
            kept.append(CostRow(user=user, fleet=OTHERS, hours=_added(added)))
    return tuple(kept)


def _added(rows: Iterable[CostRow]) -> tuple[tuple[int, float, float], ...]:
    total: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in rows:
        for hour, dollars, gpu_hours in row.hours:
            total[hour][0] += dollars
            total[hour][1] += gpu_hours
    return tuple((hour, round(each[0], 6), round(each[1], 4)) for hour, each in sorted(total.items()))


def stored(day: CostDay) -> Iterator[Spent]:
    """The rows of a day that was stored."""
    for row in day.rows:
        for hour, dollars, gpu_hours in row.hours:
            yield Spent(day.day + hour * HOUR, row.user, row.fleet, row.gpu, dollars, gpu_hours)


# --- showing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Series:
    """What is grouped under one name."""

    name: str
    total: Amount
    steps: Mapping[Micros, Amount]  # by the beginning of the day or of the hour; without those that have nothing


def grouped(rows: Iterable[tuple[str, Spent]], by: By, step: Micros) -> list[Series]:
    """Rows, each with its project's name, under what they are grouped by, the most expensive first. Idle time belongs
    to no user."""
    found: dict[str, dict[Micros, Amount]] = {}
    for project, row in rows:
        name = project if by == "project" else str(getattr(row, by))
        steps = found.setdefault(name, {})
        at = row.at - row.at % step
        steps[at] = steps.get(at, Amount()).plus(row.amount)
    series = [Series(name, total(steps.values()), dict(sorted(steps.items()))) for name, steps in found.items()]
    return sorted(series, key=lambda each: (-each.total.dollars, -each.total.gpu_hours, each.name))


def total(amounts: Iterable[Amount]) -> Amount:
    found = Amount()
    for each in amounts:
        found = found.plus(each)
    return found


def forecast(rows: Sequence[Spent], first: Micros, month: tuple[Micros, Micros], now: Micros) -> tuple[float, float]:
    """What was spent this month, and what it will be at the end: the last seven days go on like that, or as many as
    there are. `rows`: from the earlier of the month's beginning and seven days ago; `first`: since when there are any;
    `month`: its beginning and end."""
    begins, ends = month
    so_far = sum(row.dollars for row in rows if begins <= row.at < ends)
    since = max(now - TREND, first)
    recent = sum(row.dollars for row in rows if row.at >= since - since % HOUR)
    rate = recent / max(DAY, now - since)  # the first hours tell little
    return so_far, so_far + rate * max(0, ends - now)
