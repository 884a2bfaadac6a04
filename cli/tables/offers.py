"""Offers grouped by accelerator, as `dstack offer --group-by gpu` shows them, and how old offers are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.screen.render import Table
from cli.tables.cells import age, local_time, money, size_gb, span
from cli.tables.plans import AVAILABILITY

if TYPE_CHECKING:
    from chalicelib import contract

MOST_ASKED = 5  # requests that are shown


def gpus_table(groups: Sequence[contract.GpuGroup], keys: Sequence[str]) -> Table:
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


def _gpu(group: contract.GpuGroup) -> str:
    return ":".join(
        part for part in (group["name"], size_gb(group.get("memory_mib")), span(group.get("count"))) if part
    )


def _price(bounds: contract.FloatRange | None) -> str:
    if not bounds:
        return ""
    low, high = money(bounds.get("min")), money(bounds.get("max"))
    return low if low == high else f"{low}..{high[1:]}"


def _regions(regions: list[str]) -> str:
    return ", ".join(regions[:3]) + (f" and {len(regions) - 3} more" if len(regions) > 3 else "")


def _availability(states: Sequence[str]) -> str:
    """The availability; empty if some of the machines are available."""
    if any(state in ("available", "unknown", "idle") for state in states):
        return ""
    return ", ".join(AVAILABILITY.get(state, state) for state in states)


def ages_line(ages: Sequence[contract.OffersAge], now: float) -> str:
    """The age of the offers, with backends whose last refresh failed and the reason. Empty without backends."""
    fresh = [str(each["taken_at"]) for each in ages if each["taken_at"] and not each["error"]]
    parts = [f"Offers as of {age(min(fresh), now)}"] if fresh else []
    if fresh:
        parts += [f"prices of {each['backend']} in USD from {each['prices']}" for each in ages if each["prices"]]
        parts += [
            f"those of {each['backend']} are older than the {each['outlived']} that they hold"
            for each in ages
            if each["outlived"] and not each["error"]
        ]
    for each in ages:
        if not each["error"]:
            continue
        taken = each["taken_at"]
        some, none = ("those of", "none of") if parts else ("Offers of", "No offers of")
        known = f"{some} {each['backend']} as of {age(taken, now)}" if taken else f"{none} {each['backend']} yet"
        parts.append(f"{known}: its last refresh failed ({str(each['error']).rstrip('.')})")
    return "; ".join(parts)


def asked_lines(asked: Sequence[contract.OffersAsked]) -> list[str]:
    """What backends without a list of offers were asked for, when, and what came of it."""
    more = len(asked) - MOST_ASKED
    return [
        *(
            f"Asked {each['backend']} at {_time(each)} for {each['request']}: {_found(each)}"
            for each in asked[:MOST_ASKED]
        ),
        *([f"… and {more} more, which --json shows"] if more > 0 else []),
    ]


def _time(asked: contract.OffersAsked) -> str:
    return local_time(asked["asked_at"])[11:]


def _found(asked: contract.OffersAsked) -> str:
    count, took = asked["offers"], asked["seconds"]
    found = asked["error"] or f"{count or 'no'} offer{'' if count == 1 else 's'}"
    within = "" if took is None else f" in {took:.1f}s"
    why = f" ({asked['lacking']})" if asked["lacking"] else ""
    return f"{found}{within}{why}"
