from __future__ import annotations

import pytest

from chalicelib.backends.lambda_cloud.backend import LambdaBackend
from tests.backends.clock import Clock
from tests.backends.lambda_cloud.fake import LambdaApi
from tests.backends.lambda_cloud.provider import CONFIG, client


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fake(clock: Clock) -> LambdaApi:
    return LambdaApi(clock.now)


@pytest.fixture
def backend(fake: LambdaApi, clock: Clock) -> LambdaBackend:
    return LambdaBackend(CONFIG, client(fake, clock), clock.now)
