"""Backups in one place: what they share, what they keep, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.domain.instants import DAY, HOUR, Micros
from chalicelib.domain.keys import Due, Key
from chalicelib.errors import Refused
from chalicelib.store.backups import Backups, KeySource, Moment, cut, moment_at, opened, part_place, stamp
from chalicelib.store.blobs import FileBlobs
from chalicelib.store.port import Record
from chalicelib.store.record_lines import line_of, record_of

KEY = KeySource(secret=b"k" * 32)
AT: Micros = 1_795_000_000_123_457


def lines(count: int, changed: int = -1) -> list[tuple[str, bytes]]:
    """Records that don't compress; `changed`: one of them is another."""
    made = (f"{number * 2_654_435_761**2 % 2**64:x}" for number in range(count))
    return [(f"key-{n}", f"{n} {'other' if n == changed else text}\n".encode()) for n, text in enumerate(made)]


def moment(backups: Backups, at: Micros, content: list[tuple[str, bytes]], **more: Any) -> Moment:
    fields = {"program": "1", "store": 1, "install": "i", "counts": {}, "feed_end": 0, "feed": (), "files": ()}
    made = Moment(at=at, records=backups.put_lines(content), **{**fields, **more})
    backups.add(made)
    return made


@pytest.fixture
def blobs(tmp_path: Path) -> FileBlobs:
    return FileBlobs(tmp_path)


@pytest.fixture
def backups(blobs: FileBlobs) -> Backups:
    return opened(blobs, KEY, create=True)


def test_a_backup_is_read_as_it_was_written(blobs: FileBlobs, backups: Backups) -> None:
    made = moment(backups, AT, lines(3_000))
    again = opened(blobs, KEY, create=False)
    found = again.latest()
    assert found == made
    assert [line + b"\n" for line in again.lines(found.records)] == [line for _, line in lines(3_000)]


@pytest.mark.slow
def test_the_next_backup_stores_only_what_is_new(backups: Backups) -> None:
    first = moment(backups, AT, lines(20_000))
    stored = backups.stored
    second = moment(backups, AT + 1, lines(20_000, changed=7_000))
    assert len(first.records) > 10
    assert len(set(second.records) - set(first.records)) == 1
    assert backups.stored - stored < stored / 10


@given(st.lists(st.text(max_size=8), max_size=200))
def test_parts_are_the_lines_in_their_order(keys: list[str]) -> None:
    made = [(key, f"{number}\n".encode()) for number, key in enumerate(keys)]
    assert b"".join(cut(made)) == b"".join(line for _, line in made)


def test_the_last_backup_up_to_a_time_is_found(backups: Backups) -> None:
    for hour in range(3):
        moment(backups, AT + hour * HOUR, lines(hour + 1))
    found = backups.latest(AT + HOUR + 1)
    assert found is not None and found.at == AT + HOUR
    assert backups.latest(AT - 1) is None


def test_what_others_put_beside_backups_is_no_backup(blobs: FileBlobs, backups: Backups) -> None:
    moment(backups, AT, lines(1))
    for name in ("Thumbs.db", f"{stamp(AT + 1)}.part", "desktop.ini"):
        blobs.put(f"moments/{name}", b"?")
    assert backups.moments() == [stamp(AT)]
    assert backups.latest(AT + DAY) == backups.latest() == backups.moment(stamp(AT))
    assert backups.prune(AT + DAY, AT + DAY) == 0


def test_names_of_backups_are_their_times_to_the_microsecond() -> None:
    assert stamp(AT) == "2026-11-18T11-06-40.123457Z" and moment_at(stamp(AT)) == AT


@pytest.mark.slow
def test_another_key_or_passphrase_opens_nothing(blobs: FileBlobs) -> None:
    opened(blobs, KeySource(passphrase="correct horse"), create=True)
    opened(blobs, KeySource(passphrase="correct horse"), create=False)
    for wrong in (KEY, KeySource(passphrase="correct house")):
        with pytest.raises(Refused, match="don't open with this key"):
            opened(blobs, wrong, create=True)


def test_nothing_of_the_content_is_readable_and_nothing_can_be_changed(tmp_path: Path, backups: Backups) -> None:
    moment(backups, AT, [("k", b"a very secret word\n")])
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 3  # format, moment, part
    assert all(b"secret word" not in path.read_bytes() for path in files)
    part = next(path for path in files if path.is_relative_to(tmp_path / "parts"))
    raw = bytearray(part.read_bytes())
    raw[-1] ^= 1
    part.write_bytes(raw)
    found = backups.latest()
    assert found is not None
    with pytest.raises(Refused, match="was changed or cut off"):
        list(backups.lines(found.records))
    part.unlink()
    with pytest.raises(Refused, match="is missing"):
        list(backups.lines(found.records))


def test_a_part_isnt_taken_for_another(tmp_path: Path, backups: Backups) -> None:
    one, other = backups.put(b"one"), backups.put(b"other")
    paths = {path.name: path for path in (tmp_path / "parts").rglob("*") if path.is_file()}
    paths[one].write_bytes(paths[other].read_bytes())
    with pytest.raises(Refused, match="was changed"):
        backups.get(one)


def test_old_backups_go_with_what_only_they_have(tmp_path: Path, backups: Backups) -> None:
    old = moment(backups, AT, lines(2_000))
    new = moment(backups, AT + 8 * DAY, lines(2_000, changed=3))
    long_after = 4 * 10**15  # beyond the time of the files that this test writes
    assert backups.prune(AT + DAY, long_after) == 1
    assert backups.moments() == [new.name]
    parts = {path.name for path in (tmp_path / "parts").rglob("*") if path.is_file()}
    assert parts == set(new.records) and set(old.records) - parts
    assert list(backups.lines(new.records))


def test_what_many_backups_share_is_read_once_to_find_what_is_old(tmp_path: Path) -> None:
    blobs = Counted(tmp_path)
    backups = opened(blobs, KEY, create=True)
    files = backups.put_lines([("a", orjson.dumps(["a", 3, 0, [backups.put(b"abc")]]) + b"\n")])
    for hour in range(10):
        moment(backups, AT + hour * HOUR, lines(1), files=files)
    blobs.read.clear()
    backups.prune(AT + HOUR, AT + DAY)
    assert sorted(blobs.read) == sorted([*(f"moments/{name}" for name in backups.moments()), part_place(files[0])])
    assert backups.get(files[0]).startswith(b'["a"') and len(backups.moments()) == 9


class Counted(FileBlobs):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read: list[str] = []

    def get(self, name: str) -> bytes | None:
        self.read.append(name)
        return super().get(name)


def test_the_only_backup_is_kept_however_old_and_new_parts_without_a_backup_too(backups: Backups) -> None:
    moment(backups, AT, lines(5))
    assert backups.prune(AT + 100 * DAY, AT + 100 * DAY) == 0
    moment(backups, AT + DAY, lines(6))
    of_another = backups.put(b"of a backup that is under way")
    assert backups.prune(AT + DAY, AT) == 1
    assert backups.get(of_another)


def test_a_place_without_backups_or_of_a_newer_version_is_refused(blobs: FileBlobs) -> None:
    with pytest.raises(Refused, match="There are no backups"):
        opened(blobs, KEY, create=False)
    blobs.put("format", orjson.dumps({"dstack_backups": 2, "salt": "", "check": ""}))
    with pytest.raises(Refused, match="newer version"):
        opened(blobs, KEY, create=True)
    blobs.put("format", b"[]")
    with pytest.raises(Refused, match="aren't backups"):
        opened(blobs, KEY, create=True)


@pytest.mark.parametrize(
    "record",
    [
        Record(Key("run/1", "status"), 1, b"{}"),
        Record(Key("a b", "c/ü"), 7, '{"x":"ü\\n"}'.encode(), ("p", "s"), ("q", "t"), Due("run", "run/1", 5), 9),
    ],
)
def test_a_record_is_one_line(record: Record) -> None:
    line = line_of(record)
    assert line.count(b"\n") == 1 and record_of(line) == record


def test_what_is_no_record_is_refused() -> None:
    for line in (b"", b"[]", b"{}", b'["a"]', b"[1,2,3,4,5,6,7,8]"):
        with pytest.raises(Refused, match="isn't the line of a record"):
            record_of(line)
