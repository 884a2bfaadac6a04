"""Its calls. The account's key names the provider's address, so that a test can be the provider."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

from chalicelib.backends.spi import CreateRequest, Machine, Owned
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Availability, Disk, InstanceType, Offer, Resources
from chalicelib.errors import Gone, InvalidCredentials, Transient

from .facts import FACTS


class Nimbus:
    facts = FACTS

    def __init__(self, config: Any) -> None:
        self._url, _, self._key = str(config.creds.api_key).partition("#")

    def check(self) -> None:
        self._call("GET", "account")

    def offers(self) -> Sequence[Offer]:
        return [
            Offer(
                backend=FACTS.name,
                instance=InstanceType(
                    name=each["name"],
                    resources=Resources(
                        cpus=int(each["cpus"]),
                        memory_mib=int(each["memory"]),
                        disk=Disk(size_mib=200_000),
                        cpu_arch="x86",
                    ),
                ),
                region=each["region"],
                price=float(each["price"]),
                availability=Availability.available,
            )
            for each in _listed(self._call("GET", "types")["types"], "type")
        ]

    def create(self, request: CreateRequest) -> Iterator[Handle]:
        body = {"token": request.token, "name": request.name, "tags": dict(request.tags)}
        made = self._call("POST", "machines", body)["machine"]
        yield Handle(kind="vm", id=made["id"])

    def describe(self, handles: Sequence[Handle]) -> Machine:
        found = self._call("GET", f"machines/{handles[0].id}")["machine"]
        return Machine("running", hostname=found["name"], internal_ip="10.0.0.1")

    def terminate(self, handle: Handle) -> None:
        self._call("DELETE", f"machines/{handle.id}")

    def list_owned(self, instance_id: str | None = None, region: str = "") -> Iterator[Owned]:
        for each in _listed(self._call("GET", "machines")["machines"], "machine"):
            owner = json.loads(each["tags"])
            if instance_id in (None, owner["dstack-instance"]):
                yield Owned(
                    Handle(kind="vm", id=each["id"]),
                    owner["dstack-install"],
                    owner["dstack-project"],
                    owner["dstack-instance"],
                    int(owner["dstack-epoch"]),
                )

    def close(self) -> None:
        """Nothing is kept open."""

    def _call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        import xmltodict

        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}/{path}", data, {"X-Key": self._key}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                found: dict[str, Any] = xmltodict.parse(answer.read())
                return found
        except urllib.error.HTTPError as error:
            if error.code == 401:
                raise InvalidCredentials("Nimbus doesn't know this key.", hint="Copy it from its console.") from error
            if error.code == 404:
                raise Gone(f"Nimbus has no {path}.") from error
            raise Transient(f"Nimbus answered {error.code}.") from error
        except OSError as error:
            raise Transient(f"Nimbus can't be reached: {error}") from error


def _listed(of: Any, name: str) -> list[dict[str, Any]]:
    found = (of or {}).get(name, [])
    return found if isinstance(found, list) else [found]
