"""Has every account swept, on a schedule: one event an account, for the function that has its provider's SDK. So a slow
account delays no other, and without accounts nothing is sent."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    return {"accounts": (root or lambda_.root()).sweep_accounts(lambda_.fired_at(event))}
