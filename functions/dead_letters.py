"""Reports the events that Lambda gave up. On a schedule: having their queue watched all the time would cost more."""

from __future__ import annotations

from typing import Any

from chalicelib.runtime import lambda_, telemetry
from chalicelib.runtime.root import Root


def handler(event: dict[str, Any], context: Any, root: Root | None = None) -> dict[str, Any]:
    here = root or lambda_.root()
    told = here.tell_set_aside()
    here.ports.count(telemetry.SET_ASIDE, told)
    return {"told": told}
