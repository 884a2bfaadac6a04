"""Requests a refresh of the offers that expire before the next run: one event per account, as with sweeps. If it is
invoked by anything else than its schedule, it requests all of them. Plans read the stored offers.

For a backend that has just been configured, the API sends the same event itself.
"""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


@lambda_.only_if_deciding
def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    return {"accounts": lambda_.refresh(root or lambda_.root(), event)}
