"""Azure: the whole suite, over a fake that is made from the models of its SDK; and the planted faults."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest

from chalicelib.backends.azure.backend import AzureBackend
from chalicelib.backends.spi import Backend
from chalicelib.domain.offers import Offer
from tests.backends.azure.fake import Azure
from tests.backends.azure.provider import AzureProvider, client, config
from tests.backends.clock import Clock
from tests.backends.conformance import BackendConformance
from tests.backends.conformance.provider import LetPass, Provider
from tests.backends.conformance.suite import Suite
from tests.backends.fakes.script import Fault
from tests.backends.planted.suite import EACH_CASE_ONCE, PlantedFaults


@cache
def usual_offers() -> Sequence[Offer]:
    clock = Clock()
    return AzureBackend(config(), client(Azure(clock.now), clock), clock.now).offers()


class OnAzure(Suite):
    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def fake(self, clock: Clock) -> Azure:
        return Azure(clock.now)

    @pytest.fixture
    def backend(self, fake: Azure, clock: Clock) -> Backend:
        return AzureBackend(config(), client(fake, clock), clock.now)

    @pytest.fixture
    def provider(self, fake: Azure) -> Provider:
        return AzureProvider(fake)

    @pytest.fixture
    def offers(self) -> Sequence[Offer]:
        return usual_offers()

    @pytest.fixture
    def broken(self, clock: Clock) -> Backend:
        fake = Azure(clock.now)
        fake.script.faults.append(Fault("*", AzureProvider.errors["Transient"], times=1_000))
        return AzureBackend(config(), client(fake, clock), clock.now)

    @pytest.fixture
    def let_time_pass(self, clock: Clock) -> LetPass:
        return clock.passes


class TestAzure(OnAzure, BackendConformance):
    backend_name = "azure"


class TestFaults(PlantedFaults, OnAzure):
    sound, sound_broken = OnAzure.backend, OnAzure.broken
    pairs = EACH_CASE_ONCE
