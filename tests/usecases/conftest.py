from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.usecases.planes import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World.at(tmp_path)
    yield made
    made.plane.store.close()
