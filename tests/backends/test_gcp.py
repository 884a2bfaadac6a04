"""Google's cloud: the whole suite, over a fake that is made from its published schema; and the planted faults."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest

from chalicelib.backends.gcp.backend import GcpBackend
from chalicelib.backends.spi import Backend, CreateRequest
from chalicelib.domain.offers import Offer
from tests.backends.clock import Clock
from tests.backends.conformance import BackendConformance
from tests.backends.conformance.provider import LetPass, Provider
from tests.backends.conformance.requests import request_for
from tests.backends.conformance.suite import Suite
from tests.backends.fakes.script import Fault
from tests.backends.gcp.fake import Google
from tests.backends.gcp.provider import GcpProvider, clients_of, config
from tests.backends.planted.suite import EACH_CASE_ONCE, PlantedFaults


@cache
def usual_offers() -> Sequence[Offer]:
    fake = Google(Clock().now)
    return GcpBackend(config(), clients_of(fake), fake.now).offers()


class OnGoogle(Suite):
    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def fake(self, clock: Clock) -> Google:
        return Google(clock.now)

    @pytest.fixture
    def backend(self, fake: Google, clock: Clock) -> Backend:
        return GcpBackend(config(), clients_of(fake), clock.now)

    @pytest.fixture
    def provider(self, fake: Google) -> Provider:
        return GcpProvider(fake)

    @pytest.fixture
    def broken(self, clock: Clock) -> Backend:
        fake = Google(clock.now)
        fake.script.faults.append(Fault("*", GcpProvider.errors["Transient"], times=1_000))
        return GcpBackend(config(), clients_of(fake), clock.now)

    @pytest.fixture
    def offers(self) -> Sequence[Offer]:
        return usual_offers()

    @pytest.fixture
    def request_one(self, offers: Sequence[Offer]) -> CreateRequest:
        """Of a type that can be in a placement group, which the cheapest can't."""
        return request_for(next(each for each in offers if each.instance.name == "n2-standard-2"))

    @pytest.fixture
    def let_time_pass(self, clock: Clock) -> LetPass:
        return clock.passes


class TestGoogle(OnGoogle, BackendConformance):
    backend_name = "gcp"


class TestFaults(PlantedFaults, OnGoogle):
    sound, sound_broken = OnGoogle.backend, OnGoogle.broken
    pairs = EACH_CASE_ONCE
