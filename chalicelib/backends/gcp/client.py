"""Calls to Google: one attempt each, with our own deadline, and every failure as one of our errors.

Methods, parameters and bodies are those of Google's documents: `instances.insert`, `networkInterfaces`. Where a method
of Compute Engine is called is in `methods.toml`. Only logins are its library's: the one for Compute Engine takes a
second to import, repeats calls for ten minutes, and hides throttling.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from chalicelib.backends.gcp.credentials import credentials
from chalicelib.backends.gcp.errors import TABLE, Body, blind, failure_in
from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.errors import ErrorTable, Kind, cleaned
from chalicelib.backends.kit.paging import pages
from chalicelib.backends.kit.rest import DEADLINE, FailureReader, RestCall, RestClient, Sender, at
from chalicelib.backends.kit.tables import table
from chalicelib.errors import BackendError, Gone, InvalidCredentials, Transient

PAGE = 500  # items, the most
COMPUTE, TPUS = "6F81-5844-456A", "E000-3F24-B8AA"  # services that are billed; newer TPUs are in the first
_COMPUTE = "https://compute.googleapis.com/compute/v1/projects"
_BILLING = "https://cloudbilling.googleapis.com/v1/services/{}/skus"
_PROJECTS = "https://cloudresourcemanager.googleapis.com/v3/projects"
_METHODS: Mapping[str, Mapping[str, str]] = table("gcp/methods.toml")
_SOME = "some places"  # of a list that doesn't say which it lacks


class GcpClients:
    def __init__(
        self,
        creds: Any,
        project: str,
        *,
        endpoint: str = "",
        now: Now = system_time,
        login: Callable[[], Any] | None = None,
        send: Sender | None = None,
    ) -> None:
        """`endpoint`: of what stands in for Google. `login`: makes the library's credentials."""
        self.project, self._endpoint, self._now, self._send = project, endpoint, now, send
        self._login = login or (lambda: credentials(creds))
        self._credentials: Any = None
        self._open: dict[str, RestClient] = {}
        self._lock = threading.RLock()

    # --- Compute Engine ----------------------------------------------------------------------------------------------

    def call(
        self,
        method: str,
        *,
        project: str = "",
        body: Body | None = None,
        timeout: float = DEADLINE,
        secrets: Sequence[str] = (),
        meanings: Mapping[str | int, Kind] | None = None,
        **parameters: Any,
    ) -> dict[str, Any]:
        """The answer, as Google's document has it. `project`: the client's own, unless it is given."""
        service, _, name = method.partition(".")
        verb, _, path = _METHODS[service][name].partition(" ")
        try:
            answer = self.rest("compute", _COMPUTE).call(
                verb,
                project or self.project,
                *(part.format_map(parameters) for part in path.split("/") if part),
                action=f"compute.{method}",
                query={name: value for name, value in parameters.items() if f"{{{name}}}" not in path},
                body=body,
                region=str(parameters.get("zone") or parameters.get("region") or ""),
                meanings=meanings,
                secrets=secrets,
                deadline=timeout,
            )
        except Gone as gone:
            raise blind(method, gone) or gone from None
        if not isinstance(answer, dict):
            raise Transient(f"compute.{method}'s answer can't be read: it is no object.")
        return answer

    def pages(self, method: str, within: str | Sequence[str] = "", **parameters: Any) -> Iterator[dict[str, Any]]:
        """The items of all pages. A list that lacks a place where Google can't look just now is an error, unless the
        place is outside of the region, or of all regions, `within`."""

        def page(token: str) -> tuple[Sequence[dict[str, Any]], str]:
            more: dict[str, Any] = {"pageToken": token} if token else {}
            answer = self.call(method, maxResults=PAGE, **parameters, **more)
            return _items(method, answer, within), str(answer.get("nextPageToken", ""))

        return pages(page)

    def close(self) -> None:
        with self._lock:
            clients, self._open = self._open, {}
        for client in clients.values():
            client.close()

    # --- prices and permissions --------------------------------------------------------------------------------------

    def skus(self, service: str = COMPUTE) -> Iterator[dict[str, Any]]:
        """A service's price list."""

        def page(token: str) -> tuple[Sequence[dict[str, Any]], str]:
            query: dict[str, str | int] = {"currencyCode": "USD", "pageSize": 5000}
            answer = self.rest(f"billing {service}", _BILLING.format(service)).call(
                "GET", query={**query, "pageToken": token} if token else query
            )
            return answer.get("skus", ()), str(answer.get("nextPageToken", ""))

        return pages(page)

    def allowed(self, permissions: Sequence[str], project: str = "") -> set[str]:
        """Those of the permissions that the credentials have in the project."""
        found: set[str] = set()
        for start in range(0, len(permissions), 100):
            body = {"permissions": list(permissions[start : start + 100])}
            rest = self.rest("permissions", _PROJECTS, ":testIamPermissions")
            found.update(rest.call("POST", project or self.project, body=body).get("permissions", ()))
        return found

    def rest(
        self,
        name: str,
        base: str,
        ending: str = "",
        table: ErrorTable = TABLE,
        failure_of: FailureReader | None = None,
    ) -> RestClient:
        """The client for one of Google's APIs."""
        with self._lock:
            if name not in self._open:
                self._open[name] = RestClient(
                    at(self._endpoint, base),
                    table,
                    self._headers,
                    send=self._send,
                    failure_of=failure_of or partial(failure_in, self._now),
                    now=self._now,
                    ending=ending,
                )
            return self._open[name]

    def _headers(self, call: RestCall) -> Mapping[str, str]:
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import Request

        headers: dict[str, str] = {}
        request = partial(Request(), timeout=DEADLINE)  # the library's own is two minutes
        try:
            self._logged_in().before_request(request, call.method, call.url, headers)
        except GoogleAuthError as error:
            raise _no_login(error) from None
        return headers

    def _logged_in(self) -> Any:
        with self._lock:
            if self._credentials is None:
                self._credentials = self._login()
            return self._credentials


def _no_login(error: Any) -> BackendError:
    from google.auth.exceptions import TransportError

    if isinstance(error, TransportError) or getattr(error, "retryable", False):
        return Transient(f"Google's login has no answer: {cleaned(str(error))}")
    return InvalidCredentials(f"Google refused the credentials: {cleaned(str(error))}")


def _items(method: str, answer: Body, within: str | Sequence[str]) -> list[dict[str, Any]]:
    """A page's items. A listing of all places has them by place."""
    unreached = [*answer.get("unreachables", ()), *_unreached("", answer)]
    items = answer.get("items", ())
    found: list[dict[str, Any]] = []
    if isinstance(items, Mapping):
        for scope, listed in items.items():
            unreached += _unreached(scope, listed)
            for rows in listed.values():
                found += rows if isinstance(rows, list) else ()
    else:
        found += items
    regions = [within] if isinstance(within, str) else within
    unreached = [
        scope
        for scope in unreached
        if scope.startswith(_SOME) or any(f"/{region}" in f"/{scope}" for region in regions)
    ]
    if unreached:
        raise Transient(
            f"compute.{method} doesn't list everything: Google can't look at {', '.join(unreached[:5])} now."
        )
    return found


def _unreached(scope: str, listed: Body) -> list[str]:
    """A list that is complete has no warning but that there is nothing, or that something is deprecated."""
    code = str(listed.get("warning", {}).get("code", ""))
    complete = code in ("", "NO_RESULTS_ON_PAGE") or code.startswith("DEPRECATED")
    return [] if complete else [f"{scope or _SOME} ({code})"]
