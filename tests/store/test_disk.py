"""How much room a data folder takes."""

from __future__ import annotations

from pathlib import Path

from chalicelib.domain.usage import Part
from chalicelib.store.disk import used


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
