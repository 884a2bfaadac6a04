"""Google's fake as the conformance suite arranges it, and clients of it without a network."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from chalicelib.backends.gcp.client import GcpClients
from chalicelib.backends.gcp.config import GCPBackendConfig
from chalicelib.backends.spi import Backend
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from tests.backends.conformance.provider import Call, Fails
from tests.backends.conformance.requests import OTHER_INSTALL, request_for
from tests.backends.fakes.books import Resource
from tests.backends.fakes.provider import ScriptedProvider
from tests.backends.fakes.script import Answer, Fault
from tests.backends.fakes.script import Call as FakeCall
from tests.backends.fakes.transport import InProcess, sender
from tests.backends.gcp import shop
from tests.backends.gcp.fake import PROJECT, TOKEN, Google
from tests.backends.gcp.instances import CARDS, CPUS, EXHAUSTED, stock
from tests.backends.gcp.operations import refusal

SECRET = "never-shown/0123456789abcdefghij"  # the key, which is no key: calls are made with a token
KEY = {"type": "service_account", "private_key": SECRET, "private_key_id": "0123", "client_email": "dstack@example.com"}


def config(**other: Any) -> GCPBackendConfig:
    creds = {"type": "service_account", "data": json.dumps(KEY)}
    given = {"type": "gcp", "project_id": PROJECT, "creds": creds, "vpc_name": "training", **other}
    return GCPBackendConfig.model_validate(given)


class _Line(InProcess):
    """Leads to the fake of the test that is on."""

    def leads_to(self, fake: Google) -> None:
        self._fake = fake


_LINES: dict[str, tuple[Any, _Line]] = {}  # the library's clients, which outlive tests


class Led:
    """The library's own clients, on a session that has the fake at its end."""

    fake: Google
    _new_client: Any

    def _client(self, service: str) -> Any:
        if service not in _LINES:
            line, client = _Line(self.fake), self._new_client(service)
            client.transport._session.mount("https://", line)
            _LINES[service] = client, line
        client, line = _LINES[service]
        line.leads_to(self.fake)
        return client


def clients_of(fake: Google, project: str = PROJECT, base: type[GcpClients] = GcpClients) -> GcpClients:
    kind: Any = type("LedClients", (Led, base), {"fake": fake})
    made: GcpClients = kind(None, project, now=fake.now, login=_login, send=sender(fake))
    return made


def _login() -> Any:
    from google.oauth2.credentials import Credentials

    return Credentials(TOKEN)  # type: ignore[no-untyped-call]


def _answer(status: int, reason: str, message: str = "so the test wants it") -> Answer:
    return refusal(status, reason, message).answer


class GcpProvider(ScriptedProvider):
    fake: Google
    secrets = (TOKEN, SECRET)
    operations: ClassVar[Mapping[Call, str]] = {
        "check": "projects.get",
        "offers": "machineTypes.aggregatedList",
        "create": "instances.insert",
        "describe": "instances.get",
        "terminate": "instances.delete",
        "list": "instances.aggregatedList",
    }
    errors: ClassVar[Mapping[Fails, Answer]] = {
        "InvalidCredentials": _answer(400, "authError"),
        "MissingPermission": _answer(403, "forbidden"),
        "Throttled": _answer(403, "rateLimitExceeded"),
        "Transient": _answer(503, "backendError"),
    }
    kinds = ("vm", "disk")
    longest_tags = tuple((f"t{n:02}-{'k' * 59}", "v" * 63) for n in range(25))
    page_token = "pageToken"

    def existing(self) -> set[str]:
        """By name, as handles have it; a second one of a name in another zone with its zone. Disks that go with their
        machine aren't counted."""
        alive = [each for each in self.fake.books.existing() if each.kind == "vm"]
        numbers = {each.number for each in alive}
        free = [each for each in self.fake.books.existing("disk") if numbers.isdisjoint(each.facts["on"])]
        found: set[str] = set()
        for each in (*alive, *free):
            name = str(each.facts["name"])
            found.add(f"{each.facts['zone']}/{name}" if name in found else name)
        return found

    def machine(self, handles: Sequence[Handle]) -> Resource:
        at = {(each.data.get("zone"), each.id) for each in handles if each.kind == "vm"}
        return next(each for each in self.fake.books.existing("vm") if (each.facts["zone"], each.facts["name"]) in at)

    def fail(self, call: Call, error: Fails, *, when: Literal["before", "after"] = "before", times: int = 1) -> None:
        """An answer that is lost is that of a launch that has room."""
        fits = self._has_room if (call, when) == ("create", "after") else lambda _: True
        self._fault(Fault(self.operations[call], self.errors[error], when, times, fits=fits))

    def _has_room(self, call: FakeCall) -> bool:
        counter = stock(call.path["zone"], call.body["machineType"].rpartition("/")[2])
        return self.fake.books.over({counter: 1}, self.fake.script.limits) is None

    def lost(self, handles: Sequence[Handle]) -> None:
        self.fake.goes(self.machine(handles), (0, None))

    def capacity_counters(self, offer: Offer, zone: str = "") -> Sequence[str]:
        zones = [zone] if zone else offer.availability_zones or ()
        return [stock(each, offer.instance.name) for each in zones]

    def quota_of(self, offer: Offer) -> tuple[str, int]:
        kind = shop.TYPES[offer.instance.name]
        if kind.card in CARDS:
            return f"NVIDIA_{CARDS[kind.card]}_GPUS {offer.region}", kind.cards
        return f"{CPUS[kind.name.partition('-')[0]]} {offer.region}", kind.cpus

    def falls_short(self, offer: Offer) -> None:
        self.fake.short[offer.instance.name] = EXHAUSTED

    def reclaim(self, handles: Sequence[Handle]) -> None:
        self.fake.preempted(self.machine(handles))

    def reserve(self, offer: Offer, machines: int, state: str = "active") -> str:
        return self.fake.reserve((offer.availability_zones or ())[-1], offer.instance.name, machines, state)

    def in_reservation(self, reservation: str) -> int:
        return self.fake.in_use(reservation)

    def strangers(self, backend: Backend, offer: Offer) -> set[str]:
        before = self.existing()
        for name, labels in (
            ("web", {}),
            ("half", {"dstack-install": "x", "dstack-instance": "y", "dstack-epoch": "-"}),
        ):
            made = list(backend.create(request_for(offer, name)))
            machine = self.machine(made)
            machine.facts["name"] = name
            machine.facts["body"] = {**machine.facts["body"], "name": name, "labels": labels}
        list(backend.create(request_for(offer, "one", install=OTHER_INSTALL)))
        return self.existing() - before

    def price(self, offer: Offer) -> float:
        t4s = len(offer.instance.resources.gpus) if offer.instance.name.startswith("n1-") else 0
        spot = offer.instance.resources.spot
        return shop.price(offer.instance.name, offer.region, spot=spot, t4s=t4s)

    def user_data(self, handles: Sequence[Handle]) -> str:
        items = self.machine(handles).facts["body"]["metadata"]["items"]
        return str(next(each["value"] for each in items if each["key"] == "user-data"))

    def open_ports(self, handles: Sequence[Handle]) -> set[int]:
        """By the rules that are for its tags, or for every machine of its network."""
        body, found = self.machine(handles).facts["body"], set[int]()
        network = body["networkInterfaces"][0]["subnetwork"].rpartition("/")[2]
        for each in self.fake.books.existing("firewall"):
            rule = each.facts["body"]
            meant = not rule.get("targetTags") or not set(rule["targetTags"]).isdisjoint(body["tags"]["items"])
            if meant and rule["network"].rpartition("/")[2] == network and "0.0.0.0/0" in rule.get("sourceRanges", ()):
                found |= {int(port) for allowed in rule["allowed"] for port in allowed.get("ports", ["-1"])}
        return found

    def disk_gib(self, handles: Sequence[Handle]) -> float:
        return float(self.machine(handles).facts["body"]["disks"][0]["initializeParams"]["diskSizeGb"])

    def tags(self, handle: Handle) -> dict[str, str]:
        labels = self.machine([handle]).facts["body"]["labels"]
        assert isinstance(labels, dict)
        return labels
