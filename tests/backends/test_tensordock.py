"""TensorDock: the whole suite, over a fake; and the planted faults."""

from __future__ import annotations

from typing import ClassVar

import pytest

from chalicelib.backends.spi import Backend
from chalicelib.backends.tensordock.backend import TensorDockBackend
from tests.backends.clock import Clock
from tests.backends.conformance import BackendConformance
from tests.backends.conformance.provider import LetPass, Provider
from tests.backends.conformance.suite import Suite
from tests.backends.fakes.script import Fault
from tests.backends.planted.suite import EACH_CASE_ONCE, PlantedFaults
from tests.backends.tensordock.fake import TensorDock
from tests.backends.tensordock.provider import CONFIG, TensorDockProvider, client


class OnTensorDock(Suite):
    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def fake(self, clock: Clock) -> TensorDock:
        return TensorDock(clock.now)

    @pytest.fixture
    def backend(self, fake: TensorDock, clock: Clock) -> Backend:
        return TensorDockBackend(CONFIG, client(fake, clock), clock.now)

    @pytest.fixture
    def provider(self, fake: TensorDock) -> Provider:
        return TensorDockProvider(fake)

    @pytest.fixture
    def broken(self, clock: Clock) -> Backend:
        fake = TensorDock(clock.now)
        fake.script.faults.append(Fault("*", TensorDockProvider.errors["Transient"], times=1_000))
        return TensorDockBackend(CONFIG, client(fake, clock), clock.now)

    @pytest.fixture
    def let_time_pass(self, clock: Clock) -> LetPass:
        return clock.passes


class TestTensorDock(OnTensorDock, BackendConformance):
    backend_name = "tensordock"


class TestFaults(PlantedFaults, OnTensorDock):
    sound, sound_broken = OnTensorDock.backend, OnTensorDock.broken
    pairs = EACH_CASE_ONCE
    unnoticed: ClassVar = {"IgnoresTheZones": "it has no zones"}
