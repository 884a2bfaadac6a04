"""How often an account of Lambda may be called."""

from __future__ import annotations

import pytest

from chalicelib.backends.lambda_cloud.backend import LambdaBackend
from chalicelib.backends.lambda_cloud.client import BURST, RATE, LambdaClient
from chalicelib.errors import Throttled
from tests.backends.clock import Clock
from tests.backends.fakes.transport import sender
from tests.backends.lambda_cloud.fake import KEY, LambdaApi
from tests.backends.lambda_cloud.provider import CONFIG


def test_a_check_is_a_call_of_its_account(fake: LambdaApi, clock: Clock) -> None:
    used, checked = (LambdaBackend(CONFIG, LambdaClient(KEY, clock.now, send=sender(fake)), clock.now) for _ in "12")
    for _ in range(BURST):
        used.check()
    with pytest.raises(Throttled, match="no more calls of this account"):
        checked.check()
    assert len(fake.calls) == BURST
    clock.passes(1 / RATE)
    checked.check()
