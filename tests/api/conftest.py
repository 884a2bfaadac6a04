from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig.at(tmp_path)
    yield made
    made.world.plane.store.close()
