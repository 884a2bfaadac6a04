from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.backends.crusoe.backend import CrusoeBackend
from tests.backends.clock import Clock
from tests.backends.crusoe.fake import Crusoe
from tests.backends.crusoe.provider import CONFIG, client, prices
from tests.backends.fakes.conftest import call, clock, crusoe, script

__all__ = ["backend", "call", "clock", "crusoe", "script"]


@pytest.fixture
def backend(crusoe: Crusoe, clock: Clock, tmp_path: Path) -> CrusoeBackend:
    return CrusoeBackend(CONFIG, client(crusoe, clock), clock.now, prices(tmp_path))
