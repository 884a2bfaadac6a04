"""Calls to TensorDock's API v2, of whose answers several forms are known: each is read into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chalicelib.backends.kit.clock import Now, system_time
from chalicelib.backends.kit.errors import Kind
from chalicelib.backends.kit.limits import bucket_of
from chalicelib.backends.kit.rest import RestClient, Sender, at, bearer
from chalicelib.backends.tensordock.errors import NOWHERE, TABLE, failure_of
from chalicelib.errors import InsufficientCapacity, Transient

Body = Mapping[str, Any]
BASE = "https://dashboard.tensordock.com/api/v2"
RATE, BURST = 1.5, 20  # calls a second: an organisation may make a hundred a minute
READ, CREATE = 15.0, 60.0  # seconds
# A refused creation: if its text says nothing known, it may have created something all the same.
REFUSED: Mapping[str | int, Kind] = {NOWHERE: InsufficientCapacity, 404: Transient, 409: Transient}
NO_LIST: Mapping[str | int, Kind] = {404: Transient, 410: Transient}  # that there is no list says nothing of machines


class TensorDockClient:
    def __init__(
        self,
        token: str,
        now: Now = system_time,
        *,
        send: Sender | None = None,
        burst: int = BURST,
        endpoint: str = "",
    ) -> None:
        self._rest = RestClient(
            at(endpoint, BASE),
            TABLE,
            bearer(token),
            secrets=[token],
            bucket=bucket_of("TensorDock", token, RATE, burst, now),
            send=send,
            failure_of=failure_of,
            now=now,
        )

    def locations(self) -> Sequence[Body]:
        return self._list("locations")

    def instances(self) -> Sequence[Body]:
        """All of the account, whoever's they are. The list has no pages."""
        return [_flat(each) for each in self._list("instances")]

    def instance(self, id: str) -> Body:
        """Raises Gone if there is none."""
        answer = self._rest.call("GET", "instances", id, deadline=READ)
        return _flat(answer.get("data", answer))

    def create(self, body: Body, region: str, secrets: Sequence[str]) -> str:
        """The id of what it created."""
        answer = self._rest.call(
            "POST", "instances", body=body, region=region, secrets=secrets, meanings=REFUSED, deadline=CREATE
        )
        data = answer.get("data")
        made = data.get("id") if isinstance(data, Mapping) else answer.get("instance_id")
        if not made:
            raise Transient(f"TensorDock's answer to a creation in {region} names no instance.")
        return str(made)

    def delete(self, id: str) -> None:
        """Raises Gone if there is none."""
        self._rest.call("DELETE", "instances", id, deadline=READ)

    def _list(self, name: str) -> Sequence[Body]:
        return _listed(self._rest.call("GET", name, meanings=NO_LIST, deadline=READ), name)

    def close(self) -> None:
        self._rest.close()


def _listed(answer: Any, name: str) -> Sequence[Body]:
    """Raises Transient for an answer without the list: what isn't listed would count as gone."""
    data = answer.get("data")
    inner = data.get("attributes") if isinstance(data, Mapping) else None
    for each in (data, *(of.get(name) for of in (data, inner) if isinstance(of, Mapping))):
        if isinstance(each, list):
            return each
    raise Transient(f"TensorDock's answer has no list of {name}.")


def _flat(item: Body) -> Body:
    """An instance with its attributes beside its id, and with each name spelled in one way."""
    inner = item.get("attributes") if isinstance(item, Mapping) else None
    found = {**item, **inner} if isinstance(inner, Mapping) else item
    if not isinstance(found, Mapping) or "id" not in found or "status" not in found:
        raise Transient("TensorDock's answer about an instance lacks its id or status.")
    address = found.get("ipAddress") or found.get("ip_address")
    values = found["id"], found.get("name"), str(found["status"]).lower(), address
    return {part: str(value or "") for part, value in zip(("id", "name", "status", "ip"), values, strict=True)}
