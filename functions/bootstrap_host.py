"""The bastion: runs the steps that set up and clean up users' own hosts. No other function logs in over SSH."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_, provider_functions
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    """Makes one attempt at a step, which takes a few minutes at most. It is invoked by a state of a state machine, or
    by an effect where the engine itself drives the workflow."""
    here = root or lambda_.root()
    if "effect" in event:
        return provider_functions.perform(here, event)
    here.check_acts()
    event = here.ports.chain.begin(event)
    return lambda_.run_step(here.workflow_calls, event)
