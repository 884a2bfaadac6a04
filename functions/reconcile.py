"""Passes: woken by hints, and by the one-minute schedule for whatever is due."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_, telemetry
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    """An event with `units` is a hint; any other is the schedule's. Both run the same pass. A unit that fails isn't for
    Lambda to bring again: the pass has put it off."""
    here = root or lambda_.root()
    done = here.reconciler.run(set(here.ports.chain.begin(event).get("units", ())))
    here.ports.count(telemetry.UNITS_FAILED, len(done.failed))
    return {"units": done.units, "steps": done.steps, "failed": done.failed}
