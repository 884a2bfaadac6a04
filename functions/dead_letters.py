"""Reports the events that Lambda gave up. On a schedule: having their queue watched all the time would cost more."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_, telemetry
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    here = root or lambda_.root()
    reported = here.report_dead_letters()
    here.ports.count(telemetry.DEAD_LETTERS, reported)
    return {"told": reported}
