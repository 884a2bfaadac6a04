"""Errors in the form that clients know.

Clients print the text of a 400 that has exactly one entry and no keys but `msg`, `code` and `fields`; for 403 and 404
they print text of their own and expect an object. Anything else shows as a traceback, so we never send anything else.

Texts quote what was sent, so they are cut: a small request must not cause a large response.
"""

from __future__ import annotations

import logging
import secrets
from typing import Any

import orjson

from chalicelib.errors import DstackError, Fenced, NotDeployed, StorageFull

log = logging.getLogger("dstack.api")

Failure = tuple[int, bytes]

MOST_LINES, MOST_TEXT, MOST_FIELD = 200, 1_000, 300  # of a text; characters of a line, and of a field's name


def reply_to(error: Exception, where: str) -> Failure:
    """The response to a failed call. A failure that isn't the caller's fault is logged under an id in the response."""
    if isinstance(error, StorageFull):
        log.error("%s: %s", where, error)  # the caller can't fix it, but the operator can
    if isinstance(error, NotDeployed | Fenced) or (isinstance(error, DstackError) and error.status < 500):
        return _known(error)
    number = secrets.token_hex(4)
    log.error("error %s at %s", number, where, exc_info=error)
    text = f"The control plane failed (error id {number}). The cause is in its log; your request is not at fault."
    return 500, orjson.dumps({"detail": [{"msg": text, "code": "error"}]})


def _known(error: DstackError) -> Failure:
    lines = [_cut(line, MOST_TEXT) for line in str(error).split("\n", MOST_LINES)[:MOST_LINES]]
    more = str(error).count("\n") + 1 - len(lines)
    text = "\n".join([*lines, f"… and {more} lines more"] if more else lines)
    if error.status in (403, 404):
        return error.status, orjson.dumps({"detail": {"msg": text, "code": None}})
    entry: dict[str, Any] = {"msg": text, "code": error.code}
    if any(error.fields):  # one for each line of the text, empty for a line about no field
        entry["fields"] = [_cut(field, MOST_FIELD) for field in error.fields[:MOST_LINES]] + ([""] if more else [])
    return error.status, orjson.dumps({"detail": [entry]})


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def no_such_path(path: str) -> Failure:
    return 404, orjson.dumps({"detail": f"There is nothing at {path[:200].encode(errors='replace').decode()}"})


def wrong_method(method: str, allowed: list[str]) -> Failure:
    return 405, orjson.dumps({"detail": f"{method[:20]} is not supported here; use {', '.join(sorted(allowed))}"})
