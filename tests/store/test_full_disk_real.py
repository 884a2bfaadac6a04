"""A disk that is really full: a small one of memory, mounted where only the test's child sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import itertools
from chalicelib.errors import StorageFull
from chalicelib.store.blobs import FileBlobs
from chalicelib.store.log_files import FileLogs
from chalicelib.store.logs import LogQuery
from chalicelib.domain.keys import Key
from chalicelib.store.port import Put, Record
from chalicelib.store.sqlite import SqliteStore

store, logs, blobs = SqliteStore("store.db"), FileLogs("logs"), FileBlobs("blobs")
blobs.put("ballast", b"x" * 500_000)

def until_full(act):
    for n in itertools.count():
        try:
            act(n)
        except StorageFull as error:
            assert "Make room" in str(error), error
            return n

def four(n):
    return [Put(Record(Key(f"n/{n}", str(part)), 1, b"x" * 3000), 0) for part in range(4)]

committed = until_full(lambda n: store.commit(four(n)))
assert committed > 10
assert store.get(Key(f"n/{committed}", "0")) is None
for n in range(committed):
    assert len(store.query("main", f"n/{n}").records) == 4

lines = until_full(lambda n: logs.append("p", "j", 4096 * n, [(n, b"y" * 4096)]))
assert logs.end("p", "j") == 4096 * lines
until_full(lambda n: blobs.put(f"more/{n}", b"z" * 50_000))
until_full(lambda n: blobs.put(f"little/{n}", b"z" * 100))

blobs.delete("ballast")
store.commit([Put(Record(Key("after", "x"), 1, b"x"), 0)])
assert logs.append("p", "j", 4096 * lines, [(0, b"end")]) == 4096 * lines + 3
assert logs.read("p", "j", LogQuery(descending=True, limit=1)).records == ((0, b"end"),)
store.close()
again = SqliteStore("store.db")
assert again.get(Key("after", "x")) is not None and again.get(Key(f"n/{committed - 1}", "3")) is not None
print("ok")
"""


OPENED = """
import os, sys
from chalicelib.errors import StorageFull
from chalicelib.domain.keys import Key
from chalicelib.store.port import Put, Record
from chalicelib.store.sqlite import SqliteStore

def fill(size):
    try:
        with open(f"fill{size}", "wb", buffering=0) as file:
            while True:
                file.write(b"0" * size)
    except OSError:
        pass

def put(n):
    return [Put(Record(Key("n", str(n)), 1, b"x" * 3000), 0)]

def refused(act):
    try:
        act()
    except StorageFull as error:
        assert "Make room" in str(error), error
        return True

store = SqliteStore("store.db")
for n in range(50):
    store.commit(put(n))
if sys.argv[1] == "killed":
    fill(65536), fill(4096)
    del store  # its files stay beside it, as of a process that was killed
else:
    store.close()
    fill(65536), fill(4096)
again = SqliteStore("store.db")
for _ in range(2):
    assert again.get(Key("n", "3")).body == b"x" * 3000
    found = again.get_many([Key("n", str(n)) for n in (0, 1, 2, 49, 50)])
    assert [each is not None for each in found] == [True] * 4 + [False]
    assert len(again.query("main", "n", limit=60).records) == 50 and again.due(["run"], 0, 0, 1) == []
    assert refused(lambda: again.commit(put(50)))
os.unlink("fill65536"), os.unlink("fill4096")
again.commit(put(50))
assert again.get(Key("n", "50")) is not None
again.close()
assert SqliteStore("store.db").get(Key("n", "50")) is not None
print("ok")
"""


@pytest.mark.parametrize("before", ["killed", "closed"])
def test_a_full_disk_can_be_read_by_whoever_opens_it(tmp_path: Path, before: str) -> None:
    on_a_small_disk(tmp_path, OPENED, before)


def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    on_a_small_disk(tmp_path, CHILD)


APART = ("unshare", "--mount", "--propagation", "slave", "sh", "-c")


def on_a_small_disk(tmp_path: Path, program: str, *arguments: str) -> None:
    command = 'mount -t tmpfs -o size=3m none "$1" && cd "$1" && shift && exec "$@"'
    child = subprocess.run(
        [*APART, command, "sh", tmp_path, sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    if ("mount" in child.stderr and "Traceback" not in child.stderr) or "unshare" in child.stderr:
        pytest.skip(f"no small disk can be mounted here: {child.stderr.strip()}")
    assert child.stdout == "ok\n", child.stderr
