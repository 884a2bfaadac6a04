"""The target of EventBridge rules: applies, stops or deletes a stored configuration, once per event."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    """The event is an order, which the rule's input transformer builds from a state change."""
    return (root or lambda_.root()).automate(event)
