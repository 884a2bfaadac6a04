"""Fetches every account's offers and stores them with their age: on a schedule, and when a backend is configured. Plans
read what is stored.

If an account that has never answered can't do so now, jobs wait for it: the function fails, and Lambda repeats the
event after a minute, and after two more.
"""

from __future__ import annotations

from typing import Any

from chalicelib.errors import Transient
from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    here = root or lambda_.root()
    here.refresh_catalog()
    if awaited := here.catalog.awaited():
        raise Transient(
            f"There are no offers yet of {', '.join(account.key for account in awaited)}: it had no answer."
        )
    return {"accounts": [account.key for account in here.ports.backends.accounts()]}
