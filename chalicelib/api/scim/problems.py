"""Errors as SCIM writes them, with the status that HTTP has for them (RFC 7644, 3.12)."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import orjson

from chalicelib.api.scim import ERROR, MEDIA
from chalicelib.api.v1 import problems
from chalicelib.api.v1.problems import Failure
from chalicelib.errors import AlreadyExists, DstackError, Invalid, WrongScim


def reply_to(error: Exception, where: str) -> Failure:
    """The response to a failed call."""
    known = problems.reply_to(error, where)  # which logs it, if that isn't the caller's fault
    said = orjson.loads(known.body)
    detail = " ".join(filter(None, (said["detail"], said["hint"])))
    if isinstance(error, WrongScim | Invalid):
        return _failure(HTTPStatus.BAD_REQUEST, detail, kind=getattr(error, "kind", "invalidValue"))
    passes = {name: value for name, value in known.headers.items() if name in ("Retry-After", "WWW-Authenticate")}
    status = HTTPStatus.SERVICE_UNAVAILABLE if "Retry-After" in passes else HTTPStatus(known.status)
    kind = "uniqueness" if isinstance(error, AlreadyExists) else ""
    return _failure(status, detail, passes, kind=kind if isinstance(error, DstackError) else "")


def no_such_path(path: str) -> Failure:
    return _failure(HTTPStatus.NOT_FOUND, f"There is nothing at {path[:200]}. See /scim/v2/ResourceTypes.")


def wrong_method(method: str, allowed: list[str]) -> Failure:
    names = ", ".join(sorted(allowed))
    return _failure(
        HTTPStatus.METHOD_NOT_ALLOWED, f"{method[:20]} is not supported here; use {names}", {"Allow": names}
    )


def _failure(status: HTTPStatus, detail: str, headers: Mapping[str, str] | None = None, *, kind: str = "") -> Failure:
    shown = detail.encode(errors="replace").decode()
    content = {"schemas": [ERROR], "status": str(int(status)), "detail": shown, **({"scimType": kind} if kind else {})}
    return Failure(int(status), {"Content-Type": MEDIA, **(headers or {})}, orjson.dumps(content))
