"""The calls of agents. Each handler checks the instance's credential itself, because it isn't a user's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.api.auth import bearer
from chalicelib.api.route import Answer, Call
from chalicelib.usecases.agents import calls, carriers, downloads

if TYPE_CHECKING:
    from chalicelib.contract.agent import SyncReply

_BYTES = "application/octet-stream"


def sync(call: Call) -> SyncReply:
    return calls.take(call.plane, bearer(call.headers), call.body)


def file(call: Call) -> Answer:
    content = downloads.archive_content(call.plane, bearer(call.headers), call.params["archive_id"])
    return Answer(content, content_type=_BYTES)


def program(call: Call) -> Answer:
    return Answer(downloads.program(call.plane, call.query.get("sha256", "")), content_type=_BYTES)


def carrier(call: Call) -> Answer:
    """By its digest, so it never changes."""
    found = carriers.content(call.plane, call.query.get("sha256", ""))
    if isinstance(found, str):
        return Answer(b"", status=302, content_type="text/plain", headers={"Location": found})
    return Answer(found, content_type=_BYTES, headers={"Cache-Control": "public, max-age=31536000, immutable"})
