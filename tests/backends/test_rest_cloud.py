"""A backend that is made of the kit: the whole suite, over a small cloud with a JSON API; and the planted faults."""

from __future__ import annotations

from typing import ClassVar

import pytest

from chalicelib.backends.spi import Backend
from tests.backends.clock import Clock
from tests.backends.conformance import BackendConformance
from tests.backends.conformance.provider import LetPass, Provider
from tests.backends.conformance.suite import Suite
from tests.backends.kit.backend import CirrusBackend
from tests.backends.kit.cirrus import KEY, SECRET, Cirrus, RestFault
from tests.backends.kit.provider import CirrusProvider
from tests.backends.planted.suite import PlantedFaults


class RestCloud(Suite):
    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def cloud(self, clock: Clock) -> Cirrus:
        return Cirrus(clock.now)

    @pytest.fixture
    def backend(self, cloud: Cirrus, clock: Clock) -> Backend:
        return CirrusBackend(KEY, SECRET, clock.now, send=cloud.send)

    @pytest.fixture
    def provider(self, cloud: Cirrus) -> Provider:
        return CirrusProvider(cloud)

    @pytest.fixture
    def broken(self, clock: Clock) -> Backend:
        cloud = Cirrus(clock.now)
        cloud.faults.append(RestFault("", 500, "internal", times=1000))
        return CirrusBackend(KEY, SECRET, clock.now, send=cloud.send)

    @pytest.fixture
    def let_time_pass(self, clock: Clock) -> LetPass:
        return clock.passes


class TestRestCloud(RestCloud, BackendConformance):
    backend_name = "cirrus"


class TestRestCloudFaults(PlantedFaults, RestCloud):
    sound, sound_broken = RestCloud.backend, RestCloud.broken
    unnoticed: ClassVar = {"IgnoresTheZones": "it has no zones"}
