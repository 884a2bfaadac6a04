from __future__ import annotations

import pytest

from chalicelib.backends.runpod.backend import RunpodBackend
from tests.backends.clock import Clock
from tests.backends.runpod.fake import Runpod
from tests.backends.runpod.provider import CONFIG, client


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fake(clock: Clock) -> Runpod:
    return Runpod(clock.now)


@pytest.fixture
def backend(fake: Runpod, clock: Clock) -> RunpodBackend:
    return RunpodBackend(CONFIG, client(fake, clock), clock.now)
