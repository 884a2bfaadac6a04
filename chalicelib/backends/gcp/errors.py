"""Translates Google's error codes into our errors. The text names the method that failed, as in Google's documents.

A call fails at once, or it is accepted and its operation fails later. The codes of both are in one table, where
an answer has them in small letters and an operation in capitals. The same HTTP status has opposite meanings: 503 of a
call is an unknown outcome, and of an operation it is a lack of capacity. So an operation's status is never looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from chalicelib.backends.kit.errors import ErrorTable, Kind, ProviderFailure, cleaned
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.errors import BackendError, Gone, InsufficientCapacity, Throttled, Transient, Unfit

Body = Mapping[str, Any]

TABLE = ErrorTable.read("Google", "gcp/errors.toml")
_SECONDARY = frozenset({"VM_MIN_COUNT_NOT_REACHED"})  # beside the code that says why

# Of a launch: another zone may have what this one refused, or lacks.
_ELSEWHERE = frozenset({"notFound", "RESOURCE_NOT_FOUND", "UNSUPPORTED_OPERATION"})


# What a 404 is about: a thing, and not the project or the zone where it would be.
_THING = re.compile(r"/(?:(?:zones|regions)/[^/']+|global)/\w+/")


def is_blind(action: str, failure: ProviderFailure) -> bool:
    """Does a 404 say nothing about what was asked for? A list has no thing to miss. Who may not see a project, or a
    zone of it, is answered that this isn't there."""
    service, _, verb = action.removeprefix("compute.").partition(".")
    return "ist" in verb or (service != "projects" and not _THING.search(failure.text))


def elsewhere(error: BackendError) -> bool:
    """Did the launch fail only for this zone?"""
    if isinstance(error, Gone):  # the placement group is
        return False
    lacks = error.provider_code in _ELSEWHERE or "does not exist in zone" in error.message
    return isinstance(error, InsufficientCapacity) or lacks


def failure(status: int, listed: Sequence[Any], reason: str, text: str, now: Micros) -> ProviderFailure:
    """What a call's answer says. `listed`: its `errors`; `reason`: the one in its details."""
    first = next((each for each in listed if isinstance(each, Mapping)), {})
    code = str(first.get("reason") or reason or "")
    wait = 0.0
    if TABLE.kind(ProviderFailure(code)) is Throttled:  # the account's limits are of a minute of the clock
        wait = (MINUTE - now % MINUTE) / SECOND + 1
    return ProviderFailure(code, str(first.get("message") or text), status, wait)


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


def _as(kind: Kind, error: BackendError) -> BackendError:
    found = kind(error.message)
    found.provider_code = error.provider_code
    return found
