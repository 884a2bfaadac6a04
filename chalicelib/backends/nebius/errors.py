"""Translates Nebius's failures into our errors.

An error has a gRPC code, and mostly a detail that says what it is about. The detail decides: quotas, a lack of machines
and too many requests share one code. An operation that fails later has the same kind of error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from chalicelib.backends.kit.errors import ErrorTable, Kind, ProviderFailure
from chalicelib.errors import (
    AlreadyThere,
    BackendError,
    Gone,
    InsufficientCapacity,
    InUse,
    InvalidCredentials,
    MissingPermission,
    NotYet,
    QuotaExceeded,
    Throttled,
    Transient,
    Unfit,
)

TABLE = ErrorTable(
    "Nebius",
    (
        (InsufficientCapacity, "not_enough_resources"),
        (QuotaExceeded, "quota_failure"),
        (Throttled, "too_many_requests RESOURCE_EXHAUSTED"),
        (InvalidCredentials, "UNAUTHENTICATED"),
        (MissingPermission, "permission_denied PERMISSION_DENIED"),
        (Gone, "resource_not_found NOT_FOUND"),
        (AlreadyThere, "resource_already_exists ALREADY_EXISTS"),
        (NotYet, "operation_conflict operation_aborted ABORTED"),
        (InUse, "bad_resource_state resource_conflict FAILED_PRECONDITION"),
        (Unfit, "bad_request out_of_range INVALID_ARGUMENT OUT_OF_RANGE UNIMPLEMENTED"),
        (Transient, "internal_error UNAVAILABLE DEADLINE_EXCEEDED INTERNAL UNKNOWN CANCELLED DATA_LOSS"),
    ),
    statuses={},
)
NOT_READY = ("bad_resource_state", "resource_conflict", "FAILED_PRECONDITION")
# Of a creation: what it names isn't there, or isn't in a state for it; and without a detail, capacity is exhausted.
OF_CREATION: Mapping[str | int, Kind] = {
    **dict.fromkeys((*NOT_READY, "resource_not_found", "NOT_FOUND"), Unfit),
    "RESOURCE_EXHAUSTED": InsufficientCapacity,
}
# Of a call about many: that it wasn't found proves nothing of any of them.
OF_MANY: Mapping[str | int, Kind] = {"resource_not_found": Transient, "NOT_FOUND": Transient}
SERVICE_ERROR = "nebius.common.v1.ServiceError"
_COMMON = frozenset({"@type", "service", "code", "retry_type"})  # fields beside the one that says what it is about
_QUOTA = re.compile(r"quota limit exceeded", re.IGNORECASE)
# Of google.rpc.Code, by their numbers, as an operation's status has them.
_CODES = """OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED
RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS
UNAUTHENTICATED"""


def translated(
    code: str,
    text: str,
    details: Sequence[Mapping[str, Any]],
    action: str,
    region: str = "",
    *,
    meanings: Mapping[str | int, Kind] | None = None,
    secrets: Sequence[str] = (),
) -> BackendError:
    """`details`: service errors in JSON form."""
    detail = next((each for each in details if each.keys() - _COMMON), {})
    kind = next(iter(detail.keys() - _COMMON), "")
    if kind in ("", "bad_request") and _QUOTA.search(text):
        kind = "quota_failure"
    said = "; ".join(filter(None, (text, *_violations(detail.get(kind, {})))))
    return TABLE.error(ProviderFailure(kind or code, said), action, region, meanings=meanings, secrets=secrets)


def of_status(
    status: Mapping[str, Any],
    action: str,
    region: str = "",
    *,
    meanings: Mapping[str | int, Kind] | None = OF_CREATION,
) -> BackendError | None:
    """Why an operation failed, or one part of a call; None if it hasn't."""
    number = int(status.get("code", 0))
    if not number:
        return None
    code = dict(enumerate(_CODES.split())).get(number, str(number))
    return translated(code, str(status.get("message", "")), service_errors(status), action, region, meanings=meanings)


def service_errors(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in status.get("details", ()) if each.get("@type", "").endswith(SERVICE_ERROR)]


def _violations(detail: Any) -> list[str]:
    """What the detail of an error adds to its text: which field, or which quota with its numbers."""
    found = []
    for each in detail.get("violations", ()) if isinstance(detail, Mapping) else ():
        if "quota" in each:
            numbers = f"limit {each.get('limit', '?')}, requested {each.get('requested', '?')}"
            found.append(f"quota {each['quota']}: {numbers}")
        else:
            found.append(": ".join(filter(None, (each.get("field"), each.get("message")))))
    return found
