"""Offers grouped by accelerator, as `dstack offer --group-by gpu` shows them, and how old offers are."""

from __future__ import annotations

from typing import Any

from cli.screen.render import Table
from cli.tables.cells import Json, age, money, size_gb, span
from cli.tables.plans import AVAILABILITY


def gpus_table(groups: list[Json], keys: list[str]) -> Table:
    titles = ["#", "GPU", "SPOT", "$/GPU", "BACKEND" if "backend" in keys else "BACKENDS"]
    if "backend" in keys:
        titles.append("REGION" if "region" in keys else "REGIONS")
    table = Table((*titles, ""), right=frozenset({0}))
    for number, group in enumerate(groups, 1):
        cells = [str(number), _gpu(group), ", ".join(group.get("spot") or ()), _price(group.get("price"))]
        cells.append(str(group.get("backend") or ", ".join(group.get("backends") or ())))
        if "backend" in keys:
            cells.append(str(group.get("region") or _regions(group.get("regions") or [])))
        table.add(*cells, _availability(group.get("availability") or []))
    return table


def _gpu(group: Json) -> str:
    return ":".join(
        part for part in (group["name"], size_gb(group.get("memory_mib")), span(group.get("count"))) if part
    )


def _price(bounds: Any) -> str:
    if not bounds:
        return ""
    low, high = money(bounds.get("min")), money(bounds.get("max"))
    return low if low == high else f"{low}..{high[1:]}"


def _regions(regions: list[str]) -> str:
    return ", ".join(regions[:3]) + (f" and {len(regions) - 3} more" if len(regions) > 3 else "")


def _availability(states: list[str]) -> str:
    """The availability; empty if some of the machines are available."""
    if any(state in ("available", "unknown", "idle") for state in states):
        return ""
    return ", ".join(AVAILABILITY.get(state, state) for state in states)


def ages_line(ages: list[Json], now: float) -> str:
    """The age of the offers, with backends whose last refresh failed and the reason. Empty without backends."""
    fresh = [str(each["taken_at"]) for each in ages if each.get("taken_at") and not each.get("error")]
    parts = [f"Offers as of {age(min(fresh), now)}"] if fresh else []
    if fresh:
        parts += [f"prices of {each['backend']} from {each['prices']}" for each in ages if each.get("prices")]
        parts += [
            f"those of {each['backend']} are older than the {each['outlived']} that they hold"
            for each in ages
            if each.get("outlived") and not each.get("error")
        ]
    for each in ages:
        if not each.get("error"):
            continue
        taken = each.get("taken_at")
        some, none = ("those of", "none of") if parts else ("Offers of", "No offers of")
        known = f"{some} {each['backend']} as of {age(taken, now)}" if taken else f"{none} {each['backend']} yet"
        parts.append(f"{known}: its last refresh failed ({str(each['error']).rstrip('.')})")
    return "; ".join(parts)
