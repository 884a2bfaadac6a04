"""Calls to Google: one attempt each, with our own deadline, and every failure as one of our errors.

Methods, parameters and bodies are those of Google's documents: `instances.insert`, `networkInterfaces`. The library
checks them before anything is sent. Its own retries are off: they would repeat calls for ten minutes, and hide
throttling. So are its pollers of operations, which call Google itself, whatever address a client was given.

GcpPrices and permissions are of other services, which have no part in that library; they are called over HTTP.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from chalicelib.backends.gcp import sdk
from chalicelib.backends.gcp.credentials import credentials
from chalicelib.backends.gcp.errors import TABLE, Body, failure, is_blind
from chalicelib.backends.gcp.facts import FACTS
from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.errors import ErrorTable, Kind, ProviderFailure, cleaned
from chalicelib.backends.kit.owners import REQUEST_TAG
from chalicelib.backends.kit.paging import pages
from chalicelib.backends.kit.rest import FailureReader, RestCall, RestClient, Sender, at
from chalicelib.backends.kit.visibility import Lag, if_there
from chalicelib.backends.spi import CreateRequest, VolumeRequest
from chalicelib.errors import AlreadyThere, BackendError, Gone, InvalidCredentials, MissingPermission, Transient, Unfit

DEADLINE = 30.0  # seconds
PAGE = 500  # items, the most
_BILLING = "https://cloudbilling.googleapis.com/v1/services/{}/skus"
COMPUTE, TPUS = "6F81-5844-456A", "E000-3F24-B8AA"  # services that are billed; newer TPUs are in the first
_PROJECTS = "https://cloudresourcemanager.googleapis.com/v3/projects"

# What Google's document calls a request's body is a field of the library's request.
_BODIES = {
    "disks": "diskResource",
    "firewalls": "firewallResource",
    "instances": "instanceResource",
    "resourcePolicies": "resourcePolicyResource",
    "instances.attachDisk": "attachedDiskResource",
}
_SOME = "some places"  # of a list that doesn't say which it lacks
_SINGULAR = {"resourcePolicies": "ResourcePolicy"}


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
        """`endpoint`: of what stands in for Google. `login`: makes the library's credentials. `send`: for the calls
        that the library doesn't make."""
        self.project, self._endpoint, self._now, self._send = project, endpoint, now, send
        self.lag = Lag("Google", FACTS.visibility_lag, now)
        self._login = login or (lambda: credentials(creds))
        self._credentials: Any = None
        self._open: dict[str, Any] = {}
        self._lock = threading.RLock()

    # --- Compute Engine ----------------------------------------------------------------------------------------------

    def call(
        self,
        method: str,
        *,
        body: Body | None = None,
        timeout: float = DEADLINE,
        secrets: Sequence[str] = (),
        meanings: Mapping[str | int, Kind] | None = None,
        **parameters: Any,
    ) -> dict[str, Any]:
        """The answer, as Google's document has it."""
        action, where = f"compute.{method}", str(parameters.get("zone") or parameters.get("region") or "")
        service, _, verb = method.partition(".")
        parameters.setdefault("project", self.project)
        if body is not None:
            parameters[_BODIES.get(method) or _BODIES[service]] = body
        request = _fitting(action, _request_name(service, verb), parameters, secrets)
        try:
            answer = self._method(service, verb)(request=request, retry=None, timeout=timeout)
            if hasattr(answer, "pages"):
                answer = next(iter(answer.pages))
        except _failures() as error:  # the library's text may have what was sent
            raise self._translated(error, action, where, secrets, meanings) from None
        return _plain(answer)

    def find(self, method: str, **parameters: Any) -> dict[str, Any] | None:
        """None: there is no such resource."""
        return if_there(lambda: self.call(method, **parameters))

    def made(
        self, collection: str, noun: str, request: CreateRequest | VolumeRequest, region: str
    ) -> Iterator[dict[str, Any]]:
        """What an earlier call made under the request's name, in whichever zone."""
        for body in self.pages(f"{collection}.aggregatedList", within=region, filter=f'name = "{request.name}"'):
            if body.get("labels", {}).get(REQUEST_TAG) != request.token:
                zone = str(body["zone"]).rpartition("/")[2]
                raise AlreadyThere(f"{zone} has a {noun} {request.name} that isn't ours.")
            yield body

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
            if isinstance(client, RestClient):
                client.close()
            else:
                client.transport.close()

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
        """The client for an API that the library doesn't have."""
        with self._lock:
            if name not in self._open:
                self._open[name] = RestClient(
                    at(self._endpoint, base),
                    table,
                    self._headers,
                    send=self._send,
                    failure_of=failure_of or self._refused,
                    now=self._now,
                    ending=ending,
                )
            found: RestClient = self._open[name]
            return found

    def _refused(self, status: int, data: Any) -> ProviderFailure | None:
        if 200 <= status < 300:
            return None
        error = data.get("error", {}) if isinstance(data, Mapping) else {}
        if not isinstance(error, Mapping):
            return ProviderFailure("", str(error), status)
        details = (each for each in error.get("details", ()) if isinstance(each, Mapping))
        reason = next((str(each["reason"]) for each in details if each.get("reason")), str(error.get("status", "")))
        return failure(status, error.get("errors", ()), reason, str(error.get("message", data)), self._now())

    def _headers(self, call: RestCall | None = None) -> Mapping[str, str]:
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import Request

        headers: dict[str, str] = {}
        try:
            self._logged_in().before_request(
                partial(Request(), timeout=DEADLINE),  # the library's own is two minutes
                call.method if call else "GET",
                call.url if call else "",
                headers,
            )
        except GoogleAuthError as error:
            raise _no_login(error) from None
        return headers

    # --- the library -------------------------------------------------------------------------------------------------

    def _method(self, service: str, verb: str) -> Any:
        client = self._client(_snake(service))
        name = _snake(verb)
        return getattr(client, f"{name}_unary", None) or getattr(client, name)

    def _client(self, service: str) -> Any:
        with self._lock:
            if service not in self._open:
                self._open[service] = self._new_client(service)
            return self._open[service]

    def _new_client(self, service: str) -> Any:
        options = {"api_endpoint": self._endpoint} if self._endpoint else None
        return sdk.client_class(service)(credentials=self._logged_in(), transport="rest", client_options=options)

    def _logged_in(self) -> Any:
        with self._lock:
            if self._credentials is None:
                self._credentials = self._login()
            return self._credentials

    def _translated(
        self,
        error: Exception,
        action: str,
        where: str,
        secrets: Sequence[str],
        meanings: Mapping[str | int, Kind] | None,
    ) -> BackendError:
        from google.api_core.exceptions import GoogleAPICallError
        from google.auth.exceptions import GoogleAuthError
        from requests.exceptions import RequestException

        if isinstance(error, GoogleAPICallError):
            status = int(error.code or 0)
            text = re.sub(r"^[A-Z]+ https?://\S+ ", "", str(error.message))
            found = failure(status, error.errors or (), str(error.reason or ""), text, self._now())
            kind = TABLE.kind(found, meanings)
            if kind is Gone and is_blind(action, found):
                meanings = {found.code: MissingPermission, found.status: MissingPermission}
            return TABLE.error(found, action, where, meanings=meanings, secrets=secrets)
        if isinstance(error, GoogleAuthError):
            return _no_login(error)
        if isinstance(error, RequestException):
            return Transient(f"{action} has no answer: {cleaned(str(error), secrets)}")
        return Transient(f"{action}'s answer can't be read: {cleaned(str(error), secrets)}")


def _failures() -> tuple[type[Exception], ...]:
    """What the library raises if a call fails. Anything else is a mistake of ours."""
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError
    from google.protobuf.json_format import ParseError
    from requests.exceptions import RequestException

    return GoogleAPICallError, GoogleAuthError, RequestException, ParseError, UnicodeDecodeError


def _no_login(error: Any) -> BackendError:
    from google.auth.exceptions import TransportError

    if isinstance(error, TransportError) or getattr(error, "retryable", False):
        return Transient(f"Google's login has no answer: {cleaned(str(error))}")
    return InvalidCredentials(f"Google refused the credentials: {cleaned(str(error))}")


def _request_name(service: str, verb: str) -> str:
    """As the library calls the request of a method."""
    plural = service[0].upper() + service[1:]
    one = _SINGULAR.get(service) or plural.removesuffix("s")
    name = verb[0].upper() + verb[1:]
    if verb in ("attachDisk", "detachDisk"):
        return f"{name}{one}Request"
    return f"{name}{plural if 'ist' in verb else one}Request"


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _fitting(action: str, name: str, values: Mapping[str, Any], secrets: Sequence[str]) -> Any:
    """The library's request. Raises Unfit if Google has no such request: nothing has been sent then."""
    from google.protobuf.json_format import ParseDict, ParseError

    kind = sdk.message_class(name)
    try:
        return kind.wrap(ParseDict(values, kind.pb(kind())))
    except ParseError as error:
        raise Unfit(f"{action} can't be requested like this: {cleaned(str(error), secrets)}") from None


def _plain(answer: Any) -> dict[str, Any]:
    from google.protobuf.json_format import MessageToDict

    found: dict[str, Any] = MessageToDict(type(answer).pb(answer))
    return found


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
