"""Has those offers fetched that don't hold until its next turn: one event an account, as with sweeps. Asked by somebody
else than its schedule, it has all of them fetched. Plans read what is stored.

For a backend that has just been configured, the API sends the same event itself.
"""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    return {"accounts": lambda_.refresh(root or lambda_.root(), event)}
