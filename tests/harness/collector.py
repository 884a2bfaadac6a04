"""A collector of traces that speaks OTLP over HTTP, in this process."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Collector:
    url: str = ""
    status: int = 200
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    spans: list[dict[str, Any]] = field(default_factory=list)

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.requests.append((path, headers))
        if self.status != 200:
            return
        for batch in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = {each.key: each.value.string_value for each in batch.resource.attributes}["service.name"]
            for scope in batch.scope_spans:
                self.spans += [_span(service, each) for each in scope.spans]


def _span(service: str, span: Any) -> dict[str, Any]:
    return {
        "service": service,
        "name": span.name,
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "start": span.start_time_unix_nano // 1000,
        "end": span.end_time_unix_nano // 1000,
        "kind": span.kind,
        "error": span.status.message if span.status.code == 2 else "",
        "attributes": {each.key: each.value.string_value for each in span.attributes},
    }


@contextmanager
def collecting() -> Iterator[Collector]:
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            found.take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(found.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
