"""Costs over time."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from chalicelib.billing.ledger import Amount, Series
from chalicelib.domain.instants import DAY, iso
from chalicelib.usecases.operator.cost_history import CostView

if TYPE_CHECKING:
    from chalicelib import contract

AMOUNTS = ("usd", "idle_usd", "gpu_hours", "idle_gpu_hours")


def costs_json(view: CostView) -> contract.V1Costs:
    window, begins = view.window, view.month[0]
    return {
        "since": iso(window.since),
        "until": iso(window.until),
        "by": view.by,
        "step": "day" if window.step == DAY else "hour",
        "usd": _dollars(view.total.dollars),
        "idle_usd": _dollars(view.total.idle),
        "gpu_hours": _hours(view.total.gpu_hours),
        "idle_gpu_hours": _hours(view.total.idle_gpu_hours),
        "items": [_series_json(each) for each in view.series],
        "month": {
            "since": iso(begins),
            "until": iso(view.month[1]),
            "usd": _dollars(view.spent),
            "forecast_usd": _dollars(view.forecast),
        },
        "budget_usd_per_day": view.budget,
        "unpriced_volumes": view.unpriced,
    }


def _series_json(series: Series) -> contract.V1CostSeries:
    total = series.total
    return {
        "name": series.name or None,
        "usd": _dollars(total.dollars),
        "idle_usd": _dollars(total.idle),
        "gpu_hours": _hours(total.gpu_hours),
        "idle_gpu_hours": _hours(total.idle_gpu_hours),
        "steps": [_step_json(at, amount) for at, amount in series.steps.items()],
    }


def _step_json(at: int, amount: Amount) -> contract.V1CostStep:
    return {
        "at": iso(at),
        "usd": _dollars(amount.dollars),
        "idle_usd": _dollars(amount.idle),
        "gpu_hours": _hours(amount.gpu_hours),
        "idle_gpu_hours": _hours(amount.idle_gpu_hours),
    }


def costs_csv(view: CostView) -> bytes:
    """A line for each name and step, for a spreadsheet."""
    shown = costs_json(view)
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\r\n")
    lines.writerow(("at", view.by, *AMOUNTS))
    for item in shown["items"]:
        for step in item["steps"]:
            lines.writerow((step["at"], _cell(item["name"] or ""), *(step[name] for name in AMOUNTS)))  # type: ignore[literal-required]
    return text.getvalue().encode()


def _cell(text: str) -> str:
    """A name that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def _dollars(amount: float) -> float:
    return round(amount, 4)


def _hours(amount: float) -> float:
    return round(amount, 3)
