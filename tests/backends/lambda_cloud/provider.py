"""Lambda, as the conformance suite arranges it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from chalicelib.backends.lambda_cloud.backend import LambdaBackend
from chalicelib.backends.lambda_cloud.client import LambdaClient
from chalicelib.backends.lambda_cloud.config import LambdaBackendConfig
from chalicelib.backends.spi import Backend
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from tests.backends.clock import Clock
from tests.backends.conformance.requests import INSTALL, OTHER_INSTALL, request_for
from tests.backends.fakes.provider import ScriptedProvider
from tests.backends.fakes.script import Answer
from tests.backends.fakes.transport import sender
from tests.backends.lambda_cloud.fake import KEY, KINDS, QUOTA, LambdaApi, stock

CONFIG = LambdaBackendConfig.model_validate({"type": "lambda", "creds": {"type": "api_key", "api_key": KEY}})


def client(fake: LambdaApi, clock: Clock, burst: int = 10_000) -> LambdaClient:
    return LambdaClient(KEY, clock.now, send=sender(fake), burst=burst, launches=burst)


def limited(fake: LambdaApi, clock: Clock) -> LambdaBackend:
    """As a server calls in truth. Each has buckets of its own."""
    return LambdaBackend(CONFIG, LambdaClient(KEY, partial(clock.now), send=sender(fake)), clock.now)


def failed(status: int, code: str) -> Answer:
    return Answer(status, {"error": {"code": code, "message": "so the test wants it"}})


class LambdaProvider(ScriptedProvider):
    fake: LambdaApi
    secrets = (KEY,)
    longest_tags = tuple((f"t{n:02}-{'k' * 51}", "v" * 128) for n in range(25))
    operations: ClassVar = {
        "check": "listInstances",
        "offers": "listInstanceTypes",
        "create": "launchInstance",
        "describe": "listInstances",
        "terminate": "terminateInstance",
        "list": "listInstances",
    }
    errors: ClassVar = {
        "InvalidCredentials": failed(401, "global/invalid-api-key"),
        "MissingPermission": failed(403, "global/forbidden"),
        "Throttled": Answer(429, "Too many requests", {"content-type": "text/plain"}),
        "Transient": failed(500, "global/internal-error"),
    }
    kinds = ("vm",)

    def page_fails(self) -> None:
        """Its list has no pages."""
        self.fail("list", "Transient")

    def capacity_counters(self, offer: Offer, zone: str = "") -> Sequence[str]:
        return [stock(offer.instance.name, offer.region)]

    def quota_of(self, offer: Offer) -> tuple[str, int]:
        return QUOTA, 1

    def falls_short(self, offer: Offer) -> None:
        self.fake.short.add(offer.instance.name)

    def reclaim(self, handles: Sequence[Handle]) -> None:
        raise NotImplementedError("it has no spot machines")

    def strangers(self, backend: Backend, offer: Offer) -> set[str]:
        before = self.existing()
        for name in ("web", "db", "none"):
            made = list(backend.create(request_for(offer, name)))
            tags = {"web": {"team": "web"}, "db": {"dstack-install": INSTALL, "dstack-instance": "x"}, "none": {}}[name]
            body = self.machine(made).facts["request"]
            body["tags"], body["name"] = [{"key": key, "value": value} for key, value in tags.items()], name
        list(backend.create(request_for(offer, "one", install=OTHER_INSTALL)))
        self.fake.booked_node()
        return self.existing() - before

    def reserve(self, offer: Offer, machines: int, state: str = "active") -> str:
        raise NotImplementedError("it has no reservations")

    def in_reservation(self, reservation: str) -> int:
        raise NotImplementedError("it has no reservations")

    def price(self, offer: Offer) -> float:
        return KINDS[offer.instance.name].cents / 100

    def user_data(self, handles: Sequence[Handle]) -> str:
        return str(self.machine(handles).facts["request"]["user_data"])

    def open_ports(self, handles: Sequence[Handle]) -> set[int]:
        return {22}  # by the rules that the account begins with

    def disk_gib(self, handles: Sequence[Handle]) -> float:
        return float(KINDS[self.machine(handles).facts["type"]].disk)

    def tags(self, handle: Handle) -> dict[str, str]:
        return {each["key"]: each["value"] for each in self.machine([handle]).facts["request"]["tags"]}
