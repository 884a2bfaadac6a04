"""One request in, one response out: version, route, caller, body, handler, encoding, errors.

Chalice, the ASGI bridge of the embedded server and the tests all call this module for every request, so they can't
differ in a status code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from chalicelib.api import problems
from chalicelib.api.auth import Caller, authorise, check_agent
from chalicelib.api.encode import encode
from chalicelib.api.route import Access, Answer, Call, Route, Settling
from chalicelib.api.scim import PREFIX as SCIM
from chalicelib.api.scim import problems as scim_problems
from chalicelib.api.v1 import PREFIX
from chalicelib.api.v1 import problems as v1_problems
from chalicelib.engine import log_context, trace_context
from chalicelib.errors import Conflict, DstackError, Invalid, Problem, Refused, TooLarge, WrongQuery
from chalicelib.usecases.context import Plane

ATTEMPTS = 8  # of a handler that loses its races
SERVED = (0, 22)  # the line of clients that this API serves
BODILESS = (204, 304)  # statuses of responses that have no body, nor headers that describe one
READ, HEAD = "GET", "HEAD"  # the second is answered like the first, and whoever sends the answer leaves out its body
_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})(\.\S{1,40})?")
_JSON = {"Content-Type": "application/json"}


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes
    settling: Settling | None = None
    heard: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    body: bytes = b""


class Match(NamedTuple):
    template: str  # as in the table: /api/project/{project_name}/runs/get
    params: dict[str, str]
    routes: Mapping[str, Route]  # by method


watchers: list[Callable[[Route, Reply], None]] = []  # see every response; tests hold them to the contract


class RequestHead(NamedTuple):
    """A request without its body, and its route."""

    route: Route
    template: str
    params: Mapping[str, str]
    request: Request


def head_of(request: Request, served: Callable[[Route], bool] = lambda route: True) -> RequestHead | Reply:
    """The route of a request; a reply if there is none. A path without a route that is `served` is unknown."""
    found = match(request.path)
    here = {} if found is None else {method: route for method, route in found.routes.items() if served(route)}
    if found is None or not here:
        return no_such_path(request.path)
    route = here.get(READ if request.method == HEAD and is_v1(request.path) else request.method)
    if route is None:
        return wrong_method(request.method, request.path, list(here))
    return RequestHead(route, found.template, found.params, request)


def answer(plane: Plane, request: Request, served: Callable[[Route], bool] = lambda route: True) -> Reply:
    """The response to any request, routed by its path."""
    head = head_of(request, served)
    return head if isinstance(head, Reply) else respond(plane, head)


def respond(plane: Plane, head: RequestHead) -> Reply:
    """The response to a request whose route is known."""
    return serve(plane, head.route, head.params, head.request)


def refusal(plane: Plane, head: RequestHead, size: int) -> Reply | None:
    """The refusal of a request whatever its body of `size` bytes contains; None if the body should be read. Never
    raises."""
    try:
        _admit(plane, head.route, head.params, head.request)
        if head.route.access is Access.agent:
            check_agent(plane.store, head.request.headers, size)
    except Exception as error:  # noqa: BLE001 - as in `_reply`
        return failure(error, head.route.path, f"{head.route.method} {head.route.path}")
    return None


def refused(error: DstackError, path: str) -> Reply:
    """The response to a request that was refused before dispatch."""
    return failure(error, path, "the request")


def is_v1(path: str) -> bool:
    return path.startswith(PREFIX)


def is_scim(path: str) -> bool:
    return path.startswith(SCIM)


def failure(error: Exception, path: str, where: str) -> Reply:
    """The response to a failed call, in the form of what is at its path."""
    if is_scim(path):
        return _of(scim_problems.reply_to(error, where))
    return _of(v1_problems.reply_to(error, where)) if is_v1(path) else _plain(problems.reply_to(error, where))


def no_such_path(path: str) -> Reply:
    if is_scim(path):
        return _of(scim_problems.no_such_path(path))
    return _of(v1_problems.no_such_path(path)) if is_v1(path) else _plain(problems.no_such_path(path))


def wrong_method(method: str, path: str, allowed: list[str]) -> Reply:
    if is_scim(path):
        return _of(scim_problems.wrong_method(method, allowed))
    if is_v1(path):
        return _of(v1_problems.wrong_method(method, allowed))
    return _plain(problems.wrong_method(method, allowed))


def serve(plane: Plane, route: Route, params: Mapping[str, str], request: Request) -> Reply:
    """The response to a request on a known route."""
    reply = _reply(plane, route, params, request)
    for watch in watchers:
        watch(route, reply)
    return reply


def _reply(plane: Plane, route: Route, params: Mapping[str, str], request: Request) -> Reply:
    """Never raises."""
    try:
        caller = _admit(plane, route, params, request)
        call = Call(
            plane,
            params,
            request.query,
            request.headers,
            request.body,
            caller.user,
            caller.project,
            caller.role,
            caller.token,
            request.method,
            request.path,
        )
        with plane.backends.held(), _traced(plane, request):
            value = _handle(route, call)
        if isinstance(value, Answer):
            kind = {} if value.status in BODILESS else {"Content-Type": value.content_type}
            return Reply(value.status, {**kind, **value.headers}, value.body, value.settling, value.heard)
        return Reply(200, _JSON, encode(value, plane.limits.answer))
    except Exception as error:  # noqa: BLE001 - the edge of the program: a failure becomes a response, and is logged
        return failure(error, route.path, f"{route.method} {route.path}")


def _traced(plane: Plane, request: Request) -> AbstractContextManager[None]:
    if not plane.traces:
        return nullcontext()
    return trace_context.request_trace(request.headers.get(trace_context.HEADER, ""), plane.clock.now())


def _admit(plane: Plane, route: Route, params: Mapping[str, str], request: Request) -> Caller:
    _check(plane, route, params, request)
    caller = authorise(plane, route, request.headers, params.get("project_name"))
    if caller.user is not None:
        log_context.note(user=caller.user.name)
    return caller


def _handle(route: Route, call: Call) -> Any:
    """Call the handler, and again if it loses a race, so that two callers doing the same at once both succeed."""
    if call.query and is_v1(route.path):
        _refuse_strange_query(route, call)
    for _ in range(ATTEMPTS - 1):
        try:
            return route.handler(call)
        except Conflict:
            continue
    return route.handler(call)


def _refuse_strange_query(route: Route, call: Call) -> None:
    """Raises WrongQuery for a query that nobody reads: where one is read, unknown parameters are mistakes already."""
    from chalicelib.api.routes import ByName

    if isinstance(route.handler, ByName) and not route.handler.takes_query:
        raise WrongQuery([Problem("unknown parameter", path=name, hint="leave it out") for name in call.query])


def match(path: str) -> Match | None:
    """The row of the table that a path belongs to."""
    exact, patterns = _table()
    if path in exact:
        return Match(path, {}, exact[path])
    parts = path.split("/")
    for template, routes in patterns.get(len(parts), ()):
        params = _fill(template, parts)
        if params is not None:
            return Match("/".join(template), params, routes)
    return None


def _fill(template: tuple[str, ...], parts: list[str]) -> dict[str, str] | None:
    params = {}
    for name, part in zip(template, parts, strict=True):
        if name.startswith("{"):
            if not part:
                return None
            params[name[1:-1]] = part
        elif name != part:
            return None
    return params


Routes = dict[str, Route]


@cache
def _table() -> tuple[dict[str, Routes], dict[int, list[tuple[tuple[str, ...], Routes]]]]:
    from chalicelib.api.routes import ROUTES

    exact: dict[str, Routes] = {}
    for route in ROUTES:
        if exact.setdefault(route.path, {}).setdefault(route.method, route) is not route:
            raise ValueError(f"{route.method} {route.path} is declared twice")
    patterns: dict[int, list[tuple[tuple[str, ...], Routes]]] = {}
    for path in [path for path in exact if "{" in path]:
        template = tuple(path.split("/"))
        patterns.setdefault(len(template), []).append((template, exact.pop(path)))
    for rows in patterns.values():
        rows.sort(key=lambda row: [part.startswith("{") for part in row[0]])  # fixed parts before parameters
    return exact, patterns


def _check(plane: Plane, route: Route, params: Mapping[str, str], request: Request) -> None:
    if route.path.startswith("/api/") and not is_v1(route.path):
        check_version(request.headers.get("x-api-version"))
    if len(request.body) > plane.limits.body:
        raise too_large(plane.limits.body)
    for text in (*params.values(), *request.query.values(), request.headers.get("authorization", "")):
        if not text.isprintable() or len(text) > 2000:
            raise Invalid("The path, the query or the token contains characters that no name can have")


def too_large(limit: int) -> TooLarge:
    return TooLarge(f"The request is larger than {limit / 2**20:g} MB.", hint="Upload large parts as files.")


def check_version(version: str | None) -> None:
    """Accepts any client of the served line, and no version or `latest`, as the web console sends; other clients would
    misread the responses."""
    if version in (None, "latest"):
        return
    found = _VERSION.fullmatch(version)
    if found is None:
        raise Refused(f"X-API-VERSION: {version[:40]!r} is not a version.", hint="It should look like 0.22.5.")
    if (int(found[1]), int(found[2])) != SERVED:
        line = ".".join(map(str, SERVED))
        raise Refused(
            f"This control plane serves clients of the {line} line and yours is {version[:40]}.",
            hint=f"Install one of them: pip install 'dstack=={line}.*'",
        )


def _plain(reply: problems.Failure) -> Reply:
    return Reply(reply[0], _JSON, reply[1])


def _of(reply: v1_problems.Failure) -> Reply:
    return Reply(reply.status, reply.headers, reply.body)
