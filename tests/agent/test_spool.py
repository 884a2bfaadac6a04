"""The spool: every byte by its place, whatever was cut short, deleted or is being written just now."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.agent import spool
from chalicelib.agent.spool import RECORDS_MOST, SpoolReader, SpoolWriter
from tests.harness.examples import many


def joined(records: list[tuple[int, bytes]]) -> bytes:
    return b"".join(data for _, data in records)


def test_what_was_written_is_read_with_its_moments(tmp_path: Path) -> None:
    writer, reader = SpoolWriter(str(tmp_path)), SpoolReader(str(tmp_path))
    writer.append(5, b"one")
    writer.append(7, b"two")
    assert reader.read(0, 100) == (0, [(5, b"one"), (7, b"two")])
    assert reader.end() == writer.end == 6
    writer.append(8, b"three")
    assert reader.read(6, 100) == (6, [(8, b"three")])
    assert reader.end() == 11


def test_a_read_may_begin_and_end_inside_a_record(tmp_path: Path) -> None:
    writer, reader = SpoolWriter(str(tmp_path)), SpoolReader(str(tmp_path))
    writer.append(1, b"0123456789")
    writer.append(2, b"abcdef")
    assert reader.read(3, 4) == (3, [(1, b"3456")])
    assert reader.read(7, 5) == (7, [(1, b"789"), (2, b"ab")])
    assert reader.read(12, 100) == (12, [(2, b"cdef")])
    assert reader.read(2, 3) == (2, [(1, b"234")]), "backwards too"


def test_nothing_there_yet(tmp_path: Path) -> None:
    reader = SpoolReader(str(tmp_path / "none"))
    assert (reader.end(), reader.read(0, 10)) == (0, (0, []))


@pytest.mark.parametrize("cut", range(1, 16))
def test_a_torn_frame_never_was(tmp_path: Path, cut: int) -> None:
    writer = SpoolWriter(str(tmp_path))
    writer.append(1, b"whole")
    writer.append(2, b"torn")
    writer.close()
    segment = tmp_path / f"{0:020d}"
    os.truncate(segment, segment.stat().st_size - cut)
    assert joined(SpoolReader(str(tmp_path)).read(0, 100)[1]) == b"whole"
    again = SpoolWriter(str(tmp_path))
    assert again.end == 5
    again.append(3, b"more")
    assert joined(SpoolReader(str(tmp_path)).read(0, 100)[1]) == b"wholemore"


def big(folder: Path, parts: int) -> tuple[SpoolWriter, bytes]:
    writer, whole = SpoolWriter(str(folder)), b""
    for number in range(parts):
        data = bytes([number]) * 500_000
        writer.append(number, data)
        whole += data
    return writer, whole


def test_segments_are_one_log_and_go_when_they_are_held(tmp_path: Path) -> None:
    writer, whole = big(tmp_path, 30)
    reader = SpoolReader(str(tmp_path))
    assert len(spool.segments(str(tmp_path))) > 2
    assert joined(reader.read(0, 1 << 30)[1]) == whole
    reader.trim(spool.SEGMENT_BYTES * 2)
    first = spool.segments(str(tmp_path))[0]
    assert 0 < first <= spool.SEGMENT_BYTES * 2
    begins, records = reader.read(0, 1 << 30)
    assert (begins, joined(records)) == (first, whole[first:])
    reader.trim(len(whole))
    assert len(spool.segments(str(tmp_path))) == 1, "the last one stays: the writer is in it"
    writer.append(99, b"end")
    assert joined(reader.read(len(whole), 10)[1]) == b"end"


def test_tiny_records_come_in_bounded_numbers(tmp_path: Path) -> None:
    writer, reader = SpoolWriter(str(tmp_path)), SpoolReader(str(tmp_path))
    for number in range(RECORDS_MOST + 10):
        writer.append(number, b"x")
    offset, records = reader.read(0, 1 << 20)
    assert (offset, len(records)) == (0, RECORDS_MOST)
    assert len(reader.read(RECORDS_MOST, 1 << 20)[1]) == 10


@settings(max_examples=many(100), deadline=None)
@given(
    writes=st.lists(st.binary(min_size=1, max_size=40), max_size=30),
    reads=st.lists(st.tuples(st.integers(0, 600), st.integers(1, 90)), max_size=20),
)
def test_any_read_is_a_slice(
    tmp_path_factory: pytest.TempPathFactory, writes: list[bytes], reads: list[tuple[int, int]]
) -> None:
    folder = str(tmp_path_factory.mktemp("spool"))
    writer, reader = SpoolWriter(folder), SpoolReader(folder)
    for number, data in enumerate(writes):
        writer.append(number, data)
    writer.close()
    whole = b"".join(writes)
    for offset, limit in reads:
        assert joined(reader.read(offset, limit)[1]) == whole[offset : offset + limit]
