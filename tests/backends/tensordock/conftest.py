from __future__ import annotations

import pytest

from chalicelib.backends.tensordock.backend import TensorDockBackend
from tests.backends.clock import Clock
from tests.backends.tensordock.fake import TensorDock
from tests.backends.tensordock.provider import CONFIG, client


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fake(clock: Clock) -> TensorDock:
    return TensorDock(clock.now)


@pytest.fixture
def backend(fake: TensorDock, clock: Clock) -> TensorDockBackend:
    return TensorDockBackend(CONFIG, client(fake, clock), clock.now)
