"""Files that are replaced as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.agent.tasks import take_lock, write_atomic
from tests.harness.descriptors import open_under


def test_a_file_is_replaced_whole_and_nothing_stays_open(tmp_path: Path) -> None:
    file = tmp_path / "file"
    for text in ("one", "two", ""):
        write_atomic(str(file), text, 0o640, durable=bool(text))
        assert (file.read_text(), file.stat().st_mode & 0o777, list(tmp_path.iterdir())) == (text, 0o640, [file])
    assert open_under(tmp_path) == []


def test_what_cant_be_replaced_leaves_nothing_half_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_atomic(str(tmp_path / "folder"), "text")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"] and open_under(tmp_path) == []


def test_a_lock_is_held_by_one_and_private(tmp_path: Path) -> None:
    held = take_lock(str(tmp_path / "lock"))
    assert held is not None and take_lock(str(tmp_path / "lock")) is None
    assert ((tmp_path / "lock").stat().st_mode & 0o7777, open_under(tmp_path)) == (0o600, [str(tmp_path / "lock")])
