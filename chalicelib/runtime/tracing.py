"""Whether the traces of runs are exported, and how."""

from __future__ import annotations

import logging
from typing import Any

from chalicelib import otlp

log = logging.getLogger(__name__)
SERVICE = "dstack-server"


def trace_ports(wanted: bool, headers: str = "") -> dict[str, Any]:
    """The ports for traces; none unless they are wanted and the library is there."""
    if not wanted:
        return {}
    export = otlp.exporter(SERVICE, headers)
    if export is None:
        log.warning("%s", otlp.MISSING)
        return {}
    return {"traces": True, "spans": export}
