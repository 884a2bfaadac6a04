"""TensorDock, as the conformance suite arranges it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from chalicelib.backends.kit.scripts import PLACE
from chalicelib.backends.spi import Backend
from chalicelib.backends.tensordock.client import TensorDockClient
from chalicelib.backends.tensordock.config import TensorDockBackendConfig
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from tests.backends.clock import Clock
from tests.backends.conformance.requests import OTHER_INSTALL, request_for
from tests.backends.fakes.provider import ScriptedProvider
from tests.backends.fakes.script import Answer
from tests.backends.fakes.transport import sender
from tests.backends.tensordock.fake import BALANCE, PLACES, TOKEN, Card, TensorDock, stock

CREDS = {"type": "api_key", "api_key": "authorization-0123456789", "api_token": TOKEN}
CONFIG = TensorDockBackendConfig.model_validate({"type": "tensordock", "creds": CREDS})


def client(fake: TensorDock, clock: Clock, burst: int = 10_000) -> TensorDockClient:
    return TensorDockClient(TOKEN, clock.now, send=sender(fake), burst=burst)


def failed(status: int) -> Answer:
    return Answer(status, {"errors": [{"status": str(status), "title": "Failed", "detail": "so the test wants it"}]})


class TensorDockProvider(ScriptedProvider):
    fake: TensorDock
    secrets = (TOKEN,)
    operations: ClassVar = {
        "check": "listInstances",
        "offers": "listLocations",
        "create": "createInstance",
        "describe": "listInstances",
        "terminate": "deleteInstance",
        "list": "listInstances",
    }
    errors: ClassVar = {
        "InvalidCredentials": failed(401),
        "MissingPermission": failed(403),
        "Throttled": failed(429),
        "Transient": Answer(502, "<html>Bad Gateway</html>", {"content-type": "text/html"}),
    }
    kinds = ("vm",)

    def page_fails(self) -> None:
        """Its list has no pages."""
        self.fail("list", "Transient")

    def capacity_counters(self, offer: Offer, zone: str = "") -> Sequence[str]:
        return [stock(offer.backend_data["location"], offer.instance.name)]

    def quota_of(self, offer: Offer) -> tuple[str, int]:
        return BALANCE, round(self.price(offer) * 10_000)

    def falls_short(self, offer: Offer) -> None:
        self.fake.short.add(offer.instance.name)

    def reclaim(self, handles: Sequence[Handle]) -> None:
        raise NotImplementedError("it has no spot machines")

    def strangers(self, backend: Backend, offer: Offer) -> set[str]:
        """Names are all that an instance bears."""
        before = self.existing()
        for name in ("web", "db"):
            made = list(backend.create(request_for(offer, name)))
            self.machine(made).facts["request"]["name"] = {"web": "web", "db": "iabcdef0"}[name]
        list(backend.create(request_for(offer, "one", install=OTHER_INSTALL)))
        return self.existing() - before

    def reserve(self, offer: Offer, machines: int, state: str = "active") -> str:
        raise NotImplementedError("it has no reservations")

    def in_reservation(self, reservation: str) -> int:
        raise NotImplementedError("it has no reservations")

    def price(self, offer: Offer) -> float:
        has = offer.instance.resources
        card: Card = PLACES[offer.backend_data["location"]].cards[offer.instance.name]
        disk = card.disk_gb * has.disk.size_mib / 1024
        return card.price * len(has.gpus) + card.vcpu * has.cpus + card.gb * has.memory_mib / 1024 + disk

    def user_data(self, handles: Sequence[Handle]) -> str:
        """What cloud-init runs last."""
        config = self.machine(handles).facts["request"]["cloud_init"]
        assert config["runcmd"][-1] == PLACE
        (file,) = [each for each in config["write_files"] if each["path"] == PLACE]
        return str(file["content"])

    def open_ports(self, handles: Sequence[Handle]) -> set[int]:
        body = self.machine(handles).facts["request"]
        return {-1} if body["useDedicatedIp"] else {each["external_port"] for each in body.get("port_forwards", ())}

    def disk_gib(self, handles: Sequence[Handle]) -> float:
        return float(self.machine(handles).facts["request"]["resources"]["storage_gb"])

    def tags(self, handle: Handle) -> dict[str, str]:
        raise NotImplementedError("it has no tags")
