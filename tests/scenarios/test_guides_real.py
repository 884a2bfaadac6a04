"""What the guides show is what a reader who types it sees: with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.guides import PAGES, REAL, check


@pytest.mark.parametrize("path", [path for path in PAGES if path.stem in REAL], ids=lambda path: path.stem)
def test_a_guide_shows_what_happens(path: Path, tmp_path: Path) -> None:
    check(path, tmp_path)
