"""How much room a data folder takes, and what a disk's failures mean."""

from __future__ import annotations

import os
from errno import EACCES, EDQUOT, EEXIST, EFBIG, EIO, EISDIR, ENOSPC, ENOTDIR
from pathlib import Path

import pytest

from chalicelib.domain.usage import Part
from chalicelib.errors import DstackError, Invalid, Refused, StorageFull
from chalicelib.store.disk import disk_error, used


def fill(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x" * 10)


def test_each_part_with_all_that_is_in_it(tmp_path: Path) -> None:
    fill(tmp_path, "plane.db", "plane.db-wal", "config.yml", "logs/p/a.log", "logs/p/q/b.log", "logs/c")
    (tmp_path / "blobs").mkdir()
    (tmp_path / "logs" / "loop").symlink_to(tmp_path)
    found = used(tmp_path)
    link = (tmp_path / "logs" / "loop").lstat().st_size
    assert found.parts == (Part("database", 20, 2), Part("blobs", 0, 0), Part("logs", 30 + link, 4))
    assert found.free and found.free > 0


def test_a_big_folder_is_counted_up_to_a_bound(tmp_path: Path) -> None:
    fill(tmp_path, "plane.db", *(f"logs/{n // 10}/{n}.log" for n in range(50)))
    assert used(tmp_path, most=20).parts == (Part("database", 10, 1), Part("logs", 200, 20, whole=False))
    assert used(tmp_path, most=50).parts[1] == Part("logs", 500, 50)


def test_a_folder_that_is_new_takes_nothing(tmp_path: Path) -> None:
    assert used(tmp_path).parts == (Part("database", 0, 0),)


@pytest.mark.parametrize(
    ("codes", "kind", "hint"),
    [
        ((ENOSPC, EDQUOT, EFBIG), StorageFull, "Make room on its disk and try again."),
        ((ENOTDIR, EISDIR, EEXIST), Invalid, "Choose another name."),
        ((EACCES, EIO), Refused, "Check the data folder's owner and permissions."),
    ],
    ids=["full", "two in one place", "any other"],
)
def test_what_a_disks_failure_means(tmp_path: Path, codes: tuple[int, ...], kind: type[DstackError], hint: str) -> None:
    for code in codes:
        found = disk_error(tmp_path, OSError(code, os.strerror(code)))
        assert type(found) is kind and found.hint == hint and str(tmp_path) in str(found)
