"""Stages of starting a task on several nodes, as the states of its state machine ask for them."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    """Takes the looks that the stage needs. A stage that isn't over after that is told to the state by a callback."""
    return dict(lambda_.run_step((root or lambda_.root()).start_calls, event))
