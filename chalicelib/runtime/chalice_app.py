"""The Chalice app with every row of the route table mounted: Chalice, but thread-safe, and with clear errors where API
Gateway is terse.

The resources under `/api/v1` are mounted as one path, and so are those of SCIM, and dispatch finds theirs: a REST API
has 300 nodes of paths.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any

from chalice.app import Chalice, Request, Response

from chalicelib.api import dispatch
from chalicelib.api.route import Route
from chalicelib.api.routes import ROUTES
from chalicelib.api.scim import PREFIX as SCIM
from chalicelib.api.v1 import PREFIX
from chalicelib.api.v1.preferences import BILLED, reading, settled, wait_of
from chalicelib.errors import DataTooNew, Moved, NotDeployed
from chalicelib.usecases.context import Plane

_QUERY = "multiValueQueryStringParameters"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
RESOURCES = {prefix: f"{prefix}{{proxy+}}" for prefix in (PREFIX, SCIM)}  # that are mounted as one path
_BINARY = ("application/octet-stream", "application/x-tar", "application/zip")

_request: ContextVar[Request | None] = ContextVar("request", default=None)
_context: ContextVar[Any] = ContextVar("lambda_context", default=None)


class ControlPlane(Chalice):  # type: ignore[misc]  # Chalice ships no types
    """Chalice keeps the request on the app itself; here each thread has its own, because the embedded server has many.

    `plane` is called for each request: in AWS the first one creates it. `pause`: between two reads of a resource that
    the caller waits for.
    """

    def __init__(self, plane: Callable[[], Plane], pause: Callable[[float], None] = time.sleep) -> None:
        super().__init__(app_name="dstack", configure_logs=False)
        self._pause = pause
        self.api.binary_types[:] = [*_BINARY, "multipart/form-data"]  # Chalice searches them for each response
        for number, route in enumerate(route for route in ROUTES if not route.path.startswith(tuple(RESOURCES))):
            mount = self.route(route.path, methods=[route.method], content_types=[], name=f"route{number}")
            mount(self._view(plane, route))
        for prefix, path in RESOURCES.items():
            mount = self.route(path, methods=list(METHODS), content_types=[], name=f"resources of {prefix}")
            mount(self._resource_view(plane, prefix))

    def _view(self, plane: Callable[[], Plane], route: Route) -> Callable[..., Response]:
        def view(**params: str) -> Response:
            request = self._request(route.path)
            return _response(plane, dispatch.RequestHead(route, route.path, params, request))

        return view

    def _resource_view(self, plane: Callable[[], Plane], prefix: str) -> Callable[[], Response]:
        def view() -> Response:
            incoming = self.current_request
            assert incoming is not None, "a view runs within a request"
            head = dispatch.head_of(self._request(prefix + incoming.uri_params["proxy"].rstrip("/")))
            if isinstance(head, dispatch.Reply):
                found = _encoded(head)
            else:
                found = _response(plane, head, lambda here: self._until_settled(here, head))
            return Response("", found.headers, found.status_code) if incoming.method == dispatch.HEAD else found

        return view

    def _until_settled(self, here: Plane, head: dispatch.RequestHead) -> dispatch.Reply:
        """The response, as soon as its resource is settled; at the latest after the seconds that the caller prefers."""
        first = last = dispatch.respond(here, head)
        seconds = wait_of(head.request, BILLED)
        if not seconds or first.status >= HTTPStatus.BAD_REQUEST:
            return first
        left, step = float(seconds), 0.5
        while last.settling is not None and left > 0:
            step = min(2 * step, left)
            self._pause(step)
            left -= step
            last = dispatch.respond(here, reading(head, last.settling))
        return settled(first, last, seconds)

    def _request(self, path: str) -> dispatch.Request:
        """The current request, to `path`: whatever domain it came by."""
        incoming = self.current_request
        assert incoming is not None, "a view runs within a request"
        query = incoming.to_original_event()[_QUERY] or {}
        return dispatch.Request(
            method=incoming.method,
            path=path,
            query={name: values[-1] for name, values in query.items() if values},
            # API Gateway compresses by itself, and would take bytes that are compressed already for text.
            headers={name: value for name, value in incoming.headers.items() if name.lower() != "accept-encoding"},
            body=incoming.raw_body,
        )

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


def _response(
    plane: Callable[[], Plane], head: dispatch.RequestHead, respond: Callable[[Plane], dispatch.Reply] | None = None
) -> Response:
    try:
        here = plane()
    except (NotDeployed, Moved, DataTooNew) as error:
        return _encoded(dispatch.failure(error, head.route.path, head.route.path))
    return _encoded(dispatch.respond(here, head) if respond is None else respond(here))


def _encoded(reply: dispatch.Reply) -> Response:
    text = not reply.headers.get("Content-Type", "").startswith(_BINARY)
    return Response(reply.body.decode() if text else reply.body, dict(reply.headers), reply.status)


def _event_answer(reply: dispatch.Reply) -> dict[str, Any]:
    return {"statusCode": reply.status, "headers": dict(reply.headers), "body": reply.body.decode()}
