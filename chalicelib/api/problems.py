"""Errors as clients know them.

Clients print the text of a 400 that has exactly one entry and no keys but `msg`, `code` and `fields`; for 403 and 404
they print text of their own and expect an object. Anything else shows as a traceback, so we never send anything else.
"""

from __future__ import annotations

import logging
import secrets
from typing import Any

import orjson

from chalicelib.errors import DstackError, StorageFull

log = logging.getLogger("dstack.api")

Failure = tuple[int, bytes]


def reply_to(error: Exception, where: str) -> Failure:
    """The response to a failed call. A failure that isn't the caller's fault is logged under an id in the response."""
    if isinstance(error, StorageFull):
        log.error("%s: %s", where, error)  # the caller can't fix it; whoever reads the log can
    if isinstance(error, DstackError) and error.status < 500:
        return _known(error)
    number = secrets.token_hex(4)
    log.error("error %s at %s", number, where, exc_info=error)
    text = f"The control plane failed (error id {number}). The cause is in its log; your request is not at fault."
    return 500, orjson.dumps({"detail": [{"msg": text, "code": "error"}]})


def _known(error: DstackError) -> Failure:
    if error.status in (403, 404):
        return error.status, orjson.dumps({"detail": {"msg": str(error), "code": None}})
    entry: dict[str, Any] = {"msg": str(error), "code": error.code}
    if any(error.fields):  # one for each line of the text, empty where a line is about no field
        entry["fields"] = list(error.fields)
    return error.status, orjson.dumps({"detail": [entry]})


def no_such_path(path: str) -> Failure:
    return 404, orjson.dumps({"detail": f"There is nothing at {path[:200]}"})


def wrong_method(method: str, allowed: list[str]) -> Failure:
    return 405, orjson.dumps({"detail": f"{method[:20]} is not supported here; use {', '.join(sorted(allowed))}"})
