"""The Chalice object of this program: Chalice, but safe for many threads, and clear where API Gateway is terse."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from chalice.app import Chalice, Request

from chalicelib.api import problems

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
