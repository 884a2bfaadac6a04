"""Lambda: the whole suite, over a fake that is made from its published schema; and the planted faults."""

from __future__ import annotations

from typing import ClassVar

import pytest

from chalicelib.backends.lambda_cloud.backend import LambdaBackend
from chalicelib.backends.spi import Backend
from tests.backends.clock import Clock
from tests.backends.conformance import BackendConformance
from tests.backends.conformance.provider import LetPass, Provider
from tests.backends.conformance.suite import Suite
from tests.backends.fakes.script import Fault
from tests.backends.lambda_cloud.fake import LambdaApi
from tests.backends.lambda_cloud.provider import CONFIG, LambdaProvider, client
from tests.backends.planted.suite import EACH_CASE_ONCE, PlantedFaults


class OnLambda(Suite):
    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def fake(self, clock: Clock) -> LambdaApi:
        return LambdaApi(clock.now)

    @pytest.fixture
    def backend(self, fake: LambdaApi, clock: Clock) -> Backend:
        return LambdaBackend(CONFIG, client(fake, clock), clock.now)

    @pytest.fixture
    def provider(self, fake: LambdaApi) -> Provider:
        return LambdaProvider(fake)

    @pytest.fixture
    def broken(self, clock: Clock) -> Backend:
        fake = LambdaApi(clock.now)
        fake.script.faults.append(Fault("*", LambdaProvider.errors["Transient"], times=1_000))
        return LambdaBackend(CONFIG, client(fake, clock), clock.now)

    @pytest.fixture
    def let_time_pass(self, clock: Clock) -> LetPass:
        return clock.passes


class TestLambda(OnLambda, BackendConformance):
    backend_name = "lambda"


class TestFaults(PlantedFaults, OnLambda):
    sound, sound_broken = OnLambda.backend, OnLambda.broken
    pairs = EACH_CASE_ONCE
    unnoticed: ClassVar = {"IgnoresTheZones": "it has no zones"}
