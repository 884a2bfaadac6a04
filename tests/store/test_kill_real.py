"""kill -9 while commits are acknowledged one after another: none of them is lost, and none is there by half.

SQLite: the process that holds the file is killed. DynamoDB: the client is, in the middle of a transaction.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

from chalicelib.store.dynamo import DynamoStore
from chalicelib.store.port import Key, Store
from chalicelib.store.sqlite import SqliteStore
from tests.emulators.ministack import Emulator

PARTS = 4

WRITER = f"""
import os, sys
from chalicelib.store.dynamo import DynamoStore
from chalicelib.store.port import Due, Key, Put, Record
from chalicelib.store.sqlite import SqliteStore

store = SqliteStore(sys.argv[2]) if sys.argv[1] == "sqlite" else DynamoStore(sys.argv[2])
counter = Key("counter", "status")
while True:
    found = store.get(counter)
    n = 0 if found is None else found.version
    changes = [Put(Record(counter, n + 1, b"x" * 200), n)]
    for part in range({PARTS}):
        key = Key(f"commit/{{n:06d}}", str(part))
        changes.append(Put(Record(key, 1, b"y" * 300, ("all", f"{{n:06d}}"), due=Due("run", f"run/{{n}}", n)), 0))
    store.commit(changes)
    os.write(1, b"%06d\\n" % n)
"""


def acknowledged_until_killed(kind: str, where: str, after: int) -> int:
    """Lets a writer make commits, kills it once `after` are acknowledged, answers how many were in the end."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    writer = subprocess.Popen([sys.executable, "-c", WRITER, kind, where], stdout=subprocess.PIPE, env=environment)
    assert writer.stdout is not None
    count = sum(1 for _ in zip(range(after), writer.stdout, strict=False))
    assert count == after, "the writer ended by itself"
    writer.kill()
    count += sum(1 for line in writer.stdout if len(line) == 7)
    writer.wait()
    writer.stdout.close()
    return count


def commits_in(store: Store) -> int:
    """How many commits there are; fails on one that isn't whole, in the table and in its index."""
    counter = store.get(Key("counter", "status"))
    count = 0 if counter is None else counter.version
    parts: dict[str, int] = {}
    cursor = None
    while True:
        page = store.query("gsi1", "all", limit=1000, cursor=cursor)
        for item in page.records:
            parts[item.key.pk] = parts.get(item.key.pk, 0) + 1
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(parts) == [f"commit/{n:06d}" for n in range(count)]
    assert set(parts.values()) <= {PARTS}
    return count


def run(kind: str, where: str, store: Store, total: int, kills: int) -> None:
    rng = random.Random(7)
    acknowledged = unacknowledged = 0
    for kill in range(kills):
        left = total - acknowledged
        after = left if kill == kills - 1 else rng.randint(1, left // 2)
        acknowledged += acknowledged_until_killed(kind, where, after)
        count = commits_in(store)
        # What was written but not acknowledged is at most the one commit under way at each kill.
        assert acknowledged <= count <= acknowledged + unacknowledged + 1
        unacknowledged = count - acknowledged
    assert acknowledged >= total


def test_sqlite_keeps_ten_thousand_acknowledged_commits(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    run("sqlite", str(path), store, 10_000, 6)
    store.close()
    # The last one to close folds the log into the file; a fresh process reads the same.
    again = SqliteStore(path)
    assert commits_in(again) >= 10_000
    again.close()


def test_sqlite_recovers_when_nobody_else_had_the_file_open(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    acknowledged = 0
    for after in (1, 40, 300):
        acknowledged += acknowledged_until_killed("sqlite", str(path), after)
        store = SqliteStore(path)
        assert commits_in(store) >= acknowledged
        store.close()


def test_dynamo_keeps_what_a_killed_client_had_acknowledged(emulator: Emulator, table: str) -> None:
    run("dynamo", table, DynamoStore(table), 200, 3)
