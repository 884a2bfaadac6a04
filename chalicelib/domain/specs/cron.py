"""Cron expressions with five fields, in which Monday is 0: validation, and the next time that matches.

Minutes, hours and months are as in every crontab. Days of the week count from Monday, as in the clients' scheduler, so
`7` is invalid and `0` isn't Sunday: names are unambiguous. As there, a moment has to match all five fields, the day and
the day of the week too.

Where a zone changes its clocks: a time that is skipped counts as later by the length of the skip, and of a time that
occurs twice the first counts.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_FIELDS: tuple[tuple[str, int, int, list[str]], ...] = (
    ("minute", 0, 59, []),
    ("hour", 0, 23, []),
    ("day", 1, 31, []),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 6, _DAYS),
)
_ITEM = re.compile(r"(?:\*|([a-z]+|[0-9]{1,4})(?:-([a-z]+|[0-9]{1,4}))?)(?:/([0-9]{1,4}))?", re.IGNORECASE)
_LAST = "last"  # as a day: the last of the month
EXAMPLE = "five fields: minute hour day month weekday, as in `0 9 * * mon-fri`"
_YEARS = 41  # the longest possible wait for a match: for a 29 February on some weekday, across 2100


def problem(expression: str) -> tuple[str, str] | None:
    """What is wrong with an expression, and a hint; None if it is fine."""
    if expression.startswith("@"):
        return f"`{expression}` is a nickname, which isn't supported here", "`@daily` is `0 0 * * *`"
    fields = expression.split()
    if len(fields) != 5:
        return f"a schedule has five fields, `{expression[:60]}` has {len(fields)}", EXAMPLE
    for text, (name, low, high, words) in zip(fields, _FIELDS, strict=True):
        for item in text.split(","):
            if found := _item_problem(item, name, low, high, words):
                return found, "name the days: `mon`, `tue`, ... `sun`" if words is _DAYS else EXAMPLE
    if next_after(expression, datetime(2024, 1, 1, tzinfo=UTC)) is None:
        return f"no day ever matches `{expression[:60]}`", EXAMPLE
    return None


def zone_problem(name: str) -> tuple[str, str] | None:
    """What is wrong with the name of a time zone, and a hint."""
    if _has(name):
        return None
    if not _has("Etc/UTC"):  # which every list has: this must be a client, for a server brings a list of its own
        return (
            f"this machine has no list of time zones, so `{name[:60]}` can't be looked up",
            "install the package `tzdata`, with pip or as one of the system's",
        )
    return f"there is no time zone `{name[:60]}`", "zones have names such as `Europe/Berlin` or `UTC`"


def _has(name: str) -> bool:
    try:
        _zone(name)
    except (KeyError, ValueError, OSError):  # no such zone, no name of one at all, or a folder of zones
        return False
    return True


def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)


def next_after(expression: str, at: datetime, zone: str = "UTC") -> datetime | None:
    """The first moment after `at` that matches a valid expression in this zone; None if there is none."""
    parsed, local = _parsed(expression), _zone(zone)
    here = at.astimezone(local).date()
    for day in _days(parsed, here - timedelta(days=1)):  # what was skipped late in a day comes the day after
        found = [moment for moment in _moments(parsed, day, local) if moment > at]
        if found:
            return min(found)
    return None


@dataclass(frozen=True)
class _Parsed:
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    last_day: bool  # of the month
    months: frozenset[int]
    weekdays: frozenset[int]


@lru_cache(maxsize=1024)
def _parsed(expression: str) -> _Parsed:
    texts = expression.split()
    minutes, hours, days, months, weekdays = (
        frozenset(
            found for item in text.split(",") if item.lower() != _LAST for found in _values(item, low, high, words)
        )
        for text, (_, low, high, words) in zip(texts, _FIELDS, strict=True)
    )
    return _Parsed(minutes, hours, days, _LAST in texts[2].lower().split(","), months, weekdays)


def _values(item: str, low: int, high: int, words: list[str]) -> Iterator[int]:
    found = _ITEM.fullmatch(item)
    assert found is not None, "it was checked"
    first, last, step = found.groups()
    start = low if first is None else _number(first, low, words)
    end = _number(last, low, words) if last is not None else start if first is not None and step is None else high
    yield from range(start, end + 1, int(step or 1))


def _number(text: str, low: int, words: list[str]) -> int:
    return int(text) if text.isdigit() else words.index(text.lower()) + low


def _days(parsed: _Parsed, first: date) -> Iterator[date]:
    """The days that match, from `first` on."""
    for month in range(first.month - 1, first.month - 1 + 12 * _YEARS):
        year, number = first.year + month // 12, month % 12 + 1
        if number in parsed.months and year <= date.max.year:
            days = (date(year, number, day) for day in sorted(_days_of(parsed, year, number)))
            yield from (day for day in days if day >= first and day.weekday() in parsed.weekdays)


def _days_of(parsed: _Parsed, year: int, month: int) -> set[int]:
    last = calendar.monthrange(year, month)[1]
    return {day for day in parsed.days if day <= last} | ({last} if parsed.last_day else set())


def _moments(parsed: _Parsed, day: date, zone: tzinfo) -> Iterator[datetime]:
    for hour in parsed.hours:
        for minute in parsed.minutes:
            yield datetime.combine(day, time(hour, minute), zone).astimezone(UTC)


def _item_problem(item: str, name: str, low: int, high: int, words: list[str]) -> str | None:
    if name == "day" and item.lower() == _LAST:
        return None
    found = _ITEM.fullmatch(item)
    if not found:
        return f"`{item[:40]}` can't be read as a {name}"
    first, last, step = found.groups()
    bounds = []
    for text in (first, last):
        if text is None:
            continue
        value = int(text) if text.isdigit() else words.index(text.lower()) + low if text.lower() in words else None
        if value is None or not low <= value <= high:
            return f"`{text}` is no {name}: it goes from {low} to {high}"
        bounds.append(value)
    if len(bounds) == 2 and bounds[0] > bounds[1]:
        return f"`{item}` is the wrong way round"
    return f"a step of {step} is too small" if step is not None and int(step) == 0 else None
