"""The spool: every byte by its place, whatever was cut short, deleted or is being written just now."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.agent.kernel import spool
from chalicelib.agent.kernel.limits import RECORDS_A_READ
from chalicelib.agent.kernel.spool import ReplayReader, SpoolReader, SpoolWriter
from tests.harness.descriptors import open_under
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
    writer, written = SpoolWriter(str(folder)), b""
    for number in range(parts):
        data = bytes([number]) * 500_000
        writer.append(number, data)
        written += data
    return writer, written


@pytest.mark.slow
def test_segments_are_one_log_and_go_when_they_are_held(tmp_path: Path) -> None:
    writer, written = big(tmp_path, 30)
    reader = SpoolReader(str(tmp_path))
    assert len(spool.segments(str(tmp_path))) > 2
    assert joined(reader.read(0, 1 << 30)[1]) == written
    reader.trim(spool.SEGMENT_BYTES * 2)
    first = spool.segments(str(tmp_path))[0]
    assert 0 < first <= spool.SEGMENT_BYTES * 2
    begins, records = reader.read(0, 1 << 30)
    assert (begins, joined(records)) == (first, written[first:])
    reader.trim(len(written))
    assert len(spool.segments(str(tmp_path))) == 1, "the last one stays: the writer is in it"
    writer.append(99, b"end")
    assert joined(reader.read(len(written), 10)[1]) == b"end"


@pytest.mark.slow
def test_what_is_held_stays_for_a_while_for_those_who_attach(tmp_path: Path) -> None:
    _writer, written = big(tmp_path, 80)
    reader, replay = SpoolReader(str(tmp_path)), ReplayReader(str(tmp_path))
    first = joined(replay.read(0, 1_000_000)[1])
    reader.trim(10_000_000)
    assert first + joined(replay.read(1_000_000, 1 << 30)[1]) == written
    reader.trim(len(written))
    remaining = [path.stat().st_size for path in (tmp_path / "replay").iterdir()]
    assert spool.REPLAY_BYTES - 2 * spool.SEGMENT_BYTES < sum(remaining) <= spool.REPLAY_BYTES
    begins, records = replay.read(0, 1 << 30)
    assert begins > 0 and joined(records) == written[begins:]


@pytest.mark.slow
def test_a_disk_that_is_short_keeps_nothing_that_the_server_holds(tmp_path: Path) -> None:
    writer, written = big(tmp_path, 60)
    free = [spool.SHORT_BYTES]
    reader, replay = SpoolReader(str(tmp_path), lambda folder: free[0]), ReplayReader(str(tmp_path))
    reader.trim(10_000_000)
    assert spool.segments(str(tmp_path / "replay"))
    assert not reader.make_room()
    begins = replay.read(0, 1_000_000)[0]
    assert begins == 0
    free[0] -= 1
    reader.trim(20_000_000)
    first = spool.segments(str(tmp_path))[0]
    assert 20_000_000 - 2 * spool.SEGMENT_BYTES < first <= 20_000_000
    assert not spool.segments(str(tmp_path / "replay"))
    begins, records = replay.read(1_000_000, 1 << 30)
    assert (begins, joined(records)) == (first, written[first:]), "those who are attached go on behind what is gone"
    free[0] += 1
    reader.trim(25_000_000)
    assert joined(replay.read(first, 1 << 30)[1]) == written[first:], "and from then on it is kept again"
    free[0] = 0
    assert reader.make_room() and not spool.segments(str(tmp_path / "replay")), "also where nothing new is held"
    writer.close()


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount a small disk")
def test_a_log_larger_than_its_disk_goes_through_it(tmp_path: Path) -> None:
    """Even though the disk has no room for a whole segment."""
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tiny", str(tmp_path)], capture_output=True).returncode:
        pytest.skip("no mounts here")
    try:
        writer, reader, server = SpoolWriter(str(tmp_path)), SpoolReader(str(tmp_path)), Server()
        written, data = b"", os.urandom(50_000)
        for _ in range(300):
            try:
                writer.append(1, data)
            except OSError as problem:
                assert problem.errno == errno.ENOSPC
                reader.make_room()  # as the agent's look does: the server holds all there is
            else:
                written += data
                server.take(reader)
        server.take_all(reader)
        assert server.held == written and len(written) > 10_000_000
        writer.close()
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_tiny_records_come_in_bounded_numbers(tmp_path: Path) -> None:
    writer, reader = SpoolWriter(str(tmp_path)), SpoolReader(str(tmp_path))
    for number in range(RECORDS_A_READ + 10):
        writer.append(number, b"x")
    offset, records = reader.read(0, 1 << 20)
    assert (offset, len(records)) == (0, RECORDS_A_READ)
    assert len(reader.read(RECORDS_A_READ, 1 << 20)[1]) == 10


# --- what is left out -------------------------------------------------------------------------------------------------


class Server:
    """Takes what follows the bytes it has, and refuses a gap."""

    def __init__(self) -> None:
        self.held = b""

    def take(self, reader: SpoolReader, limit: int = 1 << 30) -> bool:
        offset, records = reader.read(len(self.held), limit)
        assert offset == len(self.held), "a gap"
        self.held += joined(records)
        reader.trim(len(self.held))
        return bool(records)

    def take_all(self, reader: SpoolReader) -> None:
        while self.take(reader):
            pass
        assert len(self.held) == reader.end()


def test_a_spool_over_its_quota_drops_the_oldest_and_says_how_much(tmp_path: Path) -> None:
    writer, reader, server = SpoolWriter(str(tmp_path), 100), SpoolReader(str(tmp_path)), Server()
    written = b""
    for number in range(50):
        data = b"%049d\n" % number
        writer.append(number, data)
        written += data
    assert reader.shrink_to(100_000, 7) == 0
    dropped = reader.shrink_to(1200, 7)
    sizes = [path.stat().st_size for path in tmp_path.glob("0*")]
    assert 1300 < dropped < 2000 and sum(sizes) <= 1200 < sum(sizes) + max(sizes), "and no more than it must"
    assert reader.shrink_to(1200, 7) == 0
    server.take_all(reader)
    line = (
        b"\r\n\xe2\x80\xa6 %d bytes of log were dropped here: the control plane was out of reach \xe2\x80\xa6\r\n"
        % dropped
    )
    assert server.held == written[:200] + line + written[200 + dropped :]


def test_one_outage_is_one_line_and_the_next_one_another(tmp_path: Path) -> None:
    writer, server = SpoolWriter(str(tmp_path), 100), Server()
    reader = SpoolReader(str(tmp_path))
    for outage in range(2):
        for number in range(100):
            writer.append(number, b"%d" % outage * 50)
            reader.shrink_to(1000, number)
            reader = SpoolReader(str(tmp_path))  # an agent that is started again and again
        server.take_all(reader)
    assert server.held.count(b"were dropped here") == 2 and server.held.count(b"MB") == 0


def test_a_crash_between_the_note_and_the_deletion_leaves_no_gap(tmp_path: Path) -> None:
    writer, reader, server = SpoolWriter(str(tmp_path), 100), SpoolReader(str(tmp_path)), Server()
    for number in range(50):
        writer.append(number, b"x" * 50)
    remaining = {path.name: path.read_bytes() for path in tmp_path.glob("0*")}
    assert reader.shrink_to(1200, 7)
    for name, data in remaining.items():
        (tmp_path / name).write_bytes(data)
    again = SpoolReader(str(tmp_path))
    again.shrink_to(1000, 8)
    server.take_all(again)
    assert server.held.count(b"were dropped here") == 1 and len(server.held) < 1500


@pytest.mark.parametrize("span", [(0, 10), (3, 120), (95, 205), (150, 250)])
def test_what_the_server_cant_take_is_skipped_with_a_line(tmp_path: Path, span: tuple[int, int]) -> None:
    writer, reader, server = SpoolWriter(str(tmp_path), 100), SpoolReader(str(tmp_path)), Server()
    written = bytes(range(250))
    for byte in written:
        writer.append(1, bytes([byte]))
    reader.skip(*span, 7)
    server.take_all(SpoolReader(str(tmp_path)))
    head, tail = written[: span[0]], written[span[1] :]
    assert server.held.startswith(head) and server.held.endswith(tail)
    notice = server.held[len(head) : len(server.held) - len(tail)].decode()
    assert f"{span[1] - span[0]} bytes of log were dropped here: the control plane can't take them" in notice


def replayed(reader: ReplayReader) -> bytes:
    found = b""
    while records := reader.read(len(found), 1 << 30)[1]:
        found += joined(records)
    return found


@settings(max_examples=many(100), deadline=None)
@given(
    steps=st.lists(
        st.sampled_from(["write", "write", "write", "cap", "take", "lose", "restart", "skip"]), min_size=5, max_size=80
    ),
    limit=st.integers(1, 250),
)
@pytest.mark.slow
def test_the_log_never_has_a_gap_whatever_is_dropped(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], limit: int
) -> None:
    """The server may have taken more than its agent knows (`lose`: its answer got lost), up to a message's fill."""
    folder = str(tmp_path_factory.mktemp("spool"))
    writer, reader, server = SpoolWriter(folder, 300), SpoolReader(folder), Server()
    confirmed, replay = 0, ReplayReader(folder)
    for number, step in enumerate(steps):
        replay.read(len(server.held) // 2, limit)  # wherever it was: it finds its way
        if step == "write":
            writer.append(number, b"%199d\n" % number)
        elif step == "cap":
            reader.shrink_to(1500, number)
        elif step == "restart":
            reader = SpoolReader(folder)
        elif step == "skip":
            offset, records = reader.read(len(server.held), limit)
            reader.skip(offset, offset + len(joined(records)), number)
        elif step == "take" or (step == "lose" and len(server.held) == confirmed):
            server.take(reader, limit) if step == "take" else take_unheard(server, reader, limit)
            confirmed = len(server.held) if step == "take" else confirmed
    server.take_all(reader)
    assert replayed(replay) == replayed(ReplayReader(folder)) == server.held
    lines = [line for line in server.held.replace(b"\r\n", b"\n").split(b"\n") if line.strip().isdigit()]
    written = [number for number, step in enumerate(steps) if step == "write"]
    remaining = [int(line) for line in lines if len(line) == 199]
    assert remaining == [number for number in written if number in set(remaining)], "in order, none twice"
    if "cap" not in steps and "skip" not in steps:
        assert remaining == written


def take_unheard(server: Server, reader: SpoolReader, limit: int) -> None:
    offset, records = reader.read(len(server.held), limit)
    assert offset == len(server.held)
    server.held += joined(records)


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
    written = b"".join(writes)
    for offset, limit in reads:
        assert joined(reader.read(offset, limit)[1]) == written[offset : offset + limit]


# Segments, small enough to be counted -------------------------------------------------------------------------------


def frames(folder: Path, start: int, *pieces: tuple[int, bytes]) -> None:
    """A segment as a writer leaves it."""
    text = b"".join(spool.FRAME.pack(at, len(data)) + data for at, data in pieces)
    (folder / f"{start:020d}").write_bytes(text)


def test_a_segment_is_private_and_empty_at_first(tmp_path: Path) -> None:
    writer = SpoolWriter(str(tmp_path / "log"))
    (segment,) = (tmp_path / "log").iterdir()
    assert (segment.name, segment.stat().st_mode & 0o777, segment.stat().st_size) == ("0" * 20, 0o600, 0)
    writer.append(3, b"ab")
    assert segment.read_bytes() == spool.FRAME.pack(3, 2) + b"ab"
    assert open_under(tmp_path) == [str(segment)]
    writer.close()
    assert open_under(tmp_path) == []


def test_a_writer_goes_on_in_the_last_segment(tmp_path: Path) -> None:
    frames(tmp_path, 0, (1, b"0123"))
    frames(tmp_path, 4, (2, b"45"), (3, b""), (4, b"6"))
    writer = SpoolWriter(str(tmp_path))
    assert writer.end == 7
    writer.append(5, b"789")
    assert joined(SpoolReader(str(tmp_path)).read(0, 100)[1]) == b"0123456789"
    assert (tmp_path / f"{4:020d}").stat().st_size == 4 * spool.FRAME.size + 6


def test_a_new_segment_begins_when_one_is_full_and_no_sooner(tmp_path: Path) -> None:
    frames(tmp_path, 0, (1, b"x" * (spool.SEGMENT_BYTES - 1)))
    writer = SpoolWriter(str(tmp_path))
    writer.append(2, b"ab")
    assert spool.segments(str(tmp_path)) == [0]
    writer.append(3, b"c")
    assert spool.segments(str(tmp_path)) == [0, spool.SEGMENT_BYTES + 1]
    second = tmp_path / f"{spool.SEGMENT_BYTES + 1:020d}"
    assert open_under(tmp_path) == [str(second)]
    assert (second.read_bytes(), second.stat().st_mode & 0o777) == (spool.FRAME.pack(3, 1) + b"c", 0o600)
    assert writer.end == SpoolReader(str(tmp_path)).end() == spool.SEGMENT_BYTES + 2


def test_a_segment_that_is_just_full_is_left(tmp_path: Path) -> None:
    frames(tmp_path, 0, (1, b"x" * spool.SEGMENT_BYTES))
    SpoolWriter(str(tmp_path)).append(2, b"a")
    assert spool.segments(str(tmp_path)) == [0, spool.SEGMENT_BYTES]


@pytest.fixture
def three(tmp_path: Path) -> SpoolReader:
    """Ten bytes in three segments, one of them with an empty record."""
    frames(tmp_path, 0, (1, b"01"), (2, b"234"))
    frames(tmp_path, 5, (3, b"56"), (4, b""))
    frames(tmp_path, 7, (5, b"7"), (6, b"89"))
    return SpoolReader(str(tmp_path))


def test_any_piece_of_it_is_read_at_once(three: SpoolReader) -> None:
    for offset, limit in itertools.product(range(11), range(1, 12)):
        begins, records = three.read(offset, limit)
        assert (begins, joined(records)) == (offset, b"0123456789"[offset : offset + limit]), limit
        assert all(data for _, data in records), (offset, limit)
        assert [at for at, _ in records] == sorted({at for at, _ in records}), (offset, limit)


@pytest.mark.parametrize("limit", range(1, 8))
def test_it_is_read_on_piece_by_piece(three: SpoolReader, limit: int) -> None:
    found, offset = b"", 0
    while data := joined(three.read(offset, limit)[1]):
        assert len(data) == min(limit, 10 - offset)
        found, offset = found + data, offset + len(data)
    assert found == b"0123456789"
    assert joined(three.read(3, 4)[1]) == b"3456", "and from anywhere again"


def test_what_was_deleted_is_passed_over(three: SpoolReader, tmp_path: Path) -> None:
    assert three.end() == 10
    three.trim(4)
    assert spool.segments(str(tmp_path)) == [0, 5, 7]
    three.trim(5)
    assert spool.segments(str(tmp_path)) == [5, 7]
    assert three.read(0, 100) == (5, [(3, b"56"), (5, b"7"), (6, b"89")])
    three.trim(100)
    assert spool.segments(str(tmp_path)) == [7], "the last one stays"
    assert three.end() == 10


@pytest.mark.parametrize("cut", range(1, spool.FRAME.size + 3))
def test_the_end_is_that_of_the_last_whole_record(three: SpoolReader, tmp_path: Path, cut: int) -> None:
    last = tmp_path / f"{7:020d}"
    written = last.read_bytes()
    last.write_bytes(written[:-cut])
    assert three.end() == 8
    assert three.read(7, 100) == (7, [(5, b"7")])
    last.write_bytes(written)
    assert three.end() == 10
    assert three.read(8, 100) == (8, [(6, b"89")])


def test_a_number_of_records_is_enough_wherever_segments_end(tmp_path: Path) -> None:
    frames(tmp_path, 0, *((1, b"x") for _ in range(RECORDS_A_READ - 1)))
    frames(tmp_path, RECORDS_A_READ - 1, (2, b"y"), (3, b"z"))
    reader = SpoolReader(str(tmp_path))
    assert [len(reader.read(0, 1 << 20)[1]), reader.read(0, 1 << 20)[1][-1]] == [RECORDS_A_READ, (2, b"y")]
    assert reader.read(RECORDS_A_READ, 1 << 20)[1] == [(3, b"z")]


def test_a_disk_without_room_leaves_the_spool_as_it_was(tmp_path: Path) -> None:
    writer = SpoolWriter(str(tmp_path))
    writer.append(1, b"kept")
    (segment,) = tmp_path.iterdir()
    before = segment.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            writer.append(2, b"there is no room for this")
        assert segment.read_bytes() == before
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    writer.append(3, b"more")
    assert SpoolReader(str(tmp_path)).read(0, 100) == (0, [(1, b"kept"), (3, b"more")])
    assert writer.end == 8


def test_segments_of_a_byte_are_read_through(tmp_path: Path) -> None:
    folder = str(tmp_path / "log")
    writer = SpoolWriter(folder, segment_bytes=1)
    for number, letter in enumerate(b"abc"):
        writer.append(number, bytes([letter]))
    writer.close()
    assert SpoolReader(folder).read(0, 100) == (0, [(0, b"a"), (1, b"b"), (2, b"c")])
    assert SpoolReader(folder).read(1, 1) == (1, [(1, b"b")])
