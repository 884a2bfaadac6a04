"""Runs reconcile passes, for hints and for the one-minute schedule that handles whatever is due."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_, telemetry
from chalicelib.runtime.root import Root


@lambda_.only_if_deciding
def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    """An event with `units` is a hint; any other comes from the schedule. Both run the same pass. Lambda doesn't have
    to retry a unit that failed, because the pass has already rescheduled it."""
    here = root or lambda_.root()
    done = here.run_pass(set(here.ports.chain.begin(event).get("units", ())))
    here.ports.count(telemetry.UNITS_FAILED, len(done.failed))
    if here.run_traces is not None and "units" not in event:
        here.run_traces.run()
    return {"units": done.units, "steps": done.steps, "failed": done.failed}
