"""The mark on a disk that is being formatted names one volume of one control plane, in one sector."""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.agent.volumes import marks, signatures
from chalicelib.agent.volumes.marks import Mark

MARK = Mark("install", "volume")
SIZE = 4 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    path = tmp_path / "disk"
    with path.open("wb") as made:
        made.truncate(SIZE)
    return path


def test_it_comes_and_goes_and_touches_nothing_else(disk: Path) -> None:
    assert not marks.is_on(str(disk), SIZE, MARK)
    marks.put(str(disk), SIZE, MARK)
    written = disk.read_bytes()
    assert len(MARK.sector) == marks.SECTOR and written.count(0) >= SIZE - marks.SECTOR
    assert written.index(MARK.sector) == SIZE - marks.FROM_END > SIZE - marks.TAIL
    assert marks.is_on(str(disk), SIZE, MARK)
    marks.remove(str(disk), SIZE)
    assert disk.read_bytes() == bytes(SIZE)


@pytest.mark.parametrize("other", [Mark("install", "another"), Mark("another", "volume"), Mark("", "volume")])
def test_it_is_of_one_volume_of_one_control_plane(disk: Path, other: Mark) -> None:
    marks.put(str(disk), SIZE, other)
    assert not marks.is_on(str(disk), SIZE, MARK)


@pytest.mark.parametrize("at", [0, len(marks.BEGIN) + 1, len(marks.BEGIN) + 20, marks.SECTOR - 1])
def test_one_that_was_changed_is_none(disk: Path, at: int) -> None:
    marks.put(str(disk), SIZE, MARK)
    with disk.open("r+b") as file:
        file.seek(SIZE - marks.FROM_END + at)
        file.write(b"?")
    assert not marks.is_on(str(disk), SIZE, MARK)


def test_it_looks_like_nothing_that_anybody_else_writes(disk: Path) -> None:
    marks.put(str(disk), SIZE, MARK)
    data = disk.read_bytes()
    found = signatures.inspect(lambda at, length: data[at : at + length], SIZE)
    assert found.description() == "unknown data"
    assert [signatures.formattable(found, {}, marked) for marked in (True, False)] == [True, False]
