"""A project with TPUs, its backend, and requests for what it offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from chalicelib.backends.gcp.backend import GcpBackend
from chalicelib.backends.gcp.client import GcpClients
from chalicelib.backends.gcp.tpu_types import is_tpu
from chalicelib.backends.spi import CreateRequest
from chalicelib.domain.instances import Handle
from chalicelib.domain.offers import Offer
from tests.backends.clock import Clock
from tests.backends.conformance.requests import request_for
from tests.backends.conformance.suite import end_all
from tests.backends.gcp.fake import Google
from tests.backends.gcp.provider import config
from tests.backends.gcp.tpu.fake import Tpus
from tests.backends.gcp.tpu.provider import TpuProvider, clients


@cache
def usual_offers() -> Sequence[Offer]:
    return [offer for offer in TpuSite().backend.offers() if is_tpu(offer)]


class TpuSite:
    def __init__(self, kind: type[GcpBackend] = GcpBackend, base: type[GcpClients] = GcpClients, **other: Any) -> None:
        self._kind, self._base = kind, base
        self.clock = Clock()
        self.google, self.fake = Google(self.clock.now), Tpus(self.clock.now)
        self.provider = TpuProvider(self.fake)
        self.backend = self.configured(**other)

    def configured(self, **other: Any) -> GcpBackend:
        found = clients(self.google, self.fake, self._base)
        return self._kind(config(**{"tpu": True, **other}), found, self.clock.now)

    def request(
        self,
        name: str = "one",
        type: str = "v5litepod-4",
        *,
        region: str = "us-central1",
        spot: bool = False,
        zones: int = 1,
    ) -> CreateRequest:
        """In the first zones of the region that have it."""
        wanted = type, region, spot
        fits = [
            each for each in usual_offers() if (each.instance.name, each.region, each.instance.resources.spot) == wanted
        ]
        there = sorted(zone for each in fits for zone in each.availability_zones or ())
        return replace(request_for(fits[0], name), zones=tuple(there[:zones]))

    def bought(self, request: CreateRequest) -> list[Handle]:
        return list(self.backend.create(request))

    def running(self, request: CreateRequest) -> list[Handle]:
        made = self.bought(request)
        self.clock.passes(60)
        return made

    def ended(self, handles: list[Handle]) -> None:
        end_all(self.backend, self.clock.passes, handles)


@pytest.fixture
def site() -> TpuSite:
    return TpuSite()
