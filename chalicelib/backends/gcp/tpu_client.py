"""Calls to Cloud TPU, which has an API of its own, and other codes for its errors than Compute Engine.

Its code for "no capacity", RESOURCE_EXHAUSTED, is also that of a quota that is used up, and of too many calls. The
details of the error, or else its text, say which of them it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chalicelib.backends.gcp.client import GcpClients
from chalicelib.backends.gcp.errors import Body
from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.errors import STATUSES, ErrorTable, Kind, ProviderFailure
from chalicelib.backends.kit.paging import pages
from chalicelib.backends.kit.rpc import code_of
from chalicelib.domain.instants import DAY, MINUTE, SECOND
from chalicelib.errors import (
    AlreadyThere,
    BackendError,
    Gone,
    InsufficientCapacity,
    InvalidCredentials,
    MissingPermission,
    NotYet,
    QuotaExceeded,
    Throttled,
    Transient,
    Unfit,
)

BASE = "https://tpu.googleapis.com/v2/projects"
PAGE = 500
PERMISSIONS: Sequence[str] = (
    "tpu.nodes.create",
    "tpu.nodes.delete",
    "tpu.nodes.get",
    "tpu.nodes.list",
    "tpu.operations.list",
)
NOT_HERE = "no-location"  # our code for a zone that isn't open to the project
_QUOTA, _RATE = "QuotaFailure", "RATE_LIMIT_EXCEEDED"
_NOT_HERE = re.compile(r"location \S+ is not found or access is unauthorized", re.IGNORECASE)
_QUOTA_TEXT = re.compile(r"quota '\S+' exhausted", re.IGNORECASE)
_CODES: tuple[tuple[Kind, str], ...] = (
    (QuotaExceeded, _QUOTA),
    (Throttled, f"{_RATE} RESOURCE_EXHAUSTED"),
    (InvalidCredentials, "UNAUTHENTICATED"),
    (MissingPermission, "PERMISSION_DENIED"),
    (Gone, "NOT_FOUND"),
    (AlreadyThere, "ALREADY_EXISTS"),
    (NotYet, "FAILED_PRECONDITION"),
    (Unfit, f"INVALID_ARGUMENT OUT_OF_RANGE UNIMPLEMENTED {NOT_HERE}"),
    (Transient, "UNAVAILABLE INTERNAL ABORTED DEADLINE_EXCEEDED UNKNOWN CANCELLED"),
)
TABLE = ErrorTable("Google", _CODES, (), STATUSES)
# What these mean for a slice that is requested: there is no room, or the zone doesn't have such slices.
REQUESTED: Mapping[str | int, Kind] = {
    "RESOURCE_EXHAUSTED": InsufficientCapacity,
    "FAILED_PRECONDITION": InsufficientCapacity,
    "NOT_FOUND": Unfit,
}


class TpuClient:
    def __init__(self, clients: GcpClients, now: Now) -> None:
        self._clients, self._now = clients, now
        self._locations = LookupCache[Sequence[str]](now, DAY)

    def call(self, method: str, zone: str, *path: str, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._rest(method, "locations", zone, *path, region=zone, **more) or {}
        return found

    def listed(self, zone: str, collection: str) -> Iterator[dict[str, Any]]:
        """All of it; nothing where the zone isn't open to the project, which can have nothing there. A list that lacks
        something is an error."""
        try:
            yield from self._pages(collection, "locations", zone, collection)
        except BackendError as error:
            if error.provider_code != NOT_HERE:
                raise

    def locations(self, region: str = "") -> Sequence[str]:
        """The zones that have TPUs."""
        return [zone for zone in self._locations.get("", self._known) if region in ("", zone.rpartition("-")[0])]

    def check(self) -> None:
        """Raises MissingPermission with every permission that is missing, or if the project doesn't use the API."""
        self._locations.clear()
        self.locations()
        if missing := sorted(set(PERMISSIONS) - self._clients.allowed(PERMISSIONS)):
            raise MissingPermission(
                f"The credentials lack permissions for TPUs in {self._clients.project}: {', '.join(missing)}.",
                hint="Give them the role `roles/tpu.admin`, or remove `tpu: true`.",
            )

    def _known(self) -> Sequence[str]:
        return sorted(str(each["locationId"]) for each in self._pages("locations", "locations"))

    def _pages(self, key: str, *path: str) -> Iterator[dict[str, Any]]:
        def page(token: str) -> tuple[Sequence[dict[str, Any]], str]:
            query: dict[str, str | int] = {"pageSize": PAGE}
            answer = self._rest("GET", *path, query={**query, "pageToken": token} if token else query) or {}
            if unreached := answer.get("unreachable"):
                raise Transient(f"{'/'.join(path)} doesn't list everything: Google can't look at {unreached[0]} now.")
            return answer.get(key, ()), str(answer.get("nextPageToken", ""))

        return pages(page)

    def _rest(self, method: str, *path: str, **more: Any) -> Any:
        rest = self._clients.rest("tpu", BASE, table=TABLE, failure_of=self._refused)
        return rest.call(method, self._clients.project, *path, **more)

    def _refused(self, status: int, data: Any) -> ProviderFailure | None:
        if 200 <= status < 300:
            return None
        error = data.get("error", {}) if isinstance(data, Mapping) else {}
        if not isinstance(error, Mapping):
            return ProviderFailure("", str(error or data), status)
        found = failure(error, status)
        throttled = TABLE.kind(found) is Throttled
        wait = (MINUTE - self._now() % MINUTE) / SECOND + 1 if throttled else 0.0  # its limits are of a clock's minute
        return ProviderFailure(found.code, found.text, status, wait)


def failure(error: Body, status: int = 0) -> ProviderFailure:
    """Of an answer, an operation, or a slice that has failed."""
    text, code = str(error.get("message", "")), error.get("status") or code_of(error.get("code", 0))
    for detail in error.get("details", ()):
        if str(detail.get("@type", "")).endswith("google.rpc.QuotaFailure"):
            code = _QUOTA
        elif detail.get("reason") == _RATE:
            code = _RATE
    if _NOT_HERE.search(text):
        code = NOT_HERE
    elif code != _RATE and _QUOTA_TEXT.search(text):
        code = _QUOTA
    return ProviderFailure(str(code), text, status)


def failed(error: Body, action: str, zone: str, secrets: Sequence[str] = ()) -> BackendError | None:
    """Why a slice that was accepted wasn't created; None: that isn't said."""
    return TABLE.error(failure(error), action, zone, meanings=REQUESTED, secrets=secrets) if error else None
