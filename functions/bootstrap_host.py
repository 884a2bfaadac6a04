"""The bastion: the steps of setting up users' own hosts and of clearing them. No other function logs in over SSH."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_, provider_functions
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    """A state of a state machine asks for an attempt at a step; so does an effect, where the engine's looks drive the
    workflow. An attempt takes a few minutes at most."""
    here = root or lambda_.root()
    if "effect" in event:
        return provider_functions.perform(here, event)
    event = here.ports.chain.begin(event)
    return lambda_.run_step(here.workflow_calls, event)
