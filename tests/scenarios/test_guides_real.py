"""What the guides show is what a reader sees who has installed the program and types what they say: real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import golden, loops
from tests.harness.debian import ssh_server
from tests.scenarios.guides import PAGES, SHELL, compare, real


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_guide_shows_what_happens(path: Path, tmp_path: Path) -> None:
    if path.stem in ("volumes", "tour") and not loops.here():
        pytest.skip("volumes are folders here, as the page says of such machines; what it shows are disks")
    if "dstack attach" in path.read_text():
        ssh_server()
    with real(path, tmp_path) as stage:
        compare(path, stage, renew=golden.WRITING and path.stem in SHELL)
