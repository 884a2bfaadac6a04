"""Effects: a committed plan's calls to a cloud. The only function that needs the clouds' SDKs."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    """The event is one effect."""
    lambda_.execute(root or lambda_.root(), event)
    return {}
