"""A few of the cycles that `python -m tests.e2e.volumes` runs by the hundred."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.volumes.cycles import measured
from tests.harness import loops

pytestmark = loops.needed


def test_volumes_that_come_and_go_leave_nothing(tmp_path: Path) -> None:
    seen = measured(tmp_path / "home", 3)
    assert (seen["left"], seen["records"]) == ([], {}), seen
