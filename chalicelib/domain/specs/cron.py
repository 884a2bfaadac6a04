"""Cron expressions: five fields, UTC, Monday is 0. Parsed here only to refuse a wrong one with a reason.

Minutes, hours and months are as in every crontab. Days of the week count from Monday, as in the clients' scheduler, so
`7` is invalid and `0` isn't Sunday: names are unambiguous.
"""

from __future__ import annotations

import re

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
_NTH = re.compile(r"(1st|2nd|3rd|4th|5th|last) +(mon|tue|wed|thu|fri|sat|sun)|last", re.IGNORECASE)
EXAMPLE = "five fields, UTC: minute hour day month weekday, as in `0 9 * * mon-fri`"


def problem(expression: str) -> tuple[str, str] | None:
    """What is wrong with an expression, and a hint; None if it is fine."""
    if expression.startswith("@"):
        return f"`{expression}` is a nickname, which isn't understood here", "`@daily` is `0 0 * * *`"
    fields = expression.split()
    if len(fields) != 5:
        return f"a schedule has five fields, `{expression[:60]}` has {len(fields)}", EXAMPLE
    for text, (name, low, high, words) in zip(fields, _FIELDS, strict=True):
        for item in text.split(","):
            if found := _item_problem(item, name, low, high, words):
                return found, "name the days: `mon`, `tue`, ... `sun`" if words is _DAYS else EXAMPLE
    return None


def _item_problem(item: str, name: str, low: int, high: int, words: list[str]) -> str | None:
    if name == "day" and _NTH.fullmatch(item):
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
        return f"`{item}` is upside down"
    return f"a step of {step} is too small" if step is not None and int(step) == 0 else None
