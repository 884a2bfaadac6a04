"""Quotas of projects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.domain.quotas import EACH_USER, NONE, Limits
from chalicelib.planning.placing.quotas import Amounts
from chalicelib.usecases.people.quotas import QuotaView

if TYPE_CHECKING:
    from chalicelib import contract


def quota_json(seen: QuotaView) -> contract.V1Quota:
    money = seen.quota.by_money
    return {
        "limits": _limits(seen.quota.limits),
        "used": _used(seen.used, money),
        "each_user": _limits(seen.quota.users.get(EACH_USER, NONE)),
        "users": [
            {"user": each.username, "limits": _limits(each.limits), "used": _used(each.used, money)}
            for each in seen.shares
        ],
    }


def _limits(limits: Limits) -> contract.V1Limits:
    return {"gpus": limits.gpus, "jobs": limits.jobs, "usd_per_day": limits.money}


def _used(used: Amounts, money: bool) -> contract.V1Used:
    return {"gpus": used.gpus, "jobs": used.jobs, "usd_today": round(used.money, 4) if money else None}
