"""A line of the log for each request of the embedded server: who asked what, and what came of it.

The line has the route's template and not the path, and neither the query nor a header, so no token can be in it.
Requests to services, which the server passes on, have none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from chalicelib.engine import log_context
from chalicelib.serving.ports import Scope, UpgradedEnd

log = logging.getLogger("dstack.requests")

SWITCHED = 101  # the status of a connection that becomes a WebSocket


class CountingWire:
    """A connection that also notes what is answered, and gives the answer the request's id."""

    def __init__(self, wire: Any, request_id: str) -> None:
        self._wire, self._id = wire, request_id.encode()
        self.status: int | None = None  # None: the client left before there was an answer
        self.bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)

    def begin(self, status: int, headers: Sequence[tuple[bytes, bytes]], *, goes_on: bool) -> None:
        self.status = status
        self._wire.begin(status, (*headers, (b"x-request-id", self._id)), goes_on=goes_on)

    async def part(self, part: bytes, *, last: bool, drained: bool = False) -> None:
        self.bytes += len(part)
        await self._wire.part(part, last=last, drained=drained)

    def upgrade(self, head: bytes, end: UpgradedEnd) -> None:
        self.status = SWITCHED
        self._wire.upgrade(head, end)


class RequestLog:
    """Writes the lines at `level`."""

    def __init__(
        self, level: int, new_id: Callable[[], str], *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._level, self._new_id, self._clock = level, new_id, clock

    async def around(self, scope: Scope, serve: Callable[[], Awaitable[None]]) -> None:
        """Serve a request, and write its line if lines of this level are written."""
        if not log.isEnabledFor(self._level):
            await serve()
            return
        begun, request_id = self._clock(), self._new_id()
        wire = scope["state"]["connection"] = CountingWire(scope["state"]["connection"], request_id)
        with log_context.request_context(request_id) as noted:
            try:
                await serve()
            finally:
                ms = round((self._clock() - begun) * 1000, 1)
                fields = {
                    "user": noted.get("user"),
                    "method": scope["method"],
                    "route": noted.get("route"),
                    "project": noted.get("project"),
                    "ms": ms,
                    "status": wire.status,
                    "bytes": wire.bytes,
                }
                route = fields["route"] or "(no route)"
                what = f"{scope['method']} {route} {wire.status or 'left'} {ms} ms {wire.bytes} bytes"
                log.log(self._level, "%s by %s", what, fields["user"] or "-", extra={"fields": fields})
