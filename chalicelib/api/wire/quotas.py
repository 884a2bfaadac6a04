"""Quotas on the wire, which only our own client knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.domain.quotas import EACH_USER, NONE, Limits
from chalicelib.planning.placing.quotas import Amounts
from chalicelib.usecases.people.quotas import QuotaView

if TYPE_CHECKING:
    from chalicelib import contract


def quota_json(seen: QuotaView) -> contract.Quota:
    """A quota. A null means no limit. `money` is in dollars a day (UTC), and counted only if it is limited."""
    money = seen.quota.by_money
    return {
        "project_name": seen.quota.project_name,
        "limits": _limits(seen.quota.limits),
        "used": _used(seen.used, money),
        "each_user": _limits(seen.quota.users.get(EACH_USER, NONE)),
        "users": [
            {"username": each.username, "limits": _limits(each.limits), "used": _used(each.used, money)}
            for each in seen.shares
        ],
    }


def _limits(limits: Limits) -> contract.Limits:
    return {"gpus": limits.gpus, "jobs": limits.jobs, "money": limits.money}


def _used(used: Amounts, money: bool) -> contract.Used:
    return {"gpus": used.gpus, "jobs": used.jobs, "money": round(used.money, 4) if money else None}
