"""The table of `dstack server info`: the parts of a server's data and their sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cli.screen.render import Table, facts

if TYPE_CHECKING:
    from chalicelib import contract

UNITS = ("B", "KB", "MB", "GB", "TB")
RETENTION: Mapping[str, str] = {  # labels of settings
    "events": "events",
    "metrics": "metrics",
    "logs": "logs, after a run's end",
    "deleted": "deleted runs and projects",
    "fleets": "ended fleets and instances",
    "archives": "uploads of runs, after their last use",
}


def usage_table(found: contract.ServerUsage) -> Table:
    table = Table(("PART", "FILES", "SIZE"))
    for part in found["parts"]:
        least = "" if part["whole"] else "over "  # too many to count them
        table.add(part["name"], f"{least}{part['files']}", f"{least}{size(part['bytes'])}")
    table.add("free on its disk", "", "-" if found["free"] is None else size(found["free"]))
    return table


def subscriptions_table(found: Sequence[contract.SubscriptionState]) -> Table:
    """Webhooks and rules, with the reason if one doesn't progress."""
    table = Table(("FOLLOWS EVENTS", "STATUS", "ERROR"), below=("ERROR",))
    for one in found:
        tried = f"attempt {one['failures']} failed" if one["failures"] else "well"
        table.add(one["name"].replace("/", " "), "dead" if one["dead"] else tried, one["error"])
    return table


def retention_text(days: contract.RetentionDays, width: int | None, colour: bool) -> str:
    labelled = [(RETENTION[name], number) for name, number in days.items() if name in RETENTION]
    rows = [(label, f"{number} day{'' if number == 1 else 's'}") for label, number in labelled]
    return "\nKept for\n" + facts([(f"  {label}", text) for label, text in rows], width, colour)


def size(bytes: int) -> str:
    amount, unit = float(bytes), 0
    while amount >= 1024 and unit < len(UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} {UNITS[unit]}" if amount >= 10 or not unit else f"{amount:.1f} {UNITS[unit]}"
