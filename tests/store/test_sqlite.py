"""SQLite: the contract, and what only a file can do wrong."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.keys import Key
from chalicelib.errors import Bug, Conflict, DataTooNew, Refused, StorageFull
from chalicelib.store.port import Delete, Put, Record, Store
from chalicelib.store.sqlite import _ADD, _DROP, _LISTINGS, _STEP, _TABLE, APPLICATION, SCHEMA, SqliteStore, _row
from tests.store.contract import StoreContract, add, record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


class TestSqlite(StoreContract):
    @pytest.fixture
    def store(self, path: Path) -> Iterator[Store]:
        store = SqliteStore(path)
        yield store
        store.close()


def test_what_was_committed_is_there_after_a_restart(path: Path) -> None:
    store = SqliteStore(path)
    store.commit(add(record("a", gsi1=("g", "1"))))
    store.close()
    again = SqliteStore(path)
    assert again.query("gsi1", "g").records == (record("a", gsi1=("g", "1")),)
    again.close()


def test_the_file_is_private(path: Path) -> None:
    store = SqliteStore(path)
    store.commit(add(record("a")))
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    store.close()


def test_it_is_durable_by_its_settings(path: Path) -> None:
    store = SqliteStore(path)
    for connection in (store._writer, store._take()):
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_a_file_of_a_newer_version_is_left_alone(path: Path) -> None:
    SqliteStore(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    raw.close()
    before = path.read_bytes()
    with pytest.raises(DataTooNew, match=r"newer version.*restore the backup"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_a_database_of_another_program_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE theirs (x)")
    raw.close()
    before = path.read_bytes()
    with pytest.raises(Refused, match="another program"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"this is a letter, not a database " * 100)
    with pytest.raises(Refused, match="isn't a database"):
        SqliteStore(path)


def test_a_file_that_was_damaged_while_it_is_open_is_refused_in_words(path: Path) -> None:
    store = SqliteStore(path)
    store.commit(add(*(record("p", f"{n:04d}", body=b"x" * 4000) for n in range(100))))
    store.close()
    store = SqliteStore(path)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    for operation in (lambda: store.get(Key("p", "0050")), lambda: store.query("main", "p"), store.scan):
        with pytest.raises(Refused, match="is damaged") as caught:
            operation()
        assert "Restore it from a copy" in (caught.value.hint or "")
    store.close()


def test_a_read_that_breaks_off_leaves_no_old_view_of_the_file_behind(path: Path) -> None:
    store = SqliteStore(path)
    keys = [Key("p", f"{n}") for n in range(9)]
    with pytest.raises(UnicodeEncodeError):
        store.get_many([*keys, Key("\ud800", "")])
    store.commit(add(record("p", "0")))
    assert store.get_many(keys)[0] is not None
    store.close()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"nowhere/store\.db can't be opened"):
        SqliteStore(tmp_path / "nowhere" / "store.db")


def test_a_closed_store_says_so(path: Path) -> None:
    store = SqliteStore(path)
    store.close()
    with pytest.raises(Bug):
        store.get(Key("a", "b"))
    with pytest.raises(Bug):
        store.commit(add(record("a")))


def test_readers_do_not_wait_for_the_writer(path: Path) -> None:
    store = SqliteStore(path)
    store.commit(add(record("a")))
    store._writer.execute("BEGIN IMMEDIATE")
    store._writer.execute("UPDATE records SET version = 2")
    found: list[Record | None] = []
    thread = threading.Thread(target=lambda: found.append(store.get(Key("a", "status"))))
    thread.start()
    thread.join(120)
    assert found == [record("a")]
    store._writer.execute("ROLLBACK")
    store.close()


class _Line(deque[Any]):
    """Commits that wait, counted as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.came = threading.Semaphore(0)

    def append(self, commit: Any) -> None:
        super().append(commit)
        self.came.release()


def test_commits_that_wait_for_the_disk_share_it_and_fail_alone(path: Path) -> None:
    store, line, statements = SqliteStore(path), _Line(), list[str]()
    store.commit(add(record("taken")))
    store._waiting = line
    store._writer.set_trace_callback(statements.append)
    wanted = {name: add(record(name)) for name in ("a", "b", "c")}
    wanted["lost"] = [*add(record("beside the lost one")), *add(record("taken"))]
    wanted["unstorable"] = [*add(record("beside the unstorable one")), Put(record("d", version=2**63), expect=0)]
    with ThreadPoolExecutor(len(wanted)) as pool:
        with store._writing:
            answers = {name: pool.submit(store.commit, changes) for name, changes in wanted.items()}
            assert all(line.came.acquire(timeout=120) for _ in wanted)
        errors = {name: type(answer.exception()) for name, answer in answers.items()}
    none = type(None)
    assert errors == {"a": none, "b": none, "c": none, "lost": Conflict, "unstorable": OverflowError}
    assert statements.count("COMMIT") == 1
    names = ("a", "b", "c", "d", "beside the lost one", "beside the unstorable one")
    assert [store.get(record(name).key) is not None for name in names] == [True, True, True, False, False, False]
    store.close()


def test_connections_are_used_again_by_other_threads(path: Path) -> None:
    store = SqliteStore(path)
    for _ in range(20):
        thread = threading.Thread(target=store.get, args=(Key("a", "b"),))
        thread.start()
        thread.join()
    assert len(store._idle) == 1
    store.close()


def test_every_listing_is_a_walk_along_an_index(path: Path) -> None:
    store = SqliteStore(path)
    for statements in _LISTINGS.values():
        for statement in statements.values():
            steps = [row[3] for row in store._read(f"EXPLAIN QUERY PLAN {statement}", ("p", "a", "", "", "b", 5))]
            assert len(steps) == 1 and "USING INDEX" in steps[0], steps
    store.close()


def big(number: int, version: int = 1) -> Record:
    return record(f"big/{number}", version=version, body=b"hush-hush " * 1_000)


def older(path: Path, count: int, *, kept: int) -> None:
    """A file as an older version left it: all but `kept` of its records were deleted."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA auto_vacuum = NONE")
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(_TABLE)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {SCHEMA}")
    connection.execute("BEGIN")
    for number in range(count):
        connection.execute(_ADD, _row(big(number)))
    connection.execute("COMMIT")
    connection.executemany(_DROP, [(f"big/{number}", "status") for number in range(kept, count)])
    connection.close()


@pytest.mark.slow
def test_what_was_deleted_is_given_back_in_steps_and_leaves_no_bytes(path: Path) -> None:
    store = SqliteStore(path)
    for start in range(0, 1_000, 100):
        store.commit(add(*map(big, range(start, start + 100))))
    for start in range(0, 1_000, 100):
        store.commit([Delete(Key(f"big/{number}", "status")) for number in range(start, start + 100)])
    store.shrink(room=2_000)
    free = store._writer.execute("PRAGMA freelist_count").fetchone()[0]
    assert free == 2_000, "some stay for what comes next"
    store.shrink(room=0)
    store.commit(add(record("a")))
    store.close()
    store.shrink()
    assert path.stat().st_size < 200_000 and b"hush-hush" not in path.read_bytes()
    again = SqliteStore(path)
    assert again.get(Key("a", "status")) == record("a")
    again.close()


@pytest.mark.slow
def test_commits_get_their_turn_between_the_steps(path: Path) -> None:
    store = SqliteStore(path)
    for start in range(0, 600, 100):
        store.commit(add(*map(big, range(start, start + 100))))
    for start in range(0, 600, 100):
        store.commit([Delete(Key(f"big/{number}", "status")) for number in range(start, start + 100)])
    taken: list[int] = []

    class Lock:
        def __enter__(self) -> None:
            taken.append(store._writer.execute("PRAGMA freelist_count").fetchone()[0])

        def __exit__(self, *error: object) -> None:
            """Released."""

    store._writing = Lock()  # type: ignore[assignment]
    store.shrink(room=0)
    assert len(taken) > 5 and all(before - after <= _STEP for before, after in pairwise(taken)) and taken[-1] == 0
    store.close()


@pytest.mark.slow
def test_a_file_of_an_older_version_is_written_anew_once(path: Path) -> None:
    older(path, 500, kept=3)
    assert path.stat().st_size > 5_000_000 and path.read_bytes().count(b"hush-hush") > 100_000
    store = SqliteStore(path)
    assert [each.key.pk for each in store.scan()] == ["big/0", "big/1", "big/2"]
    store.commit([Delete(Key(f"big/{number}", "status")) for number in range(3)])
    store.shrink(room=0)
    store.close()
    assert path.stat().st_size < 200_000 and b"hush-hush" not in path.read_bytes()


def test_a_large_file_waits_until_a_quarter_of_it_is_free(path: Path) -> None:
    older(path, 100, kept=78)
    mode = "PRAGMA auto_vacuum"
    store = SqliteStore(path, small=0)
    assert store._writer.execute(mode).fetchone() == (0,)
    store.shrink(room=0)
    store.commit([Delete(Key(f"big/{number}", "status")) for number in range(60)])
    store.close()
    store = SqliteStore(path, small=0)
    assert store._writer.execute(mode).fetchone() == (2,) and len(store.scan()) == 18
    store.close()


CRAMPED = """
import resource, sys
from chalicelib.store.sqlite import SqliteStore
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
store = SqliteStore(sys.argv[1])
print(len(store.scan()), store._writer.execute("PRAGMA auto_vacuum").fetchone())
store.close()
"""


@pytest.mark.slow
def test_a_file_without_room_for_a_second_one_serves_as_it_is(path: Path) -> None:
    older(path, 300, kept=200)
    child = subprocess.run([sys.executable, "-c", CRAMPED, path], capture_output=True, text=True, check=False)
    assert child.stdout == "200 (0,)\n", child.stderr
    assert "can't be rewritten" in child.stderr


def test_expired_records_go_in_time(path: Path) -> None:
    store = SqliteStore(path, now=lambda: 1_000.0)
    store.commit(add(record("old", expires_at=999), record("young", expires_at=1_001), record("ever")))
    for n in range(50):
        store.commit([Put(record("tick", version=n + 1), None)])
    found = store.get_many([Key("old", "status"), Key("young", "status"), Key("ever", "status")])
    assert [item is not None for item in found] == [False, True, True]
    store.close()


def test_expired_records_go_faster_than_they_come_without_holding_up_a_commit(path: Path) -> None:
    """A host with many jobs sends dozens of points a call; a sweep that took fewer than that would never be done."""
    store = SqliteStore(path, now=lambda: 1_000.0)
    for start in range(0, 1_000, 100):
        store.commit(add(*(record(f"old-{n}", expires_at=999) for n in range(start, start + 100))))
    for n in range(45):
        store.commit([Put(record("tick", version=n + 1), None)])
    counts = [store._read("SELECT count(*) FROM records", ())[0][0]]
    while counts[-1] > 1:
        store.commit([Put(record("tick", version=1), None)])
        counts.append(store._read("SELECT count(*) FROM records", ())[0][0])
        assert 0 < counts[-2] - counts[-1] <= 250, counts
    store.close()


FILL = """
import resource, signal, sys
from chalicelib.errors import StorageFull
from chalicelib.domain.keys import Key
from chalicelib.store.port import Put, Record
from chalicelib.store.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
for n in range(10_000):
    try:
        store.commit([Put(Record(Key(f"n/{n}", str(part)), 1, b"x" * 5000), 0) for part in range(4)])
    except StorageFull as error:
        print(n, error, flush=True)
        assert store.get(Key(f"n/{n}", "0")) is None
        assert store.get(Key(f"n/{n - 1}", "3")) is not None
        break
"""


@pytest.mark.slow
def test_a_file_that_may_not_grow_raises_storage_full_and_keeps_what_was_acknowledged(path: Path) -> None:
    child = subprocess.run([sys.executable, "-c", FILL, path], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    count, message = child.stdout.split(" ", 1)
    assert "nothing was changed" in message and "Make room" in message
    store = SqliteStore(path)
    for n in range(int(count)):
        assert len(store.query("main", f"n/{n}").records) == 4
    assert store.query("main", f"n/{count}").records == ()
    store.commit(add(record("after")))
    store.close()


def test_a_full_database_takes_writes_again_once_there_is_room(path: Path) -> None:
    store = SqliteStore(path)
    pages = store._writer.execute("PRAGMA page_count").fetchone()[0]
    store._writer.execute(f"PRAGMA max_page_count = {pages + 10}")
    with pytest.raises(StorageFull):
        for n in range(100):
            store.commit(add(record(f"n/{n}", body=b"x" * 4000), record(f"m/{n}", body=b"x" * 4000)))
    written = [n for n in range(100) if store.get(Key(f"n/{n}", "status"))]
    assert written == [n for n in range(100) if store.get(Key(f"m/{n}", "status"))]
    store._writer.execute("PRAGMA max_page_count = 100000")
    store.commit(add(record("after", body=b"x" * 4000)))
    store.close()


RACE = """
import sys
from chalicelib.domain.keys import Key
from chalicelib.store.sqlite import SqliteStore
from tests.store.contract import increment
store = SqliteStore(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for turn in range(50):
    increment(store, Key("counter", "status"), Key(f"racer/{sys.argv[2]}", f"{turn:03d}"))
store.close()
"""


@pytest.mark.slow
def test_no_update_is_lost_between_processes(path: Path) -> None:
    store = SqliteStore(path)
    store.commit(add(record("counter", body=b"0")))
    children = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, path, str(me)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        )
        for me in range(4)
    ]
    for child in children:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.close()
    assert [child.wait() for child in children] == [0] * 4
    found = store.get(Key("counter", "status"))
    assert found is not None and (found.version, found.body) == (201, b"200")
    store.close()


def test_the_feed_has_records_of_events_in_the_order_of_their_commits_and_nothing_that_was_refused(
    tmp_path: Path,
) -> None:
    def event(at: int, name: str) -> Put:
        return Put(Record(keys.event("p", at, name), 1, b"{}"), 0)

    store = SqliteStore(tmp_path / "plane.db")
    store.commit([event(2, "late"), Put(Record(Key("run/1", "status"), 1, b"{}"), 0)])
    with pytest.raises(Conflict):
        store.commit([event(3, "lost"), Put(Record(Key("run/1", "status"), 1, b"{}"), 0)])
    store.commit([event(1, "early")])
    assert [record.key.sk[-5:] for _, record in store.feed_after(0, 10)] == ["#late", "early"]
    (first, _), (last, _) = store.feed_after(0, 10)
    store.trim_feed(last)
    store.close()
    again = SqliteStore(tmp_path / "plane.db")
    assert (again.feed_after(0, 10), again.feed_end()) == ([], last) and first < last
    again.commit([event(4, "after")])
    assert again.feed_end() > last
    again.close()


def test_the_newest_event_is_that_of_all_projects(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    assert store.newest_event() == 0
    for project, at in (("", 5), ("a", 9), ("a", 3), ("b", 7)):
        store.commit([Put(Record(keys.event(project, at, "id"), 1, b"{}"), 0)])
        store.commit([Put(Record(Key("run/z", f"status{at}"), 1, b"{}"), 0)])
    assert store.newest_event() == 9
    store.commit([Put(Record(keys.event("", 11, "id"), 1, b"{}"), 0)])
    assert store.newest_event() == 11
    store.close()


@pytest.mark.skipif(not hasattr(fcntl, "F_OFD_SETLK"), reason="its locks can't be asked for on this system")
def test_a_second_store_of_a_file_leaves_the_first_ones_locks(tmp_path: Path) -> None:
    """Without them, another process that closes the file deletes its log under the first store."""
    with closing(SqliteStore(tmp_path / "db")) as first:
        first.get(Key("a", "b"))
        with closing(SqliteStore(tmp_path / "db")), (tmp_path / "db").open("r+b") as other:
            wanted = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0x4000_0002, 510, 0)
            with pytest.raises(OSError, match="temporarily unavailable"):
                fcntl.fcntl(other, fcntl.F_OFD_SETLK, wanted)
