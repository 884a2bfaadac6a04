"""The stages of starting a task on several nodes. The states of its state machine invoke this function."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    """Checks the stage's progress. If the stage isn't finished by then, the state is answered later, by a callback."""
    here = root or lambda_.root()
    here.check_acts()
    return dict(lambda_.run_step(here.start_calls, event))
