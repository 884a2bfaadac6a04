"""Errors under `/api/v1`: problem details (RFC 9457), with the status that HTTP has for them.

`code` is for programs and stays the same across versions. `errors` has an entry for each thing that is wrong with the
request: where it is, as a JSON pointer into the body or as a parameter of the query, and how to mend it.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING

import orjson

from chalicelib import errors
from chalicelib.errors import DstackError

if TYPE_CHECKING:
    from chalicelib import contract

log = logging.getLogger("dstack.api")

MEDIA = "application/problem+json"
MOST_PROBLEMS, MOST_TEXT, MOST_FIELD = 100, 1_000, 300  # of a response; characters of a text and of a pointer
RETRY_SECONDS = 2  # after which to repeat a request that was refused for a moment


@dataclass(frozen=True)
class Kind:
    """A kind of problem."""

    status: HTTPStatus
    code: str
    title: str
    passes: bool = False  # the same request may succeed in a moment

    @property
    def type(self) -> str:
        """A reference to what is written about it."""
        return f"/docs#problem-{self.code}"


FAILED = Kind(HTTPStatus.INTERNAL_SERVER_ERROR, "failed", "The control plane failed")
NO_PATH = Kind(HTTPStatus.NOT_FOUND, "no-such-path", "There is nothing at this path")
WRONG_METHOD = Kind(HTTPStatus.METHOD_NOT_ALLOWED, "wrong-method", "This method isn't supported here")
MALFORMED = Kind(HTTPStatus.BAD_REQUEST, "malformed", "This can't be read as a request")
REFUSED = Kind(HTTPStatus.CONFLICT, "refused", "This can't be done now")

KINDS: Mapping[type[DstackError], Kind] = {
    errors.Unauthenticated: Kind(HTTPStatus.UNAUTHORIZED, "unauthenticated", "A valid token is needed"),
    errors.Forbidden: Kind(HTTPStatus.FORBIDDEN, "forbidden", "You may not do this"),
    errors.ProjectNotFound: Kind(HTTPStatus.NOT_FOUND, "project-not-found", "There is no such project"),
    errors.NotFound: Kind(HTTPStatus.NOT_FOUND, "not-found", "There is no such resource"),
    errors.AlreadyExists: Kind(HTTPStatus.CONFLICT, "already-exists", "There is such a resource already"),
    errors.KeyReused: Kind(HTTPStatus.CONFLICT, "key-reused", "The Idempotency-Key came with another request"),
    errors.Contended: Kind(HTTPStatus.CONFLICT, "contended", "Others are changing the same thing", passes=True),
    errors.Conflict: Kind(HTTPStatus.CONFLICT, "contended", "Others are changing the same thing", passes=True),
    errors.Ended: Kind(HTTPStatus.GONE, "gone", "The resource is gone for good"),
    errors.PreconditionFailed: Kind(HTTPStatus.PRECONDITION_FAILED, "changed-since", "The resource has changed"),
    errors.Overloaded: Kind(HTTPStatus.SERVICE_UNAVAILABLE, "overloaded", "The server is busy", passes=True),
    errors.TooLarge: Kind(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", "The request is too large"),
    errors.Invalid: Kind(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", "The request has mistakes"),
    errors.NotSupported: Kind(HTTPStatus.UNPROCESSABLE_ENTITY, "not-supported", "This isn't supported"),
    errors.NoBackend: Kind(HTTPStatus.CONFLICT, "no-backend", "The project has no such backend"),
    errors.InvalidCredentials: Kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-credentials", "The provider refuses these credentials"
    ),
    errors.StorageFull: Kind(HTTPStatus.SERVICE_UNAVAILABLE, "storage-full", "The control plane's storage is full"),
    errors.NotDeployed: Kind(HTTPStatus.SERVICE_UNAVAILABLE, "not-deployed", "A part of the control plane is missing"),
    errors.Moved: Kind(HTTPStatus.SERVICE_UNAVAILABLE, "moved", "The control plane has moved"),
    errors.Bug: FAILED,
    DstackError: REFUSED,
}


def kinds() -> list[Kind]:
    """All of them, by code."""
    found = {kind.code: kind for kind in (*KINDS.values(), NO_PATH, WRONG_METHOD, MALFORMED)}
    return [kind for _, kind in sorted(found.items())]


@dataclass(frozen=True)
class Failure:
    status: int
    headers: Mapping[str, str]
    body: bytes


def kind_of(error: DstackError) -> Kind:
    """That of the nearest class that has one."""
    return next(KINDS[each] for each in type(error).__mro__ if each in KINDS)


def reply_to(error: Exception, where: str) -> Failure:
    """The response to a failed call. A failure that isn't the caller's fault is logged under an id in the response."""
    kind = kind_of(error) if isinstance(error, DstackError) else FAILED
    if kind is FAILED:
        number = secrets.token_hex(4)
        log.error("error %s at %s", number, where, exc_info=error)
        return problem(FAILED, f"The cause is in its log, under the id {number}. Your request is not at fault.")
    assert isinstance(error, DstackError)
    if isinstance(error, errors.StorageFull):
        log.error("%s: %s", where, error)  # the caller can't fix it, but the operator can
    if isinstance(error, errors.Invalid):
        return _invalid(kind, error)
    return problem(kind, error.message, hint=error.hint)


def no_such_path(path: str) -> Failure:
    return problem(NO_PATH, f"There is nothing at {path[:200]}", hint="See /openapi.json for the paths.")


def wrong_method(method: str, allowed: list[str]) -> Failure:
    names = ", ".join(sorted({*allowed, "HEAD"} if "GET" in allowed else allowed))
    return problem(WRONG_METHOD, f"{method[:20]} is not supported here; use {names}", headers={"Allow": names})


def malformed(status: int, detail: str) -> Failure:
    """The refusal of what no path is looked up for. `status`: HTTP's for what is wrong with it."""
    return problem(replace(MALFORMED, status=HTTPStatus(status)), detail)


def problem(
    kind: Kind,
    detail: str,
    *,
    hint: str = "",
    found: list[contract.V1ProblemPart] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Failure:
    content: contract.V1Problem = {
        "type": kind.type,
        "title": kind.title,
        "status": int(kind.status),
        "code": kind.code,
        "detail": _cut(detail, MOST_TEXT),
        "hint": _cut(hint, MOST_TEXT) or None,
        "errors": found or [],
    }
    sent = {"Content-Type": MEDIA, **(headers or {})}
    if kind.passes:
        sent["Retry-After"] = str(RETRY_SECONDS)
    if kind.status is HTTPStatus.UNAUTHORIZED:
        sent["WWW-Authenticate"] = "Bearer"
    return Failure(int(kind.status), sent, orjson.dumps(content))


def _invalid(kind: Kind, error: errors.Invalid) -> Failure:
    of_query = isinstance(error, errors.WrongQuery)
    parts = [_part(each, of_query=of_query) for each in error.problems[:MOST_PROBLEMS]]
    first, others = error.problems[0].message, len(error.problems) - 1
    also = f" (and {others} more: see `errors`)" if others else ""
    return problem(kind, f"{_cut(first, MOST_TEXT - 60)}{also}", hint=error.hint or error.problems[0].hint, found=parts)


def _part(found: errors.Problem, *, of_query: bool) -> contract.V1ProblemPart:
    part: contract.V1ProblemPart = {
        "detail": _cut(found.message, MOST_TEXT),
        "pointer": "" if of_query else _cut(pointer(found.path), MOST_FIELD),
        "code": found.code,
        "hint": _cut(found.hint, MOST_TEXT) or None,
    }
    if of_query and found.path:
        part["parameter"] = _cut(found.path, MOST_FIELD)
    if found.line:
        part["line"] = found.line
    return part


def pointer(path: str) -> str:
    """`resources.gpu.count` as a JSON pointer: `/resources/gpu/count`. The whole document is the empty text. What users
    write is the body itself here, and not a part of it."""
    path = path.removeprefix("configuration.")
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in path.split(".") if part)


def _cut(text: str, most: int) -> str:
    """Texts quote what was sent: half characters, which no text may have, and more than a response should repeat."""
    text = text.encode(errors="replace").decode()
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"
