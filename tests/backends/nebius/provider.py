"""Nebius, as the conformance suite arranges it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from chalicelib.backends.kit.rpc import CallFailed
from chalicelib.backends.nebius.catalog import LEAST_DISK
from chalicelib.backends.nebius.client import NebiusClient
from chalicelib.backends.nebius.config import NebiusBackendConfig
from chalicelib.backends.spi import Backend, Container
from chalicelib.domain.instances import Handle
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.offers import Offer
from tests.backends.conformance.provider import Call, Fails
from tests.backends.conformance.requests import INSTALL, OTHER_INSTALL, request_for
from tests.backends.fakes.procedures import Procedures, RefusedCall
from tests.backends.fakes.provider import ScriptedProvider
from tests.backends.fakes.script import Answer, Fault
from tests.backends.nebius.compute import refusal
from tests.backends.nebius.fake import ACCOUNT, KEY_ID, Nebius, private_key
from tests.backends.nebius.shop import DISK_MONTH, HOME, HOURS, PLATFORMS, price, quota, stock

INSTANCES = "nebius.compute.v1.InstanceService"


def config(**other: Any) -> NebiusBackendConfig:
    creds = {
        "type": "service_account",
        "service_account_id": ACCOUNT,
        "public_key_id": KEY_ID,
        "private_key_content": private_key(),
    }
    return NebiusBackendConfig.model_validate({"type": "nebius", "creds": creds, **other})


class InProcess:
    """The wire of a client, to a fake in the same process."""

    def __init__(self, fake: Nebius) -> None:
        self._procedures = Procedures(fake)
        self.hosts: dict[str, str] = {}  # by service

    def __call__(
        self, host: str, path: str, content: bytes, metadata: Sequence[tuple[str, str]], deadline: float
    ) -> bytes:
        assert 0 < deadline <= 30
        self.hosts[path.split("/")[1]] = host
        try:
            return self._procedures.answered(path, content, dict(metadata))
        except RefusedCall as refused:
            raise CallFailed(refused.code, refused.message, refused.details) from None

    def close(self) -> None:
        """It has no connections."""


def client(fake: Nebius, now: Callable[[], Micros]) -> NebiusClient:
    return NebiusClient(config().creds, now, InProcess(fake))


def answer(code: str, kind: str = "", **detail: Any) -> Answer:
    return refusal(code, "so the test wants it", kind, **detail).answer


class NebiusProvider(ScriptedProvider):
    fake: Nebius
    operations: ClassVar[Mapping[Call, str]] = {
        "check": "nebius.iam.v1.TenantService.List",
        "offers": "nebius.compute.v1.PlatformService.List",
        "create": f"{INSTANCES}.Create",
        "describe": f"{INSTANCES}.BatchGet",
        "terminate": f"{INSTANCES}.Get",
        "list": f"{INSTANCES}.List",
    }
    errors: ClassVar[Mapping[Fails, Answer]] = {
        "InvalidCredentials": answer("UNAUTHENTICATED"),
        "MissingPermission": answer("PERMISSION_DENIED", "permission_denied"),
        "Throttled": answer("RESOURCE_EXHAUSTED", "too_many_requests"),
        "Transient": answer("INTERNAL", "internal_error"),
    }

    @property
    def secrets(self) -> Sequence[str]:  # type: ignore[override]
        return (private_key(), *self.fake.tokens)

    def existing(self) -> set[str]:
        """Without the disks that go with a machine, which nobody has to end."""
        alive = {each.id for each in self.fake.books.existing("vm")}
        disks = {each.id for each in self.fake.books.existing("disk") if each.facts["manager"] not in alive}
        return alive | disks | {each.id for each in self.fake.books.existing("cluster")}

    def capacity_counters(self, offer: Offer, zone: str = "") -> Sequence[str]:
        platform, _, preset = offer.instance.name.partition(" ")
        return [stock(offer.region, platform, preset, spot=offer.instance.resources.spot)]

    def quota_of(self, offer: Offer) -> tuple[str, int]:
        platform, _, preset = offer.instance.name.partition(" ")
        cpus, _, gpus = PLATFORMS[platform].presets[preset]
        return quota(offer.region, PLATFORMS[platform].quota), gpus or cpus

    def page_fails(self) -> None:
        further = Fault(self.operations["list"], self.errors["Transient"], fits=lambda call: "page_token" in call.body)
        self._fault(further)

    def region_down(self, region: str) -> None:
        self._fault(
            Fault(
                self.operations["list"],
                self.errors["Transient"],
                fits=lambda call: call.body["parent_id"] == HOME[region],
            )
        )

    def zone_is_full(self, offer: Offer, zone: str, *, full: bool = True) -> None:
        """It has no zones."""

    def lost(self, handles: Sequence[Handle]) -> None:
        """With its disk."""
        machine = self.machine(handles)
        for each in (machine, *self.fake.books.existing("disk")):
            if machine.id in (each.id, each.facts.get("manager")):
                each.goes(self.fake.now(), (0, None))

    def falls_short(self, offer: Offer) -> None:
        self.fake.short.add(offer.instance.name)

    def reclaim(self, handles: Sequence[Handle]) -> None:
        """The machine alone gets a signal, a minute before."""
        self.machine(handles).goes(self.fake.now(), (0, "STOPPING"), (60 * SECOND, "STOPPED"))

    def strangers(self, backend: Backend, offer: Offer) -> set[str]:
        before = self.existing()
        wrong = {"web": {"team": "web"}, "db": {"dstack-install": INSTALL, "dstack-instance": "x"}}
        for name, labels in wrong.items():
            made = list(backend.create(request_for(offer, name)))
            for each in (self.machine(made), *self.fake.books.existing("disk")):
                if each.id == made[0].id or each.facts.get("manager") == made[0].id:
                    each.facts |= {"labels": labels, "name": f"{name}-1"}
        list(backend.create(request_for(offer, "one", install=OTHER_INSTALL)))
        return self.existing() - before

    def reserve(self, offer: Offer, machines: int, state: str = "active") -> str:
        states = {"active": "ACTIVE", "scheduled": "ALLOCATING", "expired": "INACTIVE", "cancelled": "SHUTTING"}
        platform, _, preset = offer.instance.name.partition(" ")
        gpus = PLATFORMS[platform].presets[preset][2]
        return self.fake.reserve(offer.region, platform, machines * gpus, f"STATE_{states[state]}")

    def in_reservation(self, reservation: str) -> int:
        vms = self.fake.books.existing("vm")
        return len([each for each in vms if f"reservation/{reservation}" in each.counts])

    def price(self, offer: Offer) -> float:
        platform, _, preset = offer.instance.name.partition(" ")
        disk = offer.instance.resources.disk.size_mib / 1024 * DISK_MONTH / HOURS
        assert disk >= LEAST_DISK * DISK_MONTH / HOURS
        return price(PLATFORMS[platform], preset, spot=offer.instance.resources.spot) + disk

    def user_data(self, handles: Sequence[Handle]) -> str:
        return str(self.machine(handles).facts["spec"]["cloud_init_user_data"])

    def open_ports(self, handles: Sequence[Handle]) -> set[int]:
        return self.fake.open_to_the_world(self.machine(handles))

    def disk_gib(self, handles: Sequence[Handle]) -> float:
        return float(self.machine(handles).facts["spec"]["boot_disk"]["managed_disk"]["spec"]["size_gibibytes"])

    def tags(self, handle: Handle) -> dict[str, str]:
        (found,) = [each for each in self.fake.books.existing() if each.id == handle.id]
        return dict(found.facts["labels"])

    def container(self, handles: Sequence[Handle]) -> Container:
        raise NotImplementedError("it has no containers")

    def container_ends(self, handles: Sequence[Handle], how: Literal["image", "exits"]) -> None:
        raise NotImplementedError("it has no containers")
