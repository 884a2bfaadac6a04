"""The tables of `guides/aws-costs.md`, from the model. The words around them are the page's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from chalicelib.billing import plane
from chalicelib.billing.plane import ACCOUNT, BUSY, DOOR, NODE, PRICES, REPLICA, RUN, START
from chalicelib.billing.plane_rates import CHANGES, RATES

PAGE = Path(__file__).parent / "guides" / "aws-costs.md"
SIZES = (0, 100, 1_000, 10_000)
LEAST = 0.01  # of a bill: what is less isn't shown
_PART = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def page() -> str:
    """The page, with its tables as they are now."""
    parts = {
        "sizes": _sizes(),
        "runs": _runs(),
        "services": _services(),
        "accounts": _accounts(),
        "bill": _bill(1_000),
        "rates": _rates(),
        "prices": _prices(),
    }
    return _PART.sub(lambda found: f"{found[1]}{parts[found[2]]}\n{found[3]}", PAGE.read_text(encoding="utf-8"))


def _sizes() -> str:
    rows = [("instances", "runs a month", "dollars a month", "with a bus"), ("--:", "--:", "--:", "--:")]
    rows += [
        (f"{size:,}", f"{size * plane.RUNS:,}", f"{_dollars(size):,.2f}", f"{_dollars(size, CHANGES):,.2f}")
        for size in SIZES
    ]
    return _table(rows)


def _dollars(size: int, changes: Mapping[str, float] | None = None) -> float:
    return plane.total(plane.bill(RATES, plane.counts(size, changes=changes)))


def _bill(size: int) -> str:
    lines = plane.bill(RATES, plane.counts(size))
    shown = [line for line in lines if line.dollars >= LEAST * plane.total(lines)]
    rows = [("for", "of", "a month", "dollars"), ("--", "--", "--:", "--:")]
    rows += [(line.driver, line.item, f"{line.amount:,.0f}", f"{line.dollars:,.2f}") for line in shown]
    return _table(rows)


def _runs() -> str:
    rows = [("a thousand of", "dollars"), ("--", "--:")]
    drivers = (RUN, NODE, START)
    return _table(rows + [(driver, f"{plane.total(plane.bill(RATES, {driver: 1_000})):,.2f}") for driver in drivers])


def _services() -> str:
    return _monthly(REPLICA, DOOR, BUSY)


def _accounts() -> str:
    return _monthly(ACCOUNT)


def _monthly(*drivers: str) -> str:
    rows = [("each, all month", "dollars a month"), ("--", "--:")]
    return _table(rows + [(driver, f"{plane.total(plane.bill(RATES, {driver: 1})):,.2f}") for driver in drivers])


def _rates() -> str:
    rows: list[tuple[str, ...]] = [("of", *RATES), ("--", *("--:" for _ in RATES))]
    rows += [(what, *(f"{used.get(what, 0):,.7g}" for used in RATES.values())) for what in PRICES]
    return _table([row for row in rows if any(cell != "0" for cell in row[1:])])


def _prices() -> str:
    rows = [("of", "dollars", "for a"), ("--", "--:", "--")]
    return _table(rows + [(what, f"{price.dollars:.10g}", price.unit) for what, price in PRICES.items()])


def _table(rows: list[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def write() -> None:
    PAGE.write_text(page(), encoding="utf-8")
