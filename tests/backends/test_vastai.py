"""Vast.ai: the whole suite, over a fake that is made from its published schema; and the planted faults."""

from __future__ import annotations

from typing import ClassVar

import pytest

from chalicelib.backends.spi import Backend
from chalicelib.backends.vastai.backend import VastAIBackend
from tests.backends.clock import Clock
from tests.backends.conformance import BackendConformance
from tests.backends.conformance.provider import LetPass, Provider
from tests.backends.conformance.suite import Suite
from tests.backends.fakes.script import Fault
from tests.backends.planted.suite import EACH_CASE_ONCE, PlantedFaults
from tests.backends.vastai.fake import Vast
from tests.backends.vastai.provider import CONFIG, VastAIProvider, client, many


class OnVastAI(Suite):
    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def fake(self, clock: Clock) -> Vast:
        return many(Vast(clock.now))

    @pytest.fixture
    def backend(self, fake: Vast, clock: Clock) -> Backend:
        return VastAIBackend(CONFIG, client(fake, clock), clock.now)

    @pytest.fixture
    def provider(self, fake: Vast) -> Provider:
        return VastAIProvider(fake)

    @pytest.fixture
    def broken(self, clock: Clock) -> Backend:
        fake = Vast(clock.now)
        fake.script.faults.append(Fault("*", VastAIProvider.errors["Transient"], times=1_000))
        return VastAIBackend(CONFIG, client(fake, clock), clock.now)

    @pytest.fixture
    def let_time_pass(self, clock: Clock) -> LetPass:
        return clock.passes


class TestVastAI(OnVastAI, BackendConformance):
    backend_name = "vastai"


class TestFaults(PlantedFaults, OnVastAI):
    sound, sound_broken = OnVastAI.backend, OnVastAI.broken
    pairs = EACH_CASE_ONCE
    unnoticed: ClassVar = {"IgnoresTheZones": "its offers have no zones"}
