"""Reconciles instances that are due or silent: reaps them, checks their health, repeats terminations. It has its own
schedule, so that machines are released even while hints for everything else pile up."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_, telemetry
from chalicelib.runtime.root import Root


@lambda_.only_if_deciding
def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    here = root or lambda_.root()
    done = here.run_pass(here.silent_units(), kinds=("instance",))
    here.ports.count(telemetry.UNITS_FAILED, len(done.failed))
    return {"units": done.units, "steps": done.steps, "failed": done.failed}
