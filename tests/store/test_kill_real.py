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

KILLS = 6
PARTS = 4  # records of a commit, beside its lane's counter

WRITER = f"""
import os, sys
from chalicelib.domain.keys import Due, Key
from chalicelib.store.port import Put, Record

kind, where, lane, *more = sys.argv[1:]
if kind == "sqlite":
    from chalicelib.store.sqlite import SqliteStore as Store
else:
    from chalicelib.store.dynamo import DynamoStore as Store
for sink in sys.stdin:  # a turn of new processes, which import nothing anew
    if os.fork() == 0:
        break
    os.wait()
else:
    sys.exit()
os.setsid()
output = os.open(sink.rstrip(), os.O_WRONLY)
os.write(output, f"{{os.getpid()}}\\n".encode())
for other in more:  # a process each
    if os.fork() == 0:
        lane = other
        break
store = Store(where)
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
    os.write(output, (name + "\\n").encode())
"""


class Trial:
    """Writers, each in its own lane, that are killed all at once, and what the store must have afterwards."""

    def __init__(self, kind: str, where: str, folder: Path, lanes: int, total: int) -> None:
        self.total = total  # so many acknowledged commits in all
        self.lanes = [str(lane) for lane in range(lanes)]
        self.acknowledged = 0
        self._last = dict.fromkeys(self.lanes, -1)  # the number of each lane's last acknowledged commit
        self._begun: dict[str, int] = {}
        self._checked = dict.fromkeys(self.lanes, 0)
        self._sink = folder / "sink"
        os.mkfifo(self._sink)
        command = [sys.executable, "-c", WRITER, kind, where, *self.lanes]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        self._origin = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, env=environment)

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *_: object) -> None:
        self._origin.communicate()

    def kill_after(self, commits: int) -> None:
        assert self._origin.stdin is not None
        print(self._sink, file=self._origin.stdin, flush=True)
        with self._sink.open() as output:
            group = int(output.readline())
            for number, line in enumerate(output, 1):
                self._acknowledge(line)
                if number == commits:
                    break
            else:
                raise AssertionError("the writers ended by themselves")
            os.killpg(group, signal.SIGKILL)
            for line in output:  # until all of them have ended
                if line.endswith("\n"):
                    self._acknowledge(line)

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


def test_sqlite_keeps_all_acknowledged_commits(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Trial("sqlite", str(path), tmp_path, 1, total=2_000) as trial:
        store = SqliteStore(path)
        trial.run(store, KILLS)
        store.close()
    # The last one to close folds the log into the file; a fresh process reads the same.
    again = SqliteStore(path)
    trial.check_table(again)
    trial.check_index(again)
    again.close()


def test_sqlite_recovers_when_nobody_else_had_the_file_open(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Trial("sqlite", str(path), tmp_path, 1, total=341) as trial:
        for commits in (1, 40, 300):
            trial.kill_after(commits)
            store = SqliteStore(path)
            trial.check_table(store)
            trial.check_index(store)
            store.close()


def test_dynamo_keeps_what_killed_clients_had_acknowledged(aws: Emulator, table: str, tmp_path: Path) -> None:
    with Trial("dynamo", table, tmp_path, 4, total=600) as trial:
        trial.run(DynamoStore(table), KILLS)
