"""Durations and dates of flags; `--since` is a duration back from now, or a date."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import typer

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def seconds_of(text: str, flag: str) -> int:
    """The seconds of a duration such as `30m`, given to this flag."""
    match = re.fullmatch(r"\s*(\d{1,9})\s*([smhdw])\s*", text)
    if match is None:
        raise typer.BadParameter(f"{text!r} isn't a duration such as 30m or 2h.", param_hint=flag)
    return int(match[1]) * UNITS[match[2]]


def since_moment(text: str | None, now: float) -> str | None:
    """The ISO date that `text` means: `15m`, `2h`, or `2026-11-21T08:00:00` in local time unless it has a zone."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+)\s*([smhdw])\s*", text)
    if match:
        at = datetime.fromtimestamp(now - int(match[1]) * UNITS[match[2]], UTC)
    else:
        try:
            at = datetime.fromisoformat(text).astimezone(UTC)
        except ValueError:
            raise typer.BadParameter(
                f"{text!r} is neither a duration such as 15m or 2h nor a date such as 2026-11-21T08:00:00.",
                param_hint="--since",
            ) from None
    return at.isoformat().replace("+00:00", "Z")
