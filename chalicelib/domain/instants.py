"""Time as a plain integer: microseconds since the epoch, UTC.

Integers compare, subtract and sort without time-zone bugs, have one text form in keys, and suit the simulation's
virtual time. They become ISO dates only on the wire.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

Micros = int

SECOND: Micros = 1_000_000
MINUTE: Micros = 60 * SECOND
HOUR: Micros = 60 * MINUTE
DAY: Micros = 24 * HOUR
MONTH: Micros = 30 * DAY  # the unit of volumes' prices

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=16_384)  # a client that follows a list gets the same dates again and again
def day_of(now: Micros) -> Micros:
    """The beginning of the day in UTC."""
    return now - now % DAY


def iso(at: Micros) -> str:
    """`2026-11-21T05:11:20.465869+00:00`: always with a zone, because clients compare it with zoned dates."""
    return (_EPOCH + timedelta(microseconds=at)).isoformat()


def from_iso(text: str) -> Micros:
    """The inverse of `iso`; a date without a zone is read as UTC. Raises ValueError on anything else."""
    at = datetime.fromisoformat(text)
    zoned = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (zoned - _EPOCH) // timedelta(microseconds=1)


def retry_after(retry_after: str, now: Micros) -> Micros:
    """The pause that a `Retry-After` header asks for, in either of its forms; 0 if it is absent or malformed."""
    from email.utils import parsedate_to_datetime

    if retry_after.isascii() and retry_after.isdigit():
        return int(retry_after[:10]) * SECOND
    try:
        until = (parsedate_to_datetime(retry_after) - _EPOCH) // timedelta(microseconds=1)
    except (TypeError, ValueError):  # it has no zone, or is no date
        return 0
    return max(0, until - now)


def clock(at: Micros) -> str:
    """`12:03:20 UTC`: without the date, for times of today."""
    return f"{_EPOCH + timedelta(microseconds=at):%H:%M:%S} UTC"


def spoken(duration: Micros) -> str:
    """`20 minutes`: in the largest unit that divides it evenly."""
    units = (("day", DAY), ("hour", HOUR), ("minute", MINUTE), ("second", SECOND))
    name, unit = next((name, unit) for name, unit in units if duration % unit == 0)
    return f"{duration // unit} {name}{'' if duration == unit else 's'}"


def every(duration: Micros) -> str:
    """`every minute`, `every 20 minutes`."""
    return f"every {spoken(duration).removeprefix('1 ')}"


def sortable(at: Micros) -> str:
    """Seventeen digits, so that text order is time order until the year 5138."""
    return f"{at:017d}"
