"""Cirrus, as the conformance suite arranges it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from chalicelib.backends.spi import Backend
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offers import Offer
from tests.backends.conformance.provider import Call, Fails
from tests.backends.conformance.requests import INSTALL, OTHER_INSTALL, request_for
from tests.backends.kit.cirrus import NOTICE, SECRET, TYPES, Body, Cirrus, RestFault

CALLS = {
    "check": "GET account",
    "offers": "GET types",
    "create": "POST instances",
    "describe": "GET instances",
    "terminate": "DELETE instances",
    "list": "GET instances",
}
CODES = {
    "InvalidCredentials": (401, "invalid-key"),
    "MissingPermission": (403, "forbidden"),
    "Throttled": (429, "too-many-requests"),
    "Transient": (500, "internal"),
}


class CirrusProvider:
    secrets: Sequence[str] = (SECRET,)

    def __init__(self, cloud: Cirrus) -> None:
        self._cloud = cloud

    def existing(self) -> set[str]:
        return {body["id"] for body in self._cloud.alive()}

    def fail(self, call: Call, error: Fails, *, when: Literal["before", "after"] = "before", times: int = 1) -> None:
        status, code = CODES[error]
        self._cloud.faults.append(RestFault(CALLS[call], status, code, when, times))

    def page_fails(self) -> None:
        self._cloud.faults.append(RestFault("GET instances", 500, "internal", further=True))

    def region_down(self, region: str) -> None:
        self._cloud.faults.append(RestFault("", 503, "unavailable", region=region))

    def invisible_for(self, seconds: float) -> None:
        self._cloud.lag = round(seconds * SECOND)

    def pages_of(self, size: int) -> None:
        self._cloud.page = size

    def none_left(self, offer: Offer) -> None:
        self._cloud.full.add(offer.instance.name)

    def zone_is_full(self, offer: Offer, zone: str, *, full: bool = True) -> None:
        """It has no zones."""

    def quota(self, offer: Offer, machines: int) -> None:
        self._cloud.quota = machines

    def falls_short(self, offer: Offer) -> None:
        self._cloud.short.add(offer.instance.name)

    def lost(self, handles: Sequence[Handle]) -> None:
        self._body(handles[0])["ends"] = 1

    def reclaim(self, handles: Sequence[Handle]) -> None:
        self._body(handles[0])["taken"] = self._cloud.now() + NOTICE

    def strangers(self, backend: Backend, offer: Offer) -> set[str]:
        before = self.existing()
        made = [next(iter(backend.create(request_for(offer, name)))) for name in ("web", "db")]
        self._body(made[0])["tags"] = {"team": "web"}
        self._body(made[1])["tags"] = {"dstack-install": INSTALL, "dstack-instance": "x"}
        list(backend.create(request_for(offer, "one", install=OTHER_INSTALL)))
        return self.existing() - before

    def reserve(self, offer: Offer, machines: int, state: str = "active") -> str:
        raise NotImplementedError("it has no reservations")

    def in_reservation(self, reservation: str) -> int:
        raise NotImplementedError("it has no reservations")

    def price(self, offer: Offer) -> float:
        (kind,) = [each for each in TYPES if each["id"] == offer.instance.name]
        return float(kind["spot_cents" if offer.instance.resources.spot else "cents"]) / 100

    def user_data(self, handles: Sequence[Handle]) -> str:
        """What cloud-init runs."""
        config = self._body(handles[0])["cloud_init"]
        (file,) = [each for each in config["write_files"] if config["runcmd"] == [each["path"]]]
        return str(file["content"])

    def open_ports(self, handles: Sequence[Handle]) -> set[int]:
        return set()

    def disk_gib(self, handles: Sequence[Handle]) -> float:
        return float(self._body(handles[0])["disk_gib"])

    def tags(self, handle: Handle) -> dict[str, str]:
        return dict(self._body(handle)["tags"])

    def _body(self, handle: Handle) -> Body:
        return self._cloud.instances[handle.id]
