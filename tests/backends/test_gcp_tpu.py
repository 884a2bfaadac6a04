"""Google's TPUs: the whole suite, for slices of one host, through the backend that machines are bought from, too."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest

from chalicelib.backends.gcp.backend import GcpBackend
from chalicelib.backends.gcp.facts import FACTS
from chalicelib.backends.gcp.tpu_types import is_tpu
from chalicelib.backends.spi import Backend, CreateRequest, facts_of
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.offers import Offer
from tests.backends.clock import Clock
from tests.backends.conformance import BackendConformance
from tests.backends.conformance.provider import LetPass, Provider
from tests.backends.conformance.requests import request_for
from tests.backends.conformance.suite import Suite
from tests.backends.fakes.script import Fault
from tests.backends.gcp.fake import Google
from tests.backends.gcp.provider import GcpProvider, config
from tests.backends.gcp.tpu.fake import Tpus
from tests.backends.gcp.tpu.provider import TpuProvider, clients
from tests.backends.planted.suite import EACH_CASE_ONCE, PlantedFaults


class OfTpus(GcpBackend):
    """With the facts that hold for TPUs."""

    facts = FACTS.with_(reservations=False, gateways=False)


def made(clock: Clock, tpus: Tpus) -> GcpBackend:
    return OfTpus(config(tpu=True), clients(Google(clock.now), tpus), clock.now)


@cache
def usual_offers() -> Sequence[Offer]:
    clock = Clock()
    return [offer for offer in made(clock, Tpus(clock.now)).offers() if is_tpu(offer)]


class OnTpus(Suite):
    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def fake(self, clock: Clock) -> Tpus:
        return Tpus(clock.now)

    @pytest.fixture
    def backend(self, fake: Tpus, clock: Clock) -> Backend:
        return made(clock, fake)

    @pytest.fixture
    def facts(self, backend: Backend) -> BackendFacts:
        return facts_of(backend).with_(volumes=False, placement_groups=False)

    @pytest.fixture
    def provider(self, fake: Tpus) -> Provider:
        return TpuProvider(fake)  # type: ignore[return-value]  # without what only others have

    @pytest.fixture
    def broken(self, clock: Clock) -> Backend:
        fake, tpus = Google(clock.now), Tpus(clock.now)
        fake.script.faults.append(Fault("*", GcpProvider.errors["Transient"], times=1_000))
        tpus.script.faults.append(Fault("*", TpuProvider.errors["Transient"], times=1_000))
        return OfTpus(config(tpu=True), clients(fake, tpus), clock.now)

    @pytest.fixture
    def offers(self) -> Sequence[Offer]:
        return usual_offers()

    @pytest.fixture
    def request_one(self, offers: Sequence[Offer]) -> CreateRequest:
        """Of a type that several regions have, for any of its zones in one of them."""
        wanted = ("v5litepod-1", "us-central1", False)
        fits = [each for each in offers if (each.instance.name, each.region, each.instance.resources.spot) == wanted]
        zones = sorted(zone for each in fits for zone in each.availability_zones or ())
        return request_for(fits[0].with_(availability_zones=tuple(zones)))

    @pytest.fixture
    def let_time_pass(self, clock: Clock) -> LetPass:
        return clock.passes


class TestTpus(OnTpus, BackendConformance):
    backend_name = "gcp"


class TestFaults(PlantedFaults, OnTpus):
    sound, sound_broken = OnTpus.backend, OnTpus.broken
    pairs = EACH_CASE_ONCE
