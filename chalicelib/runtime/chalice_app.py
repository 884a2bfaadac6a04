"""The Chalice app with every row of the route table mounted: Chalice, but thread-safe, and with clear errors where API
Gateway is terse."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from chalice.app import Chalice, Request, Response

from chalicelib.api import dispatch
from chalicelib.api.route import Route
from chalicelib.api.routes import ROUTES
from chalicelib.errors import NotDeployed
from chalicelib.usecases.context import Plane

_QUERY = "multiValueQueryStringParameters"
_BINARY = ("application/octet-stream", "application/x-tar", "application/zip")

_request: ContextVar[Request | None] = ContextVar("request", default=None)
_context: ContextVar[Any] = ContextVar("lambda_context", default=None)


class ControlPlane(Chalice):  # type: ignore[misc]  # Chalice ships no types
    """Chalice keeps the request on the app itself; here each thread has its own, because the embedded server has many.

    `plane` is called for each request: in AWS the first one creates it.
    """

    def __init__(self, plane: Callable[[], Plane]) -> None:
        super().__init__(app_name="dstack", configure_logs=False)
        self.api.binary_types[:] = [*_BINARY, "multipart/form-data"]  # Chalice searches them for each response
        for number, route in enumerate(ROUTES):
            mount = self.route(route.path, methods=[route.method], content_types=[], name=f"route{number}")
            mount(self._view(plane, route))

    def _view(self, plane: Callable[[], Plane], route: Route) -> Callable[..., Response]:
        def view(**params: str) -> Response:
            incoming = self.current_request
            assert incoming is not None, "a view runs within a request"
            query = incoming.to_original_event()[_QUERY] or {}
            request = dispatch.Request(
                method=route.method,
                path=incoming.path,
                query={name: values[-1] for name, values in query.items() if values},
                headers=incoming.headers,
                body=incoming.raw_body,
            )
            try:
                here = plane()
            except NotDeployed as error:
                reply = dispatch.failure(error, route.path, route.path)
                return Response(reply.body.decode(), dict(reply.headers), reply.status)
            reply = dispatch.serve(here, route, params, request)
            text = not reply.headers["Content-Type"].startswith(_BINARY)
            return Response(reply.body.decode() if text else reply.body, dict(reply.headers), reply.status)

        return view

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
            return _event_answer(dispatch.no_such_path(event.get("path") or str(template)))
        if method not in self.routes[template]:
            return _event_answer(dispatch.wrong_method(method, str(template), list(self.routes[template])))
        answer: dict[str, Any] = super().__call__(event, context)
        return answer


def _event_answer(reply: dispatch.Reply) -> dict[str, Any]:
    return {"statusCode": reply.status, "headers": dict(reply.headers), "body": reply.body.decode()}
