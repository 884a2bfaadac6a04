"""Crusoe Cloud: the whole suite, over a fake that is made from its published schema; and the planted faults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from chalicelib.backends.crusoe.backend import CrusoeBackend
from chalicelib.backends.crusoe.launch import has_fabric
from chalicelib.backends.spi import Backend, CreateRequest
from chalicelib.domain.offers import Offer
from tests.backends.clock import Clock
from tests.backends.conformance import BackendConformance
from tests.backends.conformance.provider import LetPass, Provider
from tests.backends.conformance.requests import request_for
from tests.backends.conformance.suite import Suite
from tests.backends.crusoe.fake import Crusoe
from tests.backends.crusoe.provider import CONFIG, CrusoeProvider, client, prices
from tests.backends.fakes.script import Fault
from tests.backends.planted.suite import EACH_CASE_ONCE, PlantedFaults, needed


class OnCrusoe(Suite):
    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def fake(self, clock: Clock) -> Crusoe:
        return Crusoe(clock.now)

    @pytest.fixture
    def backend(self, fake: Crusoe, clock: Clock, tmp_path: Path) -> Backend:
        return CrusoeBackend(CONFIG, client(fake, clock), clock.now, prices(tmp_path))

    @pytest.fixture
    def provider(self, fake: Crusoe) -> Provider:
        return CrusoeProvider(fake)

    @pytest.fixture
    def broken(self, clock: Clock, tmp_path: Path) -> Backend:
        fake = Crusoe(clock.now)
        fake.script.faults.append(Fault("*", CrusoeProvider.errors["Transient"], times=1_000))
        return CrusoeBackend(CONFIG, client(fake, clock), clock.now, prices(tmp_path))

    @pytest.fixture
    def let_time_pass(self, clock: Clock) -> LetPass:
        return clock.passes

    @pytest.fixture
    def request_one(self, request: pytest.FixtureRequest, offers: Sequence[Offer]) -> CreateRequest:
        """In the cases of groups, for a type that can be in one."""
        played: Any = getattr(request.node, "callspec", None) and request.node.callspec.params.get("case")
        case = getattr(BackendConformance, f"test_{played.name}") if played else request.function
        grouped = "placement_groups" in needed(case)
        able = [offer for offer in offers if not grouped or has_fabric(offer.instance.name)]
        return request_for(min(able, key=lambda offer: offer.price))


class TestCrusoe(OnCrusoe, BackendConformance):
    backend_name = "crusoe"


class TestFaults(PlantedFaults, OnCrusoe):
    sound, sound_broken = OnCrusoe.backend, OnCrusoe.broken
    pairs = EACH_CASE_ONCE
    unnoticed: ClassVar = {"IgnoresTheZones": "its offers have no zones"}
