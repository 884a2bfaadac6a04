"""Whether the traces of runs are exported, and how."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any

from chalicelib import otlp

if TYPE_CHECKING:
    from chalicelib.domain.traces import Export, Trace

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


def lazy_trace_ports(wanted: bool, headers: str = "") -> dict[str, Any]:
    """The same in a function of AWS, which loads the library for the first trace that it exports: most only note where
    a trace begins, and all of them start for somebody who waits."""
    if not wanted:
        return {}

    @cache
    def exporter() -> Export | None:
        return otlp.exporter(SERVICE, headers)

    def export(spans: Trace) -> bool:
        if not spans:
            return True
        send = exporter()
        if send is None:
            log.error("%s", otlp.NOT_PACKED)
            return False
        return send(spans)

    return {"traces": True, "spans": export}
