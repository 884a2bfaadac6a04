"""Fetches every account's offers and stores them with their age. On a schedule; plans read what is stored."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    here = root or lambda_.root()
    here.refresh_catalog()
    return {"accounts": [account.key for account in here.ports.backends.accounts()]}
