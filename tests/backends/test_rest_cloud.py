"""A backend that is made of the kit: the whole suite, over a small cloud with a JSON API."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chalicelib.backends.spi import Backend
from chalicelib.domain.instants import SECOND, Micros
from tests.backends.conformance import BackendConformance
from tests.backends.conformance.provider import Provider
from tests.backends.kit.backend import CirrusBackend
from tests.backends.kit.cirrus import KEY, SECRET, Cirrus, RestFault
from tests.backends.kit.provider import CirrusProvider


class Clock:
    at: Micros = 1_795_000_000 * SECOND

    def now(self) -> Micros:
        return self.at


class TestRestCloud(BackendConformance):
    backend_name = "cirrus"

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
    def let_time_pass(self, clock: Clock) -> Callable[[float], None]:
        def pass_(seconds: float) -> None:
            clock.at += round(seconds * SECOND)

        return pass_
