"""The emulated account that a test of one part of the backend calls, on a clock of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends.aws.account import Account
from tests.backends.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def account(clock: Clock) -> Iterator[Account]:
    account = Account(clock.now)
    yield account
    account.close()
