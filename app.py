"""The Lambda behind API Gateway, and the same app embedded: every row of the route table, mounted on Chalice.

Importing this makes no client and reads no setting; the plane comes with the first request (`runtime.deps`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from chalice.app import Chalice, Request, Response

from chalicelib.api import dispatch, problems
from chalicelib.api.routes import ROUTES
from chalicelib.api.table import Route
from chalicelib.runtime import deps

_request: ContextVar[Request | None] = ContextVar("request", default=None)
_context: ContextVar[Any] = ContextVar("lambda_context", default=None)


class ControlPlane(Chalice):  # type: ignore[misc]  # Chalice ships no types
    """Chalice keeps the request on the app itself; here each thread has its own, as the embedded server has many."""

    @property
    def current_request(self) -> Request | None:
        return _request.get()

    @current_request.setter
    def current_request(self, request: Request | None) -> None:
        _request.set(request)

    @property
    def lambda_context(self) -> Any:
        return _context.get()

    @lambda_context.setter
    def lambda_context(self, context: Any) -> None:
        _context.set(context)

    def __call__(self, event: dict[str, Any], context: Any) -> dict[str, Any]:
        where = event.get("requestContext") or {}
        template, method = where.get("resourcePath"), where.get("httpMethod", "")
        if template not in self.routes:
            return _event_answer(*problems.no_such_path(event.get("path") or str(template)))
        if method not in self.routes[template]:
            return _event_answer(*problems.wrong_method(method, list(self.routes[template])))
        answer: dict[str, Any] = super().__call__(event, context)
        return answer


def _event_answer(status: int, body: bytes) -> dict[str, Any]:
    return {"statusCode": status, "headers": {"Content-Type": "application/json"}, "body": body.decode()}


def _view(app: Chalice, route: Route) -> Callable[..., Response]:
    def view(**params: str) -> Response:
        incoming = app.current_request
        request = dispatch.Request(
            method=route.method,
            path=incoming.path,
            query={name: values[-1] for name, values in (incoming.to_original_event()[_QUERY] or {}).items() if values},
            headers=incoming.headers,
            body=incoming.raw_body,
        )
        reply = dispatch.serve(deps.plane(), route, params, request)
        text = not reply.headers["Content-Type"].startswith(_BINARY)
        return Response(reply.body.decode() if text else reply.body, dict(reply.headers), reply.status)

    return view


_QUERY = "multiValueQueryStringParameters"
_BINARY = ("application/octet-stream", "application/x-tar", "application/zip")

app = ControlPlane(app_name="dstack", configure_logs=False)
app.api.binary_types.append("multipart/form-data")
for _number, _route in enumerate(ROUTES):
    app.route(_route.path, methods=[_route.method], content_types=[], name=f"route{_number}")(_view(app, _route))
