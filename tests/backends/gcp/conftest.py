"""A project of Google's, its backend, and requests for what it offers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

import pytest

from chalicelib.backends.gcp.backend import GcpBackend
from chalicelib.backends.gcp.client import GcpClients
from chalicelib.backends.gcp.config import GCPBackendConfig
from chalicelib.backends.price_file import OfflinePrices
from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.offers import Offer
from tests.backends.clock import Clock
from tests.backends.conformance.requests import request_for
from tests.backends.fakes.script import Fault
from tests.backends.gcp.fake import PROJECT, Google
from tests.backends.gcp.operations import refusal
from tests.backends.gcp.provider import GcpProvider, clients_of, config


class Site:
    def __init__(self, kind: type[GcpBackend] = GcpBackend, clients: type[GcpClients] = GcpClients) -> None:
        self._kind, self._clients = kind, clients
        self.clock = Clock()
        self.fake = Google(self.clock.now)
        self.provider = GcpProvider(self.fake)
        self.config = config()
        self.backend = self.new(self.config)

    def new(self, config: GCPBackendConfig, prices: OfflinePrices | None = None) -> GcpBackend:
        return self._kind(config, self.clients(config.project_id), self.clock.now, prices)

    def clients(self, project: str = PROJECT) -> GcpClients:
        return clients_of(self.fake, project, self._clients)

    def configured(self, **other: Any) -> GCPBackendConfig:
        return config(**other)

    def refuses(self, operation: str, status: int, reason: str, text: str, **fault: Any) -> None:
        """The next calls fail so."""
        self.fake.script.faults.append(Fault(operation, refusal(status, reason, text).answer, **fault))

    @cached_property
    def all(self) -> Sequence[Offer]:
        return usual_offers()

    def offers(self, type: str, region: str = "us-central1") -> list[Offer]:
        return [each for each in self.all if (each.instance.name, each.region) == (type, region)]

    def request(
        self, name: str = "one", *, type: str = "n2-standard-2", spot: bool = False, cards: int | None = None
    ) -> CreateRequest:
        fits = [each for each in self.offers(type) if each.instance.resources.spot == spot]
        return request_for(next(each for each in fits if cards in (None, len(each.instance.resources.gpus))), name)


@cache
def usual_offers() -> Sequence[Offer]:
    clock = Clock()
    return GcpBackend(config(), clients_of(Google(clock.now)), clock.now).offers()


@pytest.fixture
def site() -> Site:
    return Site()
