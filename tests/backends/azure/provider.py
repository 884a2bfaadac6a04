"""Azure, as the conformance suite arranges it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from chalicelib.backends.azure.catalog import ADDRESS, HOURS, LEAST_DISK
from chalicelib.backends.azure.client import AzureClient
from chalicelib.backends.azure.config import AzureBackendConfig
from chalicelib.backends.spi import Backend
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from tests.backends.azure.fake import Azure
from tests.backends.azure.fake.api import CLIENT, SECRET, SUBSCRIPTION, TENANT
from tests.backends.azure.fake.shop import DISKS, RATES, SIZES, ZONES, quota, stock
from tests.backends.clock import Clock
from tests.backends.conformance.provider import Call, Fails
from tests.backends.conformance.requests import INSTALL, OTHER_INSTALL, request_for
from tests.backends.fakes.books import Resource
from tests.backends.fakes.provider import ScriptedProvider
from tests.backends.fakes.script import Answer
from tests.backends.fakes.transport import sender

REGIONS = ("westeurope", "eastus")
CREDS = {"type": "client", "client_id": CLIENT, "client_secret": SECRET}
OWNED = ("vm", "nic", "address", "disk")
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/dstack"


def config(**other: Any) -> AzureBackendConfig:
    given = {"type": "azure", "tenant_id": TENANT, "subscription_id": SUBSCRIPTION, "creds": CREDS, "regions": REGIONS}
    return AzureBackendConfig.model_validate({**given, **other})


def client(fake: Azure, clock: Clock, **other: Any) -> AzureClient:
    return AzureClient(config(**other), clock.now, send=sender(fake), env={})


def _error(status: int, code: str, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status, {"error": {"code": code, "message": "so the test wants it"}}, headers or {})


class AzureProvider(ScriptedProvider):
    fake: Azure
    secrets = (SECRET,)
    operations: ClassVar[Mapping[Call, str]] = {
        "check": "Subscriptions_list",
        "offers": "ResourceSkus_list",
        "create": "VirtualMachines_create_or_update",
        "describe": "VirtualMachines_get",
        "terminate": "VirtualMachines_delete",
        "list": "VirtualMachines_list",
    }
    errors: ClassVar[Mapping[Fails, Answer]] = {
        "InvalidCredentials": _error(401, "InvalidAuthenticationToken"),
        "MissingPermission": _error(403, "AuthorizationFailed"),
        "Throttled": _error(429, "TooManyRequests", {"retry-after": "7"}),
        "Transient": _error(500, "InternalServerError"),
    }
    kinds = OWNED
    page_token = "$skiptoken"

    def existing(self) -> set[str]:
        """Without what goes with a machine, which nobody has to end."""
        return {
            each.facts["path"] for each in self.fake.books.existing() if each.kind in OWNED and not self._is_held(each)
        }

    def _is_held(self, made: Resource) -> bool:
        kind, by = {"nic": ("vm", "machine"), "disk": ("vm", "machine"), "address": ("nic", "card")}.get(
            made.kind, ("", "")
        )
        return bool(kind) and self.fake.existing(kind, made.facts[by]) is not None

    def capacity_counters(self, offer: Offer, zone: str = "") -> Sequence[str]:
        spot, size = offer.instance.resources.spot, offer.instance.name
        numbers = [zone.rpartition("-")[2]] if zone else ["", *ZONES[offer.region]]
        return [stock(offer.region, number, size, spot=spot) for number in numbers]

    def quota_of(self, offer: Offer) -> tuple[str, int]:
        sold = SIZES[offer.instance.name]
        name = "lowPriorityCores" if offer.instance.resources.spot else sold.family
        return quota(offer.region, name), sold.vcpus

    def reserve(self, offer: Offer, machines: int, state: str = "active") -> str:
        zone = (offer.availability_zones or ("",))[-1].rpartition("-")[2]
        return self.fake.reserve(offer.region, zone, offer.instance.name, machines, state)

    def in_reservation(self, reservation: str) -> int:
        name = f"/{reservation.rpartition('/')[2]}/"
        return len([vm for vm in self.fake.books.existing("vm") if any(name in counter for counter in vm.counts)])

    def falls_short(self, offer: Offer) -> None:
        self.fake.why_not = "AllocationFailed"

    def lost(self, handles: Sequence[Handle]) -> None:
        self.fake.lose(self.machine(handles))

    def reclaim(self, handles: Sequence[Handle]) -> None:
        self.fake.evict(self.machine(handles))

    def machine(self, handles: Sequence[Handle]) -> Resource:
        path = next(handle.id for handle in handles if handle.kind == "vm")
        made = self.fake.existing("vm", path)
        assert made is not None
        return made

    def strangers(self, backend: Backend, offer: Offer) -> set[str]:
        before = self.existing()
        for name, tags in (
            ("web", {"team": "web"}),
            ("db", {"dstack-install": INSTALL, "dstack-instance": "x"}),
            ("api", {"dstack-install": INSTALL, "dstack-project": "p", "dstack-instance": "x", "dstack-epoch": "-"}),
        ):
            list(backend.create(replace(request_for(offer, name), name=name, tags=tuple(tags.items()))))
        list(backend.create(request_for(offer, "one", install=OTHER_INSTALL)))
        self.fake.with_disk(f"{GROUP}/providers/Microsoft.Compute/disks/theirs", offer.region, [], 64, tags={"a": "b"})
        return self.existing() - before

    def price(self, offer: Offer) -> float:
        sold, rate = SIZES[offer.instance.name], RATES[offer.region]
        price = (sold.spot if offer.instance.resources.spot else sold.price) * rate
        return price + DISKS["E10"] / HOURS * offer.instance.resources.disk.size_mib / 1024 / LEAST_DISK + ADDRESS

    def user_data(self, handles: Sequence[Handle]) -> str:
        system = self.machine(handles).facts["body"]["properties"]["osProfile"]
        return base64.b64decode(system["customData"]).decode()

    def open_ports(self, handles: Sequence[Handle]) -> set[int]:
        card = self.fake.existing("nic", self.machine(handles).facts["card"])
        assert card is not None
        group = self.fake.existing("security", card.facts["group"])
        assert group is not None, "the standard address would be closed, and the network open"
        rules = group.facts["body"]["properties"].get("securityRules", [])
        world = [each["properties"] for each in rules if each["properties"]["sourceAddressPrefix"] in ("*", "Internet")]
        return {int(each["destinationPortRange"]) for each in world if each["access"] == "Allow"}

    def disk_gib(self, handles: Sequence[Handle]) -> float:
        path = self.machine(handles).facts["path"]
        (disk,) = [each for each in self.fake.books.existing("disk") if each.facts["machine"] == path]
        return float(disk.facts["size"])

    def tags(self, handle: Handle) -> dict[str, str]:
        found: dict[str, str] = self.machine([handle]).facts["body"]["tags"]
        return found
