"""A control plane's data and cost on the wire: for its operator, with our own client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.billing import plane as billed
from chalicelib.billing.plane import PRICES, CostLine
from chalicelib.domain.ids import server_mark
from chalicelib.domain.instants import iso
from chalicelib.domain.objectives import WINDOW_DAYS, Standing
from chalicelib.domain.retention import Retention
from chalicelib.domain.subscriptions import Subscription
from chalicelib.domain.usage import Part
from chalicelib.usecases.operator.costs import CostReport
from chalicelib.usecases.operator.server import SERVED_VERSION, ServerStanding, ServerUsage

if TYPE_CHECKING:
    from chalicelib import contract


def info_json() -> contract.ServerInfo:
    return {"server_version": SERVED_VERSION}


def health_json(install_id: str) -> contract.Health:
    return {"status": "running", "server": server_mark(install_id)}


def usage_json(usage: ServerUsage) -> contract.ServerUsage:
    return {
        **info_json(),
        "parts": [_part(each) for each in usage.storage.parts],
        "free": usage.storage.free,
        "days": _days(usage.retention),
        "subscriptions": [_subscription(each) for each in usage.subscriptions],
    }


def _part(part: Part) -> contract.StoragePart:
    return {"name": part.name, "bytes": part.bytes, "files": part.files, "whole": part.whole}


def _days(retention: Retention) -> contract.RetentionDays:
    return {
        "events": retention.events,
        "metrics": retention.metrics,
        "logs": retention.logs,
        "deleted": retention.deleted,
        "fleets": retention.fleets,
        "archives": retention.archives,
    }


def _subscription(one: Subscription) -> contract.SubscriptionState:
    return {
        "name": one.name,
        "failures": one.failures,
        "dead": one.dead,
        "error": one.error,
        "retry_at": None if one.retry_at is None else iso(one.retry_at),
    }


def cost_json(report: CostReport) -> contract.ServerCost:
    pace = report.pace
    return {
        "billed": not pace.long_poll,
        "prices": f"{billed.REGION}, without free tier, read in {billed.READ_IN}",
        "pace": {"fast": pace.fast, "slow": pace.slow, "presence": pace.presence, "log": pace.log},
        "counts": dict(report.counts),
        "lines": [_line(each) for each in report.lines],
        "total": round(billed.total(report.lines), 2),
    }


def slo_json(found: ServerStanding) -> contract.ServerSlo:
    return {
        "measured": found.measured,
        "window_days": WINDOW_DAYS,
        "objectives": [_objective(*both) for both in zip(found.window, found.day, strict=True)],
    }


def _objective(window: Standing, day: Standing) -> contract.ServerObjective:
    objective = window.objective
    return {
        "name": objective.name,
        "what": objective.what,
        "target": objective.target,
        "events": window.tally.events,
        "misses": window.tally.misses,
        "attained": window.attained,
        "budget_left": round(window.budget_left, 4),
        "met": window.met,
        "lately": day.attained,
    }


def _line(line: CostLine) -> contract.CostLine:
    return {
        "driver": line.driver,
        "what": line.item,
        "amount": round(line.amount, 1),
        "price": PRICES[line.item].dollars,
        "unit": PRICES[line.item].unit,
        "dollars": round(line.dollars, 4),
    }
