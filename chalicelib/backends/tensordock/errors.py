"""Translates what TensorDock refuses into our errors.

It has no codes: the text of a refused creation tells an account without money from a location without room. A refusal
may come with the status 200 and the true one in the body.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from chalicelib.backends.kit.errors import ErrorTable, ProviderFailure, described
from chalicelib.errors import InsufficientCapacity, QuotaExceeded

NO_CAPACITY, NO_CREDIT = "no-capacity", "no-credit"
NOWHERE = "no-such-place"  # what it means depends on the call
TABLE = ErrorTable("TensorDock", ((InsufficientCapacity, NO_CAPACITY), (QuotaExceeded, NO_CREDIT)))
_POOR = re.compile(r"\b(balance|funds?|credits?|deposit)\b|need at least", re.IGNORECASE)
_SCARCE = re.compile(
    r"\b(no|not|isn't|aren't|insufficient)\b.{0,60}\b(available|capacity|resources|gpus?|nodes?|hosts?|hostnodes?|ports?)\b"
    r"|not enough|out of stock|unavailable|no longer|\bports?\b.{0,60}\bin use\b",
    re.IGNORECASE,
)
_NOWHERE = re.compile(r"\b(location|gpu)\b.{0,60}\bnot found\b", re.IGNORECASE)


def failure_of(status: int, data: Any) -> ProviderFailure | None:
    """Of a body with an error, whatever its status says."""
    body = data if isinstance(data, Mapping) else {}
    inner = body.get("status")
    if type(inner) is int and inner >= 400:
        status = inner
    elif 200 <= status < 300 and not body.get("error") and not body.get("errors"):
        return None if isinstance(data, Mapping) else ProviderFailure("", "its answer has no data", status)
    failure = described(data, status)
    said = f"{failure.code} {failure.text}".strip()
    if status in (400, 402, 409, 422) and (_POOR.search(said) or _SCARCE.search(said)):
        return replace(failure, code=NO_CREDIT if _POOR.search(said) else NO_CAPACITY, text=said)
    if status == 404 and _NOWHERE.search(said):
        return replace(failure, code=NOWHERE, text=said)
    return failure
