"""Nebius: the whole suite over a fake that is made from its descriptors, and the planted faults."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import ClassVar

import pytest

from chalicelib.backends.nebius.backend import NebiusBackend
from chalicelib.backends.spi import Backend, CreateRequest
from chalicelib.domain.offers import Offer
from tests.backends.clock import Clock
from tests.backends.conformance import BackendConformance
from tests.backends.conformance.provider import LetPass, Provider
from tests.backends.conformance.requests import request_for
from tests.backends.conformance.suite import Suite
from tests.backends.fakes.script import Fault
from tests.backends.nebius.fake import Nebius
from tests.backends.nebius.provider import NebiusProvider, client, config
from tests.backends.planted.suite import EACH_CASE_ONCE, PlantedFaults


@cache
def all_offers() -> Sequence[Offer]:
    clock = Clock()
    return NebiusBackend(config(), client(Nebius(clock.now), clock.now), clock.now).offers()


class OnNebius(Suite):
    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def fake(self, clock: Clock) -> Nebius:
        return Nebius(clock.now)

    @pytest.fixture
    def backend(self, fake: Nebius, clock: Clock) -> Backend:
        return NebiusBackend(config(), client(fake, clock.now), clock.now)

    @pytest.fixture
    def offers(self) -> Sequence[Offer]:
        return all_offers()

    @pytest.fixture
    def request_one(self, offers: Sequence[Offer]) -> CreateRequest:
        """Of a type that can be in a GPU cluster."""
        able = [each for each in offers if "fabrics" in each.backend_data and not each.instance.resources.spot]
        return request_for(min(able, key=lambda offer: offer.price))

    @pytest.fixture
    def provider(self, fake: Nebius) -> Provider:
        return NebiusProvider(fake)

    @pytest.fixture
    def broken(self, clock: Clock) -> Backend:
        fake = Nebius(clock.now)
        fake.script.faults.append(Fault("*", NebiusProvider.errors["Transient"], times=1_000))
        return NebiusBackend(config(), client(fake, clock.now), clock.now)

    @pytest.fixture
    def let_time_pass(self, clock: Clock) -> LetPass:
        return clock.passes


class TestNebius(OnNebius, BackendConformance):
    backend_name = "nebius"


class TestFaults(PlantedFaults, OnNebius):
    sound, sound_broken = OnNebius.backend, OnNebius.broken
    pairs = EACH_CASE_ONCE
    unnoticed: ClassVar = {"IgnoresTheZones": "its offers have no zones"}
