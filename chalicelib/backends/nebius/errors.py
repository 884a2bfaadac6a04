"""Translates Nebius's failures into our errors.

An error has a gRPC code, and mostly a detail that says what it is about. The detail decides: quotas, a lack of machines
and too many requests share one code. An operation that fails later has the same kind of error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from chalicelib.backends.kit.errors import ErrorTable, Kind, ProviderFailure
from chalicelib.backends.kit.rpc import code_of
from chalicelib.errors import BackendError, InsufficientCapacity, Transient, Unfit

TABLE = ErrorTable.read("Nebius", "nebius/errors.toml")
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
    code = code_of(int(status.get("code", 0)))
    if not code:
        return None
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
