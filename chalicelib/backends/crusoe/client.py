"""Calls to Crusoe, each signed by itself: its path, query, method and time, and not its body.

What takes long is an operation there. None is waited for: what it was about shows its result, and the reason of a
failure is looked up among the operations about a resource.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Unpack
from urllib.parse import unquote, urlencode

from chalicelib.backends.crusoe.errors import TABLE, failure_of
from chalicelib.backends.crusoe.facts import FACTS
from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.errors import Kind, ProviderFailure
from chalicelib.backends.kit.handles import located
from chalicelib.backends.kit.limits import bucket_of
from chalicelib.backends.kit.paging import pages
from chalicelib.backends.kit.rest import CallOptions, RestCall, RestClient, Sender, Signer, at
from chalicelib.backends.kit.visibility import Lag
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from chalicelib.domain.specs.credentials import AccessKeyCreds
from chalicelib.errors import BackendError, Gone, InsufficientCapacity, InvalidCredentials, MissingPermission, Transient

BASE = "https://api.cloud.crusoe.ai/v1"
RATE, BURST = 5.0, 300  # calls a second and at once; Crusoe publishes no limits, and its lists have many pages
READ, WRITE = 15.0, 30.0  # seconds for a call
VMS, DISKS = ("compute", "vms", "instances"), ("storage", "disks")
PARTITIONS, NETWORKS = ("networking", "ib-partitions"), ("networking", "ib-networks")
NO_LIST: Mapping[str | int, Kind] = {404: Transient, 410: Transient}  # a list that isn't there doesn't say what exists

Body = Mapping[str, Any]
Path = Sequence[str]


class CrusoeClient:
    def __init__(
        self,
        creds: AccessKeyCreds,
        project: str,
        now: Now = system_time,
        *,
        endpoint: str = "",
        send: Sender | None = None,
        burst: int = BURST,
    ) -> None:
        self.lag = Lag("Crusoe", FACTS.visibility_lag, now)
        self._project = ("projects", project)
        self._rest = RestClient(
            at(endpoint, BASE),
            TABLE,
            signer(creds.access_key, creds.secret_key, now),
            secrets=[creds.access_key, creds.secret_key],
            bucket=bucket_of("Crusoe", creds.access_key, RATE, burst, now),
            send=send,
            failure_of=failure_of,
            now=now,
        )

    def everybodys(self, *path: str) -> Body:
        """What isn't a project's."""
        found: Body = self._rest.call("GET", *path, deadline=READ)
        return found

    def call(
        self,
        method: str,
        *path: str,
        query: Mapping[str, str] | None = None,
        **options: Unpack[CallOptions],
    ) -> Any:
        """In the project. The query is sent in the order in which it is signed."""
        return self._rest.call(
            method,
            *self._project,
            *path,
            query=dict(sorted((query or {}).items())),
            deadline=READ if method == "GET" else WRITE,
            **options,
        )

    def listed(self, path: Path, **query: str) -> Iterator[Body]:
        def page(token: str) -> tuple[Sequence[Body], str]:
            wanted = {**query, **({"next_token": token} if token else {})}
            answer = self.call("GET", *path, query=wanted, meanings=NO_LIST)
            return answer["items"], answer.get("next_page_token") or ""

        return pages(page)

    def named(self, path: Path, name: str, **query: str) -> list[Body]:
        """Those with the name, the oldest first. `query`: a list may ignore its filters."""
        found = [each for each in self.listed(path, **query) if each["name"] == name]
        return sorted(found, key=lambda each: (str(each["created_at"]), str(each["id"])))

    def found(self, path: Path, identity: str, **query: str) -> Body | None:
        """The resource. That there is none is a 403, as a lack of permission is, or a 404, as that of a wrong address
        is: its list tells them apart. `query`: the list's, if it can be asked for this one."""
        try:
            body: Body = self.call("GET", *path, identity)
        except (Gone, MissingPermission) as error:
            if not any(each["id"] == identity for each in self.listed(path, **query)):
                return None
            raise Transient(error.message) if isinstance(error, Gone) else error from None
        return body

    def machine(self, handle: Handle) -> Body | None:
        return self.found(VMS, handle.id, ids=handle.id)

    def begun(
        self, kind: str, path: Path, body: Body, what: str, *, secrets: Sequence[str] = (), **data: str
    ) -> Handle:
        """What the call creates. If that has failed already, `check_creation` says why."""
        region = str(body["location"])
        operation = self.call("POST", *path, body=body, region=region, secrets=secrets)["operation"]
        identity = str(operation["metadata"].get("id") or "")
        if not identity and (error := failure_in(operation, what, region)) is not None:
            raise error  # there is nothing to describe, which would say it
        return located(kind, identity, region, created=operation["started_at"], **data)

    def check_creation(self, path: Path, handle: Handle, what: str) -> None:
        """Raises Gone if it couldn't be created."""
        for operation in self.operations(path, handle.id)[:1]:
            if (error := failure_in(operation, what, handle.data.get("region", ""))) is not None:
                raise Gone(error.message, refused=type(error))

    def operations(self, path: Path, identity: str) -> Sequence[Body]:
        """Those about the resource, the oldest first; none if they are forgotten."""
        try:
            listed = self.call("GET", *path, "operations", query={"resource_id": identity})["items"]
        except (Gone, MissingPermission):
            return ()
        return sorted(listed, key=lambda each: str(each["started_at"]))

    def close(self) -> None:
        self._rest.close()


def state_of(machine: Body) -> str:
    """The names differ between the API and its documents."""
    return str(machine["state"]).upper().removeprefix("STATE_")


def failure_in(operation: Body, what: str, region: str) -> BackendError | None:
    """Why the operation that creates it has failed; None: it hasn't."""
    if operation["state"] != "FAILED":
        return None
    result = operation.get("result")
    code, text = (result.get("code"), result.get("message")) if isinstance(result, Mapping) else ("", result)
    error = TABLE.error(ProviderFailure(str(code or ""), str(text or "")), f"creating {what}")
    if isinstance(error, InsufficientCapacity):
        return InsufficientCapacity(f"Crusoe has no {what} left in {region}: {error.message}")
    return error


def signer(access_key: str, secret_key: str, now: Now) -> Signer:
    """The secret is base64 for URLs, without padding, and so is the signature."""

    def sign(call: RestCall) -> Mapping[str, str]:
        stamp = datetime.fromtimestamp(now() // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        lines = (unquote(call.path), urlencode(call.query), call.method, stamp)
        try:
            key = base64.urlsafe_b64decode(secret_key + "=" * (-len(secret_key) % 4))
        except (binascii.Error, ValueError):
            raise InvalidCredentials("Crusoe's secret key isn't one: it is base64 text.") from None
        proof = hmac.digest(key, "".join(f"{line}\n" for line in lines).encode(), "sha256")
        signature = base64.urlsafe_b64encode(proof).decode().rstrip("=")
        return {"X-Crusoe-Timestamp": stamp, "Authorization": f"Bearer 1.0:{access_key}:{signature}"}

    return sign
