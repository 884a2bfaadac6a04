from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.world.plane import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World.in_folder(tmp_path)
    yield made
    made.plane.store.close()
