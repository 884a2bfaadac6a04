"""kill -9 while commits are acknowledged one after another: none of them is lost, and none is there by half.

SQLite: the process that holds the file is killed. DynamoDB: the clients are, in the middle of their transactions.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from chalicelib.domain.keys import Key
from chalicelib.store.dynamo import DynamoStore
from chalicelib.store.port import Store
from chalicelib.store.sqlite import SqliteStore
from tests.emulators.ministack import Emulator

PARTS = 4  # records of a commit, beside its lane's counter

WRITER = f"""
import os, sys
from chalicelib.store.dynamo import DynamoStore
from chalicelib.domain.keys import Due, Key
from chalicelib.store.port import Put, Record
from chalicelib.store.sqlite import SqliteStore

kind, where, lane, *more = sys.argv[1:]
for other in more:  # a process each, which imports nothing anew
    if os.fork() == 0:
        lane = other
        break
store = SqliteStore(where) if kind == "sqlite" else DynamoStore(where)
counter = Key("counter/" + lane, "status")
while True:
    found = store.get(counter)
    n = 0 if found is None else found.version
    name = f"{{lane}}/{{n:06d}}"
    changes = [Put(Record(counter, n + 1, b"x" * 200), n)]
    for part in range({PARTS}):
        key = Key("commit/" + name, str(part))
        changes.append(Put(Record(key, 1, b"y" * 50, ("all", name), due=Due("run", "run/" + name, n)), 0))
    store.commit(changes)
    os.write(1, (name + "\\n").encode())
"""


class Trial:
    """Writers, each in its own lane, that are killed all at once, and what the store must have afterwards."""

    def __init__(self, kind: str, where: str, lanes: int, total: int = 10_000) -> None:
        self.kind, self.where, self.total = kind, where, total  # so many acknowledged commits in all
        self.lanes = [str(lane) for lane in range(lanes)]
        self.acknowledged = 0
        self._last = dict.fromkeys(self.lanes, -1)  # the number of each lane's last acknowledged commit
        self._begun: dict[str, int] = {}
        self._checked = dict.fromkeys(self.lanes, 0)

    def kill_after(self, commits: int) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        source, sink = os.pipe()
        command = [sys.executable, "-c", WRITER, self.kind, self.where, *self.lanes]
        writers = subprocess.Popen(command, stdout=sink, env=environment, start_new_session=True)
        os.close(sink)
        with os.fdopen(source) as output:
            for number, line in enumerate(output, 1):
                self._acknowledge(line)
                if number == commits:
                    break
            else:
                raise AssertionError("the writers ended by themselves")
            os.killpg(writers.pid, signal.SIGKILL)
            for line in output:  # until all of them have ended
                if line.endswith("\n"):
                    self._acknowledge(line)
        writers.wait()

    def _acknowledge(self, line: str) -> None:
        lane, _, number = line.strip().partition("/")
        assert int(number) > self._last[lane], "a commit was acknowledged twice"
        self._last[lane] = int(number)
        self.acknowledged += 1

    def check_table(self, store: Store) -> None:
        """What was written but not acknowledged is at most each lane's one commit under way at the kill."""
        for lane in self.lanes:
            count = -1
            while count != (seen := _count(store, lane)):  # the last request of a killed client may still be executed
                count = seen
                numbers = range(self._checked[lane], count + 1)
                keys = [Key(f"commit/{lane}/{n:06d}", str(part)) for n in numbers for part in range(PARTS)]
                there = [record is not None for record in store.get_many(keys)]
            least = max(self._last[lane] + 1, self._begun.get(lane, 0))
            assert least <= count <= least + 1, "an acknowledged commit is lost, or one was made twice"
            assert there == [True] * (len(keys) - PARTS) + [False] * PARTS, "a commit is there by half"
            self._checked[lane] = count

    def check_index(self, store: Store) -> None:
        found: Counter[str] = Counter()
        page = store.query("gsi1", "all", limit=5000)
        found.update(record.key.pk for record in page.records)
        while page.cursor is not None:
            page = store.query("gsi1", "all", limit=5000, cursor=page.cursor)
            found.update(record.key.pk for record in page.records)
        assert found == {f"commit/{lane}/{n:06d}": PARTS for lane in self.lanes for n in range(self._checked[lane])}

    def run(self, store: Store, kills: int) -> None:
        rng = random.Random(7)
        for kill in range(kills):
            left = self.total - self.acknowledged
            self._begun = {lane: _count(store, lane) for lane in self.lanes}  # with what an earlier kill left under way
            self.kill_after(left if kill == kills - 1 else rng.randint(1, left // 2))
            self.check_table(store)
        assert self.acknowledged >= self.total
        self.check_index(store)


def _count(store: Store, lane: str) -> int:
    counter = store.get(Key(f"counter/{lane}", "status"))
    return 0 if counter is None else counter.version


def test_sqlite_keeps_ten_thousand_acknowledged_commits(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    trial, store = Trial("sqlite", str(path), 1), SqliteStore(path)
    trial.run(store, 6)
    store.close()
    # The last one to close folds the log into the file; a fresh process reads the same.
    again = SqliteStore(path)
    trial.check_table(again)
    trial.check_index(again)
    again.close()


def test_sqlite_recovers_when_nobody_else_had_the_file_open(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    trial = Trial("sqlite", str(path), 1)
    for commits in (1, 40, 300):
        trial.kill_after(commits)
        store = SqliteStore(path)
        trial.check_table(store)
        trial.check_index(store)
        store.close()


def test_dynamo_keeps_what_killed_clients_had_acknowledged(aws: Emulator, table: str) -> None:
    Trial("dynamo", table, 4, total=1_500).run(DynamoStore(table), 6)
