"""Translates Google's error codes into our errors. The text names the method that failed, as in Google's documents.

A call fails at once, or it is accepted and its operation fails later. The codes of both are in one table, where
an answer has them in small letters and an operation in capitals. The same HTTP status has opposite meanings: 503 of a
call is an unknown outcome, and of an operation it is a lack of capacity. So an operation's status is never looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.errors import ErrorTable, Kind, ProviderFailure, cleaned
from chalicelib.backends.kit.rest import failure_by_status
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.errors import BackendError, Gone, InsufficientCapacity, MissingPermission, Throttled, Transient, Unfit

Body = Mapping[str, Any]

TABLE = ErrorTable.read("Google", "gcp/errors.toml")
_SECONDARY = frozenset({"VM_MIN_COUNT_NOT_REACHED"})  # beside the code that says why

# Of a launch: another zone may have what this one refused, or lacks.
_ELSEWHERE = frozenset({"notFound", "RESOURCE_NOT_FOUND", "UNSUPPORTED_OPERATION"})


# What a 404 is about: a thing, and not the project or the zone where it would be.
_THING = re.compile(r"/(?:(?:zones|regions)/[^/']+|global)/\w+/")


def blind(method: str, gone: Gone) -> BackendError | None:
    """What a 404 means that says nothing about what was asked for; None: it does. A list has no thing to miss. Who may
    not see a project, or a zone of it, is answered that this isn't there."""
    service, _, verb = method.partition(".")
    if "ist" in verb or (service != "projects" and not _THING.search(gone.message)):
        return _as(MissingPermission, gone, f"Google doesn't allow {gone.message}")
    return None


def elsewhere(error: BackendError) -> bool:
    """Did the launch fail only for this zone?"""
    if isinstance(error, Gone):  # the placement group is
        return False
    lacks = error.provider_code in _ELSEWHERE or "does not exist in zone" in error.message
    return isinstance(error, InsufficientCapacity) or lacks


def failure_in(now: Now, status: int, data: Any) -> ProviderFailure | None:
    """What a call's answer says, in its `errors`, or else in its details."""
    failure = failure_by_status(status, data)
    if failure is None:
        return None
    error = data.get("error") if isinstance(data, Mapping) else None
    if isinstance(error, Mapping) and not error.get("errors"):
        details = (each for each in error.get("details", ()) if isinstance(each, Mapping))
        reason = next((str(each["reason"]) for each in details if each.get("reason")), failure.code)
        failure = replace(failure, code=reason)
    if TABLE.kind(ProviderFailure(failure.code)) is Throttled:  # the account's limits are of a minute of the clock
        failure = replace(failure, retry_after=(MINUTE - now() % MINUTE) / SECOND + 1)
    return failure


def failed(operation: Body, action: str, secrets: Sequence[str] = ()) -> BackendError | None:
    """Why an operation failed; None: it hasn't, as far as is known. One that is done and has errors has failed, though
    it has no HTTP status."""
    listed = operation.get("error", {}).get("errors", ())
    if not listed:
        return None
    errors = [TABLE.error(_of_operation(each), action, secrets=secrets) for each in listed]
    named = [error for error in errors if error.provider_code not in _SECONDARY] or errors
    first = next((error for error in named if not isinstance(error, Transient)), named[0])
    if len(errors) > 1:
        first.message = "; ".join(dict.fromkeys(error.message for error in [first, *errors]))
        first.args = (first.message,)
    return first


def refused_launch(error: BackendError, *, spot: bool) -> BackendError:
    """What a launch failed for. Google has no such operation for a spot machine that it takes back while it creates
    it, and no such resource for a type that the zone lacks. A full reservation is an invalid use of it."""
    if (spot and error.provider_code == "UNSUPPORTED_OPERATION") or "not have available resources" in error.message:
        return _as(InsufficientCapacity, error)
    return _as(Unfit, error) if isinstance(error, Gone) else error


def _of_operation(error: Body) -> ProviderFailure:
    text = str(error.get("message", ""))
    for detail in error.get("errorDetails", ()):
        if quota := detail.get("quotaInfo"):
            where = " ".join(map(str, quota.get("dimensions", {}).values()))
            text += (
                f" ({quota.get('metricName', 'quota')} is {quota.get('limit', 0):g}{' in ' if where else ''}{where})"
            )
        zones = detail.get("errorInfo", {}).get("metadatas", {}).get("zonesAvailable")
        if zones:
            text += f" (there is some in {cleaned(zones)})"
    return ProviderFailure(str(error.get("code", "")), text)


def _as(kind: Kind, error: BackendError, message: str = "") -> BackendError:
    found = kind(message or error.message)
    found.provider_code = error.provider_code
    return found
