"""The table of `dstack server slo`: what the server promises, and how it keeps that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.screen.render import Table

if TYPE_CHECKING:
    from chalicelib import contract


def objectives_table(found: contract.ServerSlo) -> Table:
    table = Table(("OBJECTIVE", "TARGET", "ATTAINED", "LATELY", "EVENTS", "MISSED", "BUDGET LEFT"))
    for each in found["objectives"]:
        table.add(
            each["name"],
            _share(each["target"]),
            _share(each["attained"]),
            _share(each["lately"]),
            f"{each['events']:,}",
            f"{each['misses']:,}",
            f"{each['budget_left']:.0%}",
        )
    return table


def meaning_of(found: contract.ServerSlo) -> str:
    width = max(len(each["name"]) for each in found["objectives"])
    lines = [f"{each['name']:{width}}  {each['what']}" for each in found["objectives"]]
    return "\n".join([f"\nOver {found['window_days']} days; lately: since yesterday, in UTC.", *lines])


def _share(share: float | None) -> str:
    """Rounded down, so that nothing less than everything reads 100%."""
    return "-" if share is None else f"{int(share * 100_000 + 1e-6) / 1000:.6g}%"
