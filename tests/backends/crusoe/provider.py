"""Crusoe, as the conformance suite arranges it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from chalicelib.backends.crusoe.client import CrusoeClient
from chalicelib.backends.crusoe.config import CrusoeBackendConfig
from chalicelib.backends.price_file import OfflinePrices
from chalicelib.backends.spi import Backend, Container
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from tests.backends.clock import Clock
from tests.backends.conformance.provider import Fails
from tests.backends.conformance.requests import OTHER_INSTALL, request_for
from tests.backends.crusoe.fake import DISK_MONTH, KEY, PRICES, PROJECT, SECRET, Crusoe, capacity_of, quota
from tests.backends.fakes.provider import ScriptedProvider
from tests.backends.fakes.script import Answer
from tests.backends.fakes.transport import sender

CONFIG = CrusoeBackendConfig.model_validate(
    {
        "type": "crusoe",
        "project_id": PROJECT,
        "creds": {"type": "access_key", "access_key": KEY, "secret_key": SECRET},
    }
)
STATUSES: dict[Fails, int] = {"InvalidCredentials": 401, "MissingPermission": 403, "Throttled": 429, "Transient": 500}
HEAD = "provider,instance_type,region,price,spot_price\n"


def client(fake: Crusoe, clock: Clock, burst: int = 10_000) -> CrusoeClient:
    return CrusoeClient(CONFIG.creds, CONFIG.project_id, clock.now, send=sender(fake), burst=burst)


def prices(folder: Path, **rows: float) -> OfflinePrices:
    """The operator's file; `rows`: in place of what Crusoe asks."""
    file = folder / "prices.csv"
    listed = rows or {**PRICES, "persistent-ssd": DISK_MONTH}
    file.write_text(HEAD + "".join(f"crusoe,{name},,{price},\n" for name, price in listed.items()))
    return OfflinePrices(file)


class CrusoeProvider(ScriptedProvider):
    fake: Crusoe
    secrets = (KEY, SECRET)
    operations: ClassVar = {
        "check": "listProjectQuotas",
        "offers": "getVMTypes",
        "create": "createInstance",
        "describe": "listInstances",
        "terminate": "deleteInstance",
        "list": "listInstances",
    }
    errors: ClassVar = {
        name: Answer(status, {"code": "scripted", "message": "scripted"}) for name, status in STATUSES.items()
    }
    kinds = ("vm", "disk", "partition")
    page_token = "next_token"

    def existing(self) -> set[str]:
        """The system's disk of a machine ends with it."""
        return {
            each.id
            for each in self.fake.books.existing()
            if each.kind in self.kinds and each.facts.get("os") is not True
        }

    def capacity_counters(self, offer: Offer, zone: str = "") -> Sequence[str]:
        return [capacity_of(zone or offer.region, offer.instance.name)]

    def quota_of(self, offer: Offer) -> tuple[str, int]:
        name = offer.instance.name
        return quota(name), int(name.partition(".")[2].removesuffix("x"))

    def falls_short(self, offer: Offer) -> None:
        self.fake.short.add(offer.instance.name)

    def reclaim(self, handles: Sequence[Handle]) -> None:
        raise NotImplementedError("it sells no spot machines")

    def strangers(self, backend: Backend, offer: Offer) -> set[str]:
        """Names are all that a machine bears."""
        before = self.existing()
        for name in ("web", "db"):
            made = list(backend.create(request_for(offer, name)))
            self.machine(made).facts["name"] = {"web": "web", "db": "iabcdef0"}[name]
        list(backend.create(request_for(offer, "one", install=OTHER_INSTALL)))
        return self.existing() - before

    def reserve(self, offer: Offer, machines: int, state: str = "active") -> str:
        raise NotImplementedError("its reservations aren't used")

    def in_reservation(self, reservation: str) -> int:
        raise NotImplementedError("its reservations aren't used")

    def price(self, offer: Offer) -> float:
        disk = offer.instance.resources.disk.size_mib / 1024 if offer.elastic else 0.0
        return PRICES[offer.instance.name] + disk * DISK_MONTH / 730

    def user_data(self, handles: Sequence[Handle]) -> str:
        return str(self.machine(handles).facts["request"]["startup_script"])

    def container(self, handles: Sequence[Handle]) -> Container:
        raise NotImplementedError("it sells machines")

    def container_ends(self, handles: Sequence[Handle], how: Literal["image", "exits"]) -> None:
        raise NotImplementedError("it sells machines")

    def open_ports(self, handles: Sequence[Handle]) -> set[int]:
        raise NotImplementedError("it has no gateways")

    def disk_gib(self, handles: Sequence[Handle]) -> float:
        """Of the data disk, or else of the system's."""
        attached = {each["disk_id"] for each in self.machine(handles).facts["attachments"]}
        sizes = [each.facts["size"] for each in self.fake.books.existing("disk") if each.id in attached]
        return max(float(size.removesuffix("GiB")) for size in sizes)

    def tags(self, handle: Handle) -> dict[str, str]:
        raise NotImplementedError("it has no tags")
