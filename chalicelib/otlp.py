"""Exports spans over OTLP, by OpenTelemetry's own library, which the extra `otel` brings.

Only whoever sets OTEL_EXPORTER_OTLP_ENDPOINT (or its variant for traces) imports it. The library reads the other
standard variables: headers, timeouts, certificates, compression, the service's name and the resource's attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chalicelib.domain.traces import Export, Trace, TraceContext

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")  # may have a token
MISSING = "OTEL_EXPORTER_OTLP_ENDPOINT is set, but nothing is traced: install dstack-serverless's extra `otel`"

NOT_PACKED = (
    "OTEL_EXPORTER_OTLP_ENDPOINT is set, but no trace is sent, because this function has no OpenTelemetry: "
    "`make deploy` packs it if the stack's parameter TracesEndpoint is set"
)


def wanted(env: Mapping[str, str]) -> bool:
    """Do these variables ask for traces?"""
    off = env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporter = env.get("OTEL_TRACES_EXPORTER", "").strip().lower() or "otlp"
    return not off and exporter == "otlp" and any(env.get(name) for name in ENDPOINTS)


def exporter(service: str, headers: str = "") -> Export | None:
    """None if the library isn't installed. `service`: its name, unless OTEL_SERVICE_NAME is set. `headers`: as in their
    variable; empty: the library reads that itself."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace.export import SpanExportResult
        from opentelemetry.util.re import parse_env_headers
    except ImportError:
        return None
    given = dict(parse_env_headers(headers, liberal=True)) if headers else None
    sender = OTLPSpanExporter(headers=given)
    resource = Resource.create({"service.name": service}).merge(OTELResourceDetector().detect())

    def export(spans: Trace) -> bool:
        if not spans:
            return True
        return sender.export([_readable(span, resource) for span in spans]) is SpanExportResult.SUCCESS

    return export


def _readable(span: Any, resource: Any) -> Any:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.status import Status, StatusCode

    return ReadableSpan(
        span.name,
        context=_context(span.context),
        parent=None if span.parent is None else _context(span.parent),
        resource=resource,
        attributes=dict(span.attributes),
        kind=SpanKind[span.kind.upper()],
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
        start_time=span.start * 1000,
        end_time=span.end * 1000,
        instrumentation_scope=InstrumentationScope("dstack"),
    )


def _context(context: TraceContext) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags

    flags = TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT)
    return SpanContext(int(context.trace_id, 16), int(context.span_id, 16), is_remote=False, trace_flags=flags)
