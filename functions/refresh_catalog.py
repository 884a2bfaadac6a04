"""Has every account's offers fetched, on a schedule: one event an account, as with sweeps. Plans read what is stored.

For a backend that has just been configured, the API sends the same event itself.
"""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    return {"accounts": (root or lambda_.root()).refresh_accounts(lambda_.fired_at(event))}
