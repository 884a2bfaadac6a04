"""Reports the events that Lambda gave up on. It runs on a schedule, because polling the queue all the time costs
more."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_, telemetry
from chalicelib.runtime.root import Root


@lambda_.only_if_deciding
def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    here = root or lambda_.root()
    reported = here.report_dead_letters()
    here.ports.count(telemetry.DEAD_LETTERS, reported)
    return {"reported": reported}
