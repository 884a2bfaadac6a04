"""Calls to Nebius: one attempt each, with a deadline, and every failure as one of our errors.

Each service has a host of its own. What changes something has a key, under which Nebius does it once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.errors import Kind
from chalicelib.backends.kit.paging import pages
from chalicelib.backends.kit.rpc import CallFailed, GrpcWire, Wire
from chalicelib.backends.kit.tokens import AccessToken
from chalicelib.backends.kit.visibility import if_there
from chalicelib.backends.nebius.config import NebiusServiceAccountCreds
from chalicelib.backends.nebius.errors import OF_MANY, of_status, service_errors, translated
from chalicelib.backends.nebius.messages import Body, all_messages
from chalicelib.backends.nebius.tokens import access_token, exchange, read_account
from chalicelib.domain.instants import Micros
from chalicelib.errors import BackendError, InvalidCredentials, Transient, Unfit

READ, WRITE = 10.0, 20.0  # seconds
PAGE = 500  # items
DOMAIN = "api.nebius.cloud:443"
TOKENS = "iam.v1.TokenExchangeService"
HOSTS: Mapping[str, str] = {  # of services and packages, the longest prefix first
    TOKENS: "tokens.iam",
    "iam.v1": "cpl.iam",
    "capacity.v1.CapacityBlockGroupService": "capacity-blocks.billing-cpl",
    "capacity.v1.ResourceAdviceService": "capacity-advisor.billing-cpl",
    "billing.v1.CalculatorService": "api.calculator.billing-data-plane",
    "quotas.v1": "quota-dispatcher.billing-cpl",
    "compute.v1": "compute",
    "vpc.v1": "vpc",
    "common.v1.OperationService": "compute",  # each host has its own; those of others aren't looked up
}
_STATUS = "google.rpc.Status"
_READS = ("Get", "List", "BatchGet", "Estimate", "Exchange")  # how the names of calls begin that change nothing


def idempotency_key(token: str, kind: str) -> str:
    return str(uuid.uuid5(uuid.UUID(int=0), f"{token}/{kind}"))


class NebiusClient:
    def __init__(self, creds: NebiusServiceAccountCreds, now: Now = system_time, wire: Wire | None = None) -> None:
        self._wire: Wire = wire or GrpcWire()
        self._creds, self._now = creds, now
        self._token = AccessToken(now, self._exchanged)

    def call(
        self,
        service: str,
        method: str,
        body: Body,
        *,
        region: str = "",
        what: str = "",
        key: str = "",
        reset: str = "",
        meanings: Mapping[str | int, Kind] | None = None,
        secrets: Sequence[str] = (),
    ) -> dict[str, Any]:
        """The answer. `service`: without `nebius.`. `what` the call is about, for errors. `key`: of a call that changes
        something. `reset`: the fields of an update that are cleared where the body doesn't have them."""
        token = self._token.get()
        metadata = [("authorization", f"Bearer {token}")]
        metadata += [("x-idempotency-key", key)] if key else []
        metadata += [("x-resetmask", reset)] if reset else []
        try:
            return self._sent(_Call(service, method, region, what, meanings, (token, *secrets)), body, metadata)
        except InvalidCredentials:
            self._token.forget(token)
            raise

    def find(self, service: str, identity: str, region: str) -> dict[str, Any] | None:
        """None: there is no such resource."""
        return if_there(lambda: self.call(service, "Get", {"id": identity}, region=region, what=identity))

    def listed(
        self,
        service: str,
        body: Body,
        *,
        region: str = "",
        items: str = "items",
        meanings: Mapping[str | int, Kind] | None = OF_MANY,
    ) -> Iterator[dict[str, Any]]:
        """The items of all pages."""

        def page(token: str) -> tuple[Iterable[dict[str, Any]], str]:
            more = {"page_token": token} if token else {}
            wanted = {"page_size": str(PAGE), **body, **more}
            answer = self.call(service, "List", wanted, region=region, meanings=meanings)
            return answer.get(items, ()), str(answer.get("next_page_token", ""))

        return pages(page)

    def started(
        self, service: str, method: str, body: Body, *, region: str = "", what: str = "", key: str = "", **more: Any
    ) -> dict[str, Any]:
        """The operation that the call begins. Raises why it has failed already. `more`: as for `call`."""
        key = key or str(uuid.uuid4())
        operation = self.call(service, method, body, region=region, what=what, key=key, **more)
        if failed := of_status(operation.get("status", {}), action(service, method, what), region):
            raise failed
        return operation

    def close(self) -> None:
        self._wire.close()

    def _exchanged(self) -> tuple[str, Micros]:
        body = exchange(read_account(self._creds), self._now())
        return access_token(self._sent(_Call(TOKENS, "Exchange", secrets=(body["subject_token"],)), body))

    def _sent(self, call: _Call, body: Body, metadata: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        messages, name = all_messages(), f"nebius.{call.service}"
        taken, returned = messages.of_method(name, call.method)
        try:
            content = messages.encoded(taken, body)
        except ValueError:  # its text may have the value, which may be a secret
            raise Unfit(f"{call.action} can't be requested like this.") from None
        deadline = READ if call.method.startswith(_READS) else WRITE
        try:
            answer = self._wire(host_of(call.service), f"/{name}/{call.method}", content, metadata, deadline)
        except CallFailed as failed:
            raise call.translated(failed) from None
        try:
            return messages.decoded(returned, answer)
        except ValueError as error:
            raise Transient(f"{call.action} has an answer that can't be read: {error}") from None


@dataclass(frozen=True)
class _Call:
    service: str
    method: str
    region: str = ""
    what: str = ""
    meanings: Mapping[str | int, Kind] | None = None
    secrets: Sequence[str] = field(default=(), repr=False)

    @property
    def action(self) -> str:
        return action(self.service, self.method, self.what)

    def translated(self, failed: CallFailed) -> BackendError:
        try:
            status = all_messages().decoded(_STATUS, failed.details)
        except ValueError:  # a detail of another API
            status = {}
        details = service_errors(status)
        meanings, secrets = self.meanings, self.secrets
        return translated(
            failed.code, failed.text, details, self.action, self.region, meanings=meanings, secrets=secrets
        )


def action(service: str, method: str, what: str = "") -> str:
    return f"{service}.{method}{f' of {what}' if what else ''}"


def host_of(service: str) -> str:
    return next(f"{host}.{DOMAIN}" for prefix, host in HOSTS.items() if service.startswith(prefix))
