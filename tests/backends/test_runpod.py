"""Runpod: the whole suite, over a fake that is made from its published schema; and the planted faults."""

from __future__ import annotations

from typing import ClassVar

import pytest

from chalicelib.backends.runpod.backend import RunpodBackend
from chalicelib.backends.spi import Backend
from tests.backends.clock import Clock
from tests.backends.conformance import BackendConformance
from tests.backends.conformance.provider import LetPass, Provider
from tests.backends.conformance.suite import Suite
from tests.backends.fakes.script import Fault
from tests.backends.planted.suite import EACH_CASE_ONCE, PlantedFaults
from tests.backends.runpod.fake import Runpod
from tests.backends.runpod.provider import CONFIG, RunpodProvider, client


class OnRunpod(Suite):
    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def fake(self, clock: Clock) -> Runpod:
        return Runpod(clock.now)

    @pytest.fixture
    def backend(self, fake: Runpod, clock: Clock) -> Backend:
        return RunpodBackend(CONFIG, client(fake, clock), clock.now)

    @pytest.fixture
    def provider(self, fake: Runpod) -> Provider:
        return RunpodProvider(fake)

    @pytest.fixture
    def broken(self, clock: Clock) -> Backend:
        fake = Runpod(clock.now)
        fake.script.faults.append(Fault("*", RunpodProvider.errors["Transient"], times=1_000))
        return RunpodBackend(CONFIG, client(fake, clock), clock.now)

    @pytest.fixture
    def let_time_pass(self, clock: Clock) -> LetPass:
        return clock.passes


class TestRunpod(OnRunpod, BackendConformance):
    backend_name = "runpod"


class TestFaults(PlantedFaults, OnRunpod):
    sound, sound_broken = OnRunpod.backend, OnRunpod.broken
    pairs = EACH_CASE_ONCE
    unnoticed: ClassVar = {"IgnoresTheZones": "its offers have no zones"}
