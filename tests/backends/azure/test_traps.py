"""What Azure's users have met: each trap is one that the fake sets, and the backend doesn't walk into."""

from __future__ import annotations

import pytest

from tests.backends.azure.account import Account
from tests.backends.azure.traps import CHECKS


@pytest.mark.parametrize("check", CHECKS)
def test_trap(check: str) -> None:
    CHECKS[check](Account())
