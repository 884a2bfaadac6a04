from __future__ import annotations

import tempfile
from pathlib import Path

from tests.harness import scratch


def test_a_folder_with_room_is_taken(tmp_path: Path) -> None:
    assert scratch.folder(1, tmp_path) == tmp_path
    assert scratch.folder(1 << 30, tmp_path) == Path(tempfile.gettempdir())


def test_what_isnt_there_or_runs_nothing_is_not(tmp_path: Path) -> None:
    usual = Path(tempfile.gettempdir())
    assert scratch.folder(1, tmp_path / "nowhere") == usual
    assert scratch.folder(1, Path("/proc")) == usual, "no room, no programs"
