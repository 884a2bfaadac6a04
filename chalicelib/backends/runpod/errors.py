"""Translates what Runpod refuses into our errors.

A pod that can't be created is a 400, whatever the reason is: only the text tells a lack of capacity from a request that
is wrong. A 402 is an account without the credit for an hour of the pod. The older API answers every refusal with a 200
and `errors`, whose codes say little.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from chalicelib.backends.kit.errors import ErrorTable, ProviderFailure, described
from chalicelib.backends.kit.rest import failure_by_status
from chalicelib.errors import (
    AlreadyThere,
    InsufficientCapacity,
    InUse,
    InvalidCredentials,
    MissingPermission,
    QuotaExceeded,
    Unfit,
)

NO_CAPACITY, NO_CREDIT = "no-capacity", "no-credit"
_SCARCE = re.compile(
    r"(no longer|not|no|aren't|isn't) (\w+ ){0,3}available|instances? available|insufficient|not enough"
    r"|out of (stock|capacity)|no capacity|(have|has) the resources|SUPPLY_CONSTRAINT",
    re.IGNORECASE,
)
_LOST_BID = re.compile(r"\bbid\b.*\b(low|lower|below|less|least|minimum|greater|higher)\b", re.IGNORECASE)
_POOR = re.compile(r"\b(balance|funds?|credits?|spend(ing)? limit)\b", re.IGNORECASE)
TABLE = ErrorTable(
    "Runpod",
    (
        (InsufficientCapacity, NO_CAPACITY),
        (QuotaExceeded, NO_CREDIT),
        (InvalidCredentials, "UNAUTHENTICATED"),
        (MissingPermission, "FORBIDDEN"),
        (Unfit, "BAD_USER_INPUT GRAPHQL_VALIDATION_FAILED GRAPHQL_PARSE_FAILED"),
    ),
    (
        (InUse, r"remove this network volume from all pods"),
        (AlreadyThere, r"name must be unique"),  # perhaps a template of our own, which no list shows yet
    ),
)


def failure_of(status: int, data: Any) -> ProviderFailure | None:
    failure = failure_by_status(status, data)
    if failure is None or status != 400:
        return failure
    if _POOR.search(failure.text):
        return replace(failure, code=NO_CREDIT)
    return replace(failure, code=NO_CAPACITY) if _SCARCE.search(failure.text) else failure


def graphql_failure(status: int, data: Any) -> ProviderFailure | None:
    if not 200 <= status < 300:
        return described(data, status)
    if isinstance(data, Mapping) and not data.get("errors") and data.get("data"):
        return None
    failure = described(data, 0)
    code = failure.code or _code(data)
    if _POOR.search(failure.text):
        code = NO_CREDIT
    elif code == "SUPPLY_CONSTRAINT" or _SCARCE.search(failure.text) or _LOST_BID.search(failure.text):
        code = NO_CAPACITY
    return replace(failure, code=code)


def _code(data: Any) -> str:
    errors = data.get("errors") if isinstance(data, Mapping) else None
    first = errors[0] if isinstance(errors, list) and errors else None
    extensions = first.get("extensions") if isinstance(first, Mapping) else None
    return str(extensions.get("code") or "") if isinstance(extensions, Mapping) else ""
