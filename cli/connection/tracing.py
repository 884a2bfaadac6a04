"""The trace of `dstack apply`, for whoever collects traces: its own span, which the run's trace continues."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from chalicelib import otlp

if TYPE_CHECKING:
    from chalicelib.domain.traces import Export
    from cli.connection.client import Client

SERVICE = "dstack-cli"
Exporter = Callable[[str], "Export | None"]


@contextmanager
def traced(
    client: Client,
    env: Mapping[str, str],
    what: str,
    *,
    exporter: Exporter = otlp.exporter,
    now: Callable[[], float] = time.time,
    random: Callable[[int], bytes] = os.urandom,
) -> Iterator[None]:
    """Requests within are part of a trace: the one of TRACEPARENT, or a new one. Nothing happens unless
    OTEL_EXPORTER_OTLP_ENDPOINT is set, and the extra `otel` installed."""
    export = exporter(SERVICE) if otlp.wanted(env) else None
    if export is None:
        yield
        return
    from chalicelib.domain.traces import Span, TraceContext, context_of

    parent = context_of(env.get("TRACEPARENT", ""))
    trace_id = random(16).hex() if parent is None else parent.trace_id
    context = TraceContext(trace_id, random(8).hex(), parent is None or parent.sampled)
    begun, error = now(), ""
    client.traceparent = context.header
    try:
        yield
    except BaseException as failed:
        error = type(failed).__name__
        raise
    finally:
        client.traceparent = ""
        if context.sampled:
            start, end = round(begun * 1_000_000), round(now() * 1_000_000)
            export([Span(what, context, parent, start, end, {}, "client", error)])
