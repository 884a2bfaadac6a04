"""What projects cost over time, by who had the machines, or by which machines they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from chalicelib.billing import ledger
from chalicelib.billing.ledger import Amount, By, Series
from chalicelib.domain import keys
from chalicelib.domain.costs import KEPT
from chalicelib.domain.instants import DAY, HOUR, SECOND, Micros, day_of, iso
from chalicelib.domain.quotas import Quota
from chalicelib.domain.tenants import Project
from chalicelib.engine.cost_days import rows
from chalicelib.errors import Problem, WrongQuery
from chalicelib.usecases.ports import RecordPorts

USUAL = 30 * DAY
LONGEST = {DAY: KEPT, HOUR: 8 * DAY}  # by step


@dataclass(frozen=True)
class CostWindow:
    """The time that is asked for, in whole days; what hasn't been yet costs nothing."""

    since: Micros
    until: Micros
    step: Micros  # DAY or HOUR


@dataclass(frozen=True)
class CostView:
    window: CostWindow
    by: By
    total: Amount
    series: Sequence[Series]
    month: tuple[Micros, Micros]  # its beginning and end
    spent: float  # this month, in dollars
    forecast: float
    budget: float | None = None  # dollars a day
    unpriced: int = 0  # volumes whose price isn't known, so they are in none of these


def window(now: Micros, since: Micros | None, until: Micros | None, step: Micros) -> CostWindow:
    """Raises WrongQuery for a time that is longer than what can be shown, or of which nothing is kept or known yet."""
    ends = now if until is None else until
    end = day_of(ends - 1) + DAY
    begin = day_of(max(0, end - (USUAL if step == DAY else DAY)) if since is None else since)
    if begin >= end:
        raise WrongQuery([Problem("it begins after its end", path="since", hint="choose an earlier `since`")])
    if end - begin > LONGEST[step]:
        days, what = LONGEST[step] // DAY, "day by day" if step == DAY else "hour by hour"
        text = f"{what} at most {days} days are shown at once"
        raise WrongQuery([Problem(text, path="since", hint="choose a later `since`, or an earlier `until`")])
    asked = "until" if since is None else "since"
    if begin > now:
        raise WrongQuery([Problem("that is in the future", path=asked, hint=f"it is {iso(now)}")])
    oldest = day_of(now) + DAY - KEPT
    if begin < oldest:
        text = f"what a day cost is kept for {KEPT // DAY} days"
        raise WrongQuery([Problem(text, path=asked, hint=f"there are figures from {iso(oldest)} on")])
    return CostWindow(begin, end, step)


def of_project(plane: RecordPorts, project: Project, wanted: CostWindow, by: By) -> CostView:
    quota = plane.read.find(Quota, keys.quota(project.id))
    return _view(plane, [project], wanted, by, None if quota is None else quota.limits.money)


def of_all(plane: RecordPorts, projects: Sequence[Project], wanted: CostWindow, by: By) -> CostView:
    return _view(plane, projects, wanted, by)


def _view(
    plane: RecordPorts, projects: Sequence[Project], wanted: CostWindow, by: By, budget: float | None = None
) -> CostView:
    now = plane.clock.now()
    month = month_of(now)
    first = min(wanted.since, month[0], day_of(now - ledger.TREND))
    until = max(wanted.until, day_of(now) + DAY)
    found = [(each.name, row) for each in projects for row in rows(plane.read, each.id, first, until, now)]
    within = [(name, row) for name, row in found if wanted.since <= row.at < wanted.until]
    series = ledger.grouped(within, by, wanted.step)
    began = min((row.at for _, row in found), default=now)
    spent, forecast = ledger.forecast([row for _, row in found], began, month, now)
    total = ledger.total(each.total for each in series)
    unpriced = sum(_unpriced(plane, each) for each in projects)
    return CostView(wanted, by, total, series, month, spent, forecast, budget, unpriced)


def _unpriced(plane: RecordPorts, project: Project) -> int:
    return sum(volume.active_at is not None and volume.price is None for volume in plane.read.volumes(project.id))


def month_of(now: Micros) -> tuple[Micros, Micros]:
    """The beginning and the end of the month, in UTC."""
    at = datetime.fromtimestamp(now // SECOND, UTC)
    begins = datetime(at.year, at.month, 1, tzinfo=UTC)
    ends = datetime(at.year + at.month // 12, at.month % 12 + 1, 1, tzinfo=UTC)
    return int(begins.timestamp()) * SECOND, int(ends.timestamp()) * SECOND
