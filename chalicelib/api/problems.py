"""Errors as clients know them.

Clients print the text of a 400 with exactly one entry and no other keys than `msg`, `code`, `fields`; for 403 and 404
they print words of their own and want an object. Anything else would show as a traceback, so nothing else is ever sent.
"""

from __future__ import annotations

import logging
import secrets
from typing import Any

import orjson

from chalicelib.errors import DstackError, StorageFull

log = logging.getLogger("dstack.api")

Reply = tuple[int, bytes]


def reply_to(error: Exception, where: str) -> Reply:
    """The answer to a failed call. What isn't the caller's fault is logged under an id that the answer names."""
    if isinstance(error, StorageFull):
        log.error("%s: %s", where, error)  # the caller can't mend it; who reads the log can
    if isinstance(error, DstackError) and error.status < 500:
        return _known(error)
    number = secrets.token_hex(4)
    log.error("error %s at %s", number, where, exc_info=error)
    text = (
        f"The control plane failed at this (error id {number}). Its log has the cause; it is not your request's fault."
    )
    return 500, orjson.dumps({"detail": [{"msg": text, "code": "error"}]})


def _known(error: DstackError) -> Reply:
    if error.status in (403, 404):
        return error.status, orjson.dumps({"detail": {"msg": str(error), "code": None}})
    entry: dict[str, Any] = {"msg": str(error), "code": error.code}
    if any(error.fields):  # one for each line of the text, empty where a line is about no field
        entry["fields"] = list(error.fields)
    return error.status, orjson.dumps({"detail": [entry]})


def no_such_path(path: str) -> Reply:
    return 404, orjson.dumps({"detail": f"There is nothing at {path[:200]}"})


def wrong_method(method: str, allowed: list[str]) -> Reply:
    return 405, orjson.dumps({"detail": f"{method[:20]} is not answered here; use {', '.join(sorted(allowed))}"})
