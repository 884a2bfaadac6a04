from __future__ import annotations

import pytest

from chalicelib.backends.nebius.backend import NebiusBackend
from tests.backends.clock import Clock
from tests.backends.nebius.fake import Nebius
from tests.backends.nebius.provider import client, config


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fake(clock: Clock) -> Nebius:
    return Nebius(clock.now)


@pytest.fixture
def backend(fake: Nebius, clock: Clock) -> NebiusBackend:
    return NebiusBackend(config(), client(fake, clock.now), clock.now)
