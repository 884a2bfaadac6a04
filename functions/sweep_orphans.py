"""Requests a sweep of every account, on a schedule. Each account gets its own event, which goes to the function with
its provider's SDK. So a slow account doesn't delay another one, and nothing is sent if there are no accounts."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


@lambda_.only_if_deciding
def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    return {"accounts": (root or lambda_.root()).sweep_accounts(lambda_.fired_at(event))}
