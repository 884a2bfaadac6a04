"""The bastion: the steps of setting up users' own hosts and of clearing them. No other function logs in over SSH."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    """Each message is one attempt at a step, of a few minutes at most."""
    return lambda_.execute(root or lambda_.root(), event)
