"""`Prefer: wait=…` (RFC 7240): how long a caller would wait for a resource to settle.

A request is answered once, and while the resource isn't settled, it is read again; the last answer has what was read
last. Nothing is written again. How a process waits between two reads is its own.
"""

from __future__ import annotations

import re
from dataclasses import replace

from chalicelib.api import dispatch
from chalicelib.api.dispatch import Reply, Request, RequestHead
from chalicelib.api.route import Settling

HELD = 60  # seconds, where waiting costs nothing
BILLED = 10  # seconds, where each waiting call is billed, and takes the place of another

_READ = (200, 304)
_WAIT = re.compile(r'\s*wait\s*=\s*"?(\d{1,6})"?\s*(?:;.*)?', re.IGNORECASE)


def wait_of(request: Request, most: int) -> int:
    """The seconds to wait; 0 without such a preference. The first one counts, and a preference that can't be read is
    ignored, as the RFC has it: nobody depends on it."""
    if not dispatch.is_v1(request.path):
        return 0
    parts = request.headers.get("prefer", "").split(",")
    found = next((found for each in parts if (found := _WAIT.fullmatch(each))), None)
    return 0 if found is None else min(int(found[1]), most)


def reading(head: RequestHead, settling: Settling) -> RequestHead:
    """The request that reads the resource again, by the same caller."""
    headers = {name: value for name, value in head.request.headers.items() if name != "idempotency-key"}
    found = dispatch.head_of(
        replace(head.request, method="GET", path=settling.path, headers=headers, body=b"", query={})
    )
    assert isinstance(found, RequestHead), f"{settling.path} is a resource"
    return found


def settled(first: Reply, last: Reply, seconds: int) -> Reply:
    """The answer: what was read last, with the status of a write. A resource that is gone meanwhile is shown as it
    was."""
    applied = {"Preference-Applied": f"wait={seconds}"}
    shown = last if last.status in _READ else first
    if first.status in _READ:
        return Reply(shown.status, {**shown.headers, **applied}, shown.body)
    return Reply(first.status, {**shown.headers, **first.headers, **applied}, shown.body)
