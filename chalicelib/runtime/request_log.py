"""A line of the log for each request of the embedded server: who asked what, and what came of it.

The line has the route's template and not the path, and neither the query nor a header, so no token can be in it.
Requests to services, which the server passes on, have none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

from chalicelib.domain.instants import SECOND
from chalicelib.domain.objectives import ANSWERS, SPEED
from chalicelib.engine import log_context
from chalicelib.serving.ports import Scope, UpgradedEnd

if TYPE_CHECKING:
    from chalicelib.engine.counters import Counters
    from chalicelib.engine.measures import Measures

log = logging.getLogger("dstack.requests")

# The classes of requests. The time that a held one takes is the caller's wish, and that of a large body the network's.
API, AGENTS, HELD, TRANSFER, OTHER = "api", "agents", "held", "transfer", "other"
LARGE = 1024 * 1024  # bytes of an answer
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


class Served(Protocol):
    def __call__(self, route: str | None, kind: str, status: int | None, seconds: float) -> None:
        """A request has been served. `kind`: the class of its route; `status`: None if the client left before."""


class RequestLog:
    """Writes the lines at `level`, and tells `served` of each request."""

    def __init__(
        self,
        level: int,
        new_id: Callable[[], str],
        *,
        served: Served | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._level, self._new_id, self._served, self._clock = level, new_id, served, clock

    async def around(self, scope: Scope, serve: Callable[[], Awaitable[None]]) -> None:
        """Serve a request, and write its line if lines of this level are written."""
        logged = log.isEnabledFor(self._level)
        if not logged and self._served is None:
            await serve()
            return
        begun, request_id = self._clock(), self._new_id()
        wire = scope["state"]["connection"] = CountingWire(scope["state"]["connection"], request_id)
        with log_context.request_context(request_id) as noted:
            try:
                await serve()
            finally:
                seconds = self._clock() - begun
                if self._served is not None:
                    kind = TRANSFER if wire.bytes > LARGE else noted.get("kind", OTHER)
                    self._served(noted.get("route"), kind, wire.status, seconds)
                if logged:
                    self._log(scope, noted, wire, round(seconds * 1000, 1))

    def _log(self, scope: Scope, noted: Mapping[str, str], wire: CountingWire, ms: float) -> None:
        method, client = scope["method"], scope.get("client")
        fields = {
            "user": noted.get("user"),
            "client": str(client[0]) if client else None,
            "method": method,
            "route": noted.get("route"),
            "project": noted.get("project"),
            "ms": ms,
            "status": wire.status,
            "bytes": wire.bytes,
        }
        route = fields["route"] or "(no route)"
        what = f"{method} {route} {wire.status or 'left'} {ms} ms {wire.bytes} bytes"
        log.log(self._level, "%s by %s", what, fields["user"] or "-", extra={"fields": fields})


class RequestMeter:
    """Counts requests for the objectives and the metrics."""

    def __init__(self, counters: Counters, measures: Measures) -> None:
        self._counters, self._measures = counters, measures

    def __call__(self, route: str | None, kind: str, status: int | None, seconds: float) -> None:
        if status is None:
            return
        self._counters.observe("request_duration_seconds", seconds, **{"class": kind, "status": f"{status // 100}xx"})
        if kind not in (AGENTS, OTHER):  # what agents get concerns users by what jobs do
            self._measures.note(ANSWERS, missed=status >= HTTPStatus.INTERNAL_SERVER_ERROR)
        if kind == API and status < HTTPStatus.INTERNAL_SERVER_ERROR:
            self._measures.took(SPEED, round(seconds * SECOND))
