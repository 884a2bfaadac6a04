"""Logs in files and in blobs: one contract, and what only a file can do wrong."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain.bounds import LAST_INSTANT
from chalicelib.domain.log_chunks import LogChunk
from chalicelib.errors import DstackError, Invalid, Refused, StorageFull
from chalicelib.store.blobs import FileBlobs
from chalicelib.store.log_blobs import BlobLogs
from chalicelib.store.log_files import FileLogs
from chalicelib.store.log_pages import packed
from chalicelib.store.logs import LogQuery, LogStore
from chalicelib.store.memory import MemoryStore, nothing
from chalicelib.store.port import Change, Page
from tests.harness.descriptors import open_under
from tests.store.log_contract import J, LogContract, P, read_all, text


class TestFileLogs(LogContract):
    @pytest.fixture
    def logs(self, tmp_path: Path) -> LogStore:
        return FileLogs(tmp_path / "logs")


class TestBlobLogs(LogContract):
    @pytest.fixture
    def logs(self, tmp_path: Path) -> LogStore:
        return BlobLogs(MemoryStore(), FileBlobs(tmp_path / "blobs"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / P / f"{J}.log"


def test_a_tail_cut_at_any_byte_loses_only_the_last_append(tmp_path: Path, file: Path) -> None:
    logs = FileLogs(tmp_path)
    logs.append(P, J, 0, [(1, b"first\n")])
    logs.append(P, J, 6, [(2, b"second\n"), (3, b"third\n")])
    sound = file.stat().st_size
    logs.append(P, J, 19, [(4, b"fourth\n")])
    complete = file.read_bytes()
    for cut in range(sound, len(complete)):
        file.write_bytes(complete[:cut])
        assert logs.end(P, J) == 19
        assert text(read_all(logs)) == b"first\nsecond\nthird\n"
        assert text(read_all(logs, descending=True)) == b"third\nsecond\nfirst\n"
        assert logs.append(P, J, 19, [(5, b"again\n")]) == 25
        assert text(read_all(logs)) == b"first\nsecond\nthird\nagain\n"


@pytest.mark.slow
def test_no_call_leaves_a_file_open(tmp_path: Path) -> None:
    logs = FileLogs(tmp_path)
    logs.append(P, J, 0, [(1, b"first\n")])
    for number in range(5):
        logs.append(P, J, logs.end(P, J), [(number, b"more\n")])
        read_all(logs)
        read_all(logs, descending=True)
    assert open_under(tmp_path) == []


def test_a_tail_of_garbage_is_cut(tmp_path: Path, file: Path) -> None:
    logs = FileLogs(tmp_path)
    logs.append(P, J, 0, [(1, b"first\n")])
    logs.append(P, J, 6, [(1, b"second\n")])
    complete = file.read_bytes()
    half = len(complete) // 2
    for bad in (
        complete + b"\0" * 500,
        complete[:-3] + b"xxx",
        complete[: half + 44] + b"\0" * 19,
        complete + complete[:20],
    ):
        file.write_bytes(bad)
        end = logs.end(P, J)
        assert end in (6, 13)
        assert text(read_all(logs)) == b"first\nsecond\n"[:end]
        assert logs.append(P, J, end, [(2, b"more")]) == end + 4
        assert file.stat().st_size <= len(complete) + 60, "what the crash left is still there"
        assert text(read_all(logs)) == b"first\nsecond\n"[:end] + b"more"


def test_a_file_that_may_not_grow_keeps_what_it_has(tmp_path: Path, file: Path) -> None:
    """Of the next append a part is written before the disk refuses the rest."""
    logs, before = FileLogs(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    logs.append(P, J, 0, [(1, b"first" * 100)])
    size = file.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 300, before[1]))
    try:
        with pytest.raises(StorageFull, match="Make room"):
            logs.append(P, J, 500, [(2, b"second" * 100)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert file.stat().st_size == size and text(read_all(logs)) == b"first" * 100
    assert logs.append(P, J, 500, [(2, b"second")]) == 506


def test_a_follower_may_begin_before_the_first_append_is_whole(tmp_path: Path, file: Path) -> None:
    logs = FileLogs(tmp_path)
    logs.append(P, J, 0, [(1, b"first\n")])
    file.write_bytes(file.read_bytes()[:20])
    resume = logs.read(P, J).resume
    logs.append(P, J, 0, [(1, b"first\n")])
    assert logs.read(P, J, LogQuery(token=resume)).records == ((1, b"first\n"),)


def test_damage_in_the_middle_is_told(tmp_path: Path, file: Path) -> None:
    logs = FileLogs(tmp_path)
    for n in range(3):
        logs.append(P, J, 6 * n, [(n, b"line %d" % n)])
    raw = bytearray(file.read_bytes())
    raw[raw.index(b"line 1")] ^= 1
    file.write_bytes(raw)
    with pytest.raises(DstackError, match="Bytes 6 to 12 of this log are damaged"):
        read_all(logs)
    assert text(read_all(logs, start=2)) == b"line 2"


def test_a_token_beyond_the_end_is_refused(tmp_path: Path) -> None:
    logs = FileLogs(tmp_path)
    logs.append(P, J, 0, [(1, b"x" * 200)])
    logs.append(P, J, 200, [(1, b"y")])
    for token in ("1.202", "60.300", "10000.10000"):
        for descending in (False, True):
            with pytest.raises(Invalid, match="token"):
                logs.read(P, J, LogQuery(token=token, descending=descending))


@pytest.mark.parametrize("moves_to_files", [False, True])
def test_a_follower_goes_on_in_a_copy_with_the_token_that_it_has(tmp_path: Path, moves_to_files: bool) -> None:
    here: LogStore = FileLogs(tmp_path / "logs")
    there: LogStore = BlobLogs(MemoryStore(), FileBlobs(tmp_path / "blobs"))
    if moves_to_files:
        here, there = there, here
    lines = [b"line %d\n" % n * (1 + n % 3 * 20) for n in range(60)]
    for logs, step in ((here, 1), (there, 7)):  # a copy has other chunks
        end = 0
        for first in range(0, len(lines), step):
            end = logs.append(P, J, end, [(n, lines[n]) for n in range(first, min(first + step, len(lines)))])
    for limit in (1, 2, 5, 59, 60):
        token = here.read(P, J, LogQuery(limit=limit)).resume
        assert text(list(there.read(P, J, LogQuery(token=token)).records)) == b"".join(lines[limit:])


def test_racing_appends_of_one_stream_add_each_byte_once(tmp_path: Path) -> None:
    logs = FileLogs(tmp_path)
    stream = b"".join(b"line %03d\n" % n for n in range(100))

    def send(step: int) -> None:
        while (end := logs.end(P, J)) < len(stream):
            logs.append(P, J, end, [(1, stream[end : end + step])])

    threads = [threading.Thread(target=send, args=(step,)) for step in (7, 30, 31, 64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert text(read_all(logs)) == stream


class Counting(MemoryStore):
    queries = 0

    def query(self, *arguments: Any, **more: Any) -> Page:
        self.queries += 1
        return super().query(*arguments, **more)


class Fetched(FileBlobs):
    """Counts what is read."""

    gets = 0

    def get(self, name: str) -> bytes | None:
        self.gets += 1
        return super().get(name)


def test_a_follower_of_a_long_log_reads_what_is_new_and_nothing_else(tmp_path: Path) -> None:
    store, blobs = Counting(), Fetched(tmp_path)
    logs = BlobLogs(store, blobs)
    for number in range(50):
        logs.append(P, J, number, [(1, b"x")])
    resume = logs.read(P, J).resume
    for new, fetched in ((b"", 0), (b"y", 1)):
        logs.append(P, J, 50, [(1, new)])
        store.queries = blobs.gets = 0
        assert text(list(logs.read(P, J, LogQuery(token=resume)).records)) == new
        assert (store.queries, blobs.gets) == (1, fetched)


class Late(MemoryStore):
    """Shows no record for a while, as if the other writer's came between."""

    blind = False

    def query(self, *arguments: Any, **more: Any) -> Page:
        return Page((), None) if self.blind else super().query(*arguments, **more)


def test_of_writers_at_once_one_is_first_and_the_other_goes_on_behind_it(tmp_path: Path) -> None:
    store, blobs = Late(), FileBlobs(tmp_path)
    logs = BlobLogs(store, blobs)
    assert logs.append(P, J, 0, [(1, b"hello "), (2, b"world")]) == 11
    store.blind = True
    assert logs.append(P, J, 0, [(1, b"hello ")]) == 0  # it lost, and is told where the log ends as far as it can see
    store.blind = False
    assert logs.end(P, J) == 11
    assert text(read_all(logs)) == b"hello world"
    for limit in (1, 2):
        assert text(read_all(logs, limit=limit, max_bytes=4, descending=True)[::-1]) == b"hello world"
    assert logs.append(P, J, 6, [(2, b"world"), (3, b"!")]) == 12
    assert text(read_all(logs)) == b"hello world!"
    logs.delete(P, J)
    assert blobs.list("") == [] and store.records() == []  # also what lost


def test_a_chunk_that_is_stored_twice_is_one(tmp_path: Path) -> None:
    """As after a crash between the object and its record."""
    store, blobs = MemoryStore(), FileBlobs(tmp_path)
    store.before = unwritten
    with pytest.raises(Refused):
        BlobLogs(store, blobs).append(P, J, 0, [(1, b"hello")])
    store.before = nothing
    assert BlobLogs(store, blobs).append(P, J, 0, [(1, b"hello")]) == 5
    assert len(blobs.list("")) == 1


def test_an_agents_own_object_may_hold_anything(tmp_path: Path) -> None:
    """Its content is the agent's, and only its record was checked: whoever reads the log gets times that there are."""
    blobs = FileBlobs(tmp_path)
    logs = BlobLogs(MemoryStore(), blobs)
    blobs.put("logs/mine", packed([(2**62, b"late "), (-(2**62), b"early")]) + b"no piece")
    made = LogChunk(project_id=P, job_id=J, first=0, last=10, low=0, high=LAST_INSTANT, blob="logs/mine", clock_off=5)
    assert logs.enter(made) == 10
    assert logs.read(P, J).records == ((LAST_INSTANT, b"late "), (0, b"early"))


def unwritten(changes: Sequence[Change]) -> None:
    raise Refused("The table is busy.")


KILLED = """
import sys
from chalicelib.store.log_files import FileLogs
logs = FileLogs(sys.argv[1])
end = 0
while True:
    end = logs.append("project-1", "job-1", end, [(end, b"%09d\\n" % end), (end, b"x" * 90)])
    print(end, flush=True)
"""


@pytest.mark.slow
def test_kill_9_loses_no_acknowledged_byte(tmp_path: Path) -> None:
    acknowledged = 0
    for lines in (40, 170, 300):
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, tmp_path / str(lines)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        for _ in range(lines):
            acknowledged = int(child.stdout.readline())
        child.kill()
        acknowledged = max([acknowledged, *map(int, child.stdout.read().split()[:-1])])
        child.wait()
        logs = FileLogs(tmp_path / str(lines))
        end = logs.end(P, J)
        assert end >= acknowledged and end % 100 == 0
        found = text(read_all(logs))
        assert found == b"".join(b"%09d\n" % n + b"x" * 90 for n in range(0, end, 100))
