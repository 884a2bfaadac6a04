"""Whatever happens, a follower ends up with what is there, and never sees an older state after a newer one: on a store
whose indexes lag, with passes that commit late, and with a server at each poll that knows nothing of the last one; or
on that of one process alone, at once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.events import EventType
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.jobs import Job
from chalicelib.domain.noun import Noun
from chalicelib.domain.retention import Retention
from chalicelib.domain.runs import Run, RunBody, RunStatus
from chalicelib.domain.tenants import Project
from chalicelib.engine.read import RunRow
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.store import nouns
from chalicelib.store.announcing_store import AnnouncingStore
from chalicelib.store.commit_journal import CommitJournal
from chalicelib.store.history import LATE, HistoryStore
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import Change, Store
from chalicelib.usecases.context import Plane
from chalicelib.usecases.live.event_changes import EventChanges
from chalicelib.usecases.live.following import CHECK, Follow, Following
from chalicelib.usecases.live.items import Item
from tests.world import nouns as b
from tests.world.nouns import PROJECT
from tests.world.plane import World

SPEC = b.job_spec(b.run_spec()).model_dump_json()
LIVE = (RunStatus.submitted, RunStatus.provisioning, RunStatus.running)


def shown(item: Item) -> dict[str, Any]:
    assert isinstance(item.row, RunRow)
    run, jobs = item.row.run, item.row.jobs
    return {
        "id": run.id,
        "status": run.status.value,
        "why": run.message,
        "versions": (run.version, *(job.version for job in jobs)),
    }


class Town:
    """A store with runs, and what happens to them by chance."""

    def __init__(self, folder: Path, seed: int, *, alone: bool) -> None:
        self.rng, world = random.Random(seed), World.in_folder(folder)
        self.clock = world.clock
        below = MemoryStore(clock=self.clock.now, rng=self.rng, max_lag=0 if alone else 20 * SECOND)
        store: Store = HistoryStore(below, Retention())
        self.journal = CommitJournal("boot", length=64) if alone else None
        if (journal := self.journal) is not None:

            def note(changes: Sequence[Change]) -> None:
                journal.wrote(changes)

            store = AnnouncingStore(store, note)
        self.plane: Plane = replace(world.plane, store=store, journal=self.journal)
        self.store, self.count = store, 0
        self.late: list[tuple[int, list[Noun]]] = []

    def runs(self) -> list[Run]:
        found = (self.plane.read.find(Run, keys.run(b.run(f"run-{each}").id)) for each in range(self.count))
        return [run for run in found if run is not None and not run.deleted]

    def save(self, *changed: Noun) -> None:
        self.store.commit([nouns.put(noun) for noun in changed])

    def submit(self) -> None:
        run = b.run(f"run-{self.count}", submitted_at=self.clock.now())
        self.count += 1
        draft = Draft(self.clock.now())
        draft.record(EventType.created, run)
        self.save(run, RunBody(run_id=run.id, run_spec="{}", job_specs=(SPEC,)), b.job(run), *draft.step().events)

    def change(self) -> None:
        """A move, a new message, the end or the deletion of one; a pass may have begun long before its commit."""
        if not (runs := self.runs()):
            return
        run, began = self.rng.choice(runs), self.clock.now() - self.rng.choice((0, 0, LATE - 2 * SECOND))
        draft, what = Draft(began), self.rng.random()
        if run.finished or what < 0.1:
            gone = run.with_(deleted=True, deleted_at=began, due_at=None)
            draft.record(EventType.deleted, run)
            self.save(gone, *draft.step().events)
        elif what < 0.3:
            self.save(run.with_(message=f"waits for {what}"))  # no event says so
        elif what < 0.5:
            job = self.plane.read.find(Job, keys.job(run.id, 0, 0, 0))
            assert job is not None
            draft.record(EventType.status, job, before="a", after="b")
            self.save(job.with_(message=str(what)), *draft.step().events)
        else:
            self.move(run, self.rng.choice((*LIVE, RunStatus.done)), began)

    def move(self, run: Run, status: RunStatus, began: int) -> None:
        draft = Draft(began)
        ended = {"finished_at": began} if status is RunStatus.done else {}
        draft.record(EventType.status, run, before=run.status.value, after=status.value)
        self.save(run.with_(status=status, **ended), *draft.step().events)

    def truth(self) -> dict[str, dict[str, Any]]:
        rows = Plane.read.func(self.plane).run_rows(self.runs())  # type: ignore[attr-defined]  # without a cache
        return {row.run.id: shown(Item("runs", row.run.id, "p", 0, row)) for row in rows}


class Follower:
    def __init__(self, town: Town) -> None:
        self._town, self.runs = town, dict[str, dict[str, Any]]()
        self.place: Following | None = None

    def poll(self) -> bool:
        project = Project(id=PROJECT, name="main", owner_id="o", created_at=0)
        server = replace(self._town.plane)  # another one each time, with caches of its own
        news = Follow(server, [project], ["runs"], shown).after(self.place)
        if news.reset:
            self.runs = {}
        for _, run in news.items:
            had = self.runs.get(run["id"], {"versions": ()})["versions"]
            assert all(new >= old for new, old in zip(run["versions"], had, strict=False)), "it went back"
            self.runs[str(run["id"])] = dict(run)
        for _, run_id in news.gone:
            self.runs.pop(run_id, None)
        self.place = news.place
        return news.reset


@pytest.mark.parametrize("alone", [True, False], ids=["journal", "events"])
@pytest.mark.parametrize("seed", range(16))
def test_a_follower_ends_up_with_what_is_there(tmp_path: Path, seed: int, alone: bool) -> None:
    town = Town(tmp_path, seed, alone=alone)
    follower = Follower(town)
    for _ in range(16):
        for _ in range(town.rng.randrange(4)):
            town.submit() if town.rng.random() < 0.3 else town.change()
        town.clock.at += round(town.rng.choice((0.2, 1, 5, 30)) * SECOND)
        follower.poll()
        if alone:
            assert follower.runs == town.truth()
    for _ in range(3):
        town.clock.at += MINUTE
        follower.poll()
    assert follower.runs == town.truth() and town.count > 0


@pytest.mark.slow
def test_the_end_of_a_run_is_seen_however_late_its_commit_is(tmp_path: Path) -> None:
    """What is later than any commit should be is in no event that is read. The follower begins again instead."""
    for late, resets in ((50 * SECOND, 0), (LATE - 5 * SECOND, 0), (LATE + MINUTE + 30 * SECOND, 1)):
        (folder := tmp_path / str(late)).mkdir()
        town = Town(folder, 1, alone=False)
        town.submit()
        town.submit()
        follower = Follower(town)
        follower.poll()
        began, begun_again = town.clock.now(), 0
        for _ in range(120):
            town.clock.at += 5 * SECOND
            if town.clock.now() == began + late:
                town.move(town.runs()[0], RunStatus.done, began)
            town.move(town.runs()[1], RunStatus.running, town.clock.now())  # so that its place moves on
            begun_again += follower.poll()
        assert follower.runs == town.truth() and begun_again == resets


def test_nothing_old_comes_from_an_index_that_lags(tmp_path: Path) -> None:
    """One run changes long before what is alive is looked at, another just before that: what is found isn't what was
    found the last time, so all of it is shown."""
    town = Town(tmp_path, 1, alone=False)
    town.submit()
    town.submit()
    follower = Follower(town)
    for _ in range(8):
        for run, wait in zip(town.runs(), (CHECK - 5 * SECOND, 5 * SECOND), strict=True):
            town.save(run.with_(message=f"at {town.clock.now()}"))
            town.move(town.runs()[0 if run.name == "run-0" else 1], LIVE[1], town.clock.now())
            follower.poll()
            town.clock.at += wait
        follower.poll()
    assert follower.runs == town.truth()


def busy(folder: Path) -> Town:
    """Few events are read for an answer there."""
    town = Town(folder, 1, alone=False)
    town.plane = replace(town.plane, journal=EventChanges(town.store, town.clock, most=12))
    return town


@pytest.mark.slow
def test_who_follows_a_busy_plane_gets_each_change_once(tmp_path: Path) -> None:
    """More is written within the time in which commits may be late than is read for an answer."""
    town = busy(tmp_path)
    for _ in range(3):
        town.submit()
    follower = Follower(town)
    follower.poll()
    for _ in range(100):
        for run in town.runs():
            town.move(run, town.rng.choice(LIVE), town.clock.now())
        town.clock.at += 5 * SECOND
        assert not follower.poll() and follower.runs == town.truth()


def test_who_was_away_while_more_was_written_than_is_read_begins_again(tmp_path: Path) -> None:
    town = busy(tmp_path)
    town.submit()
    follower = Follower(town)
    follower.poll()
    for _ in range(14):
        town.clock.at += SECOND
        town.move(town.runs()[0], town.rng.choice(LIVE), town.clock.now())
    assert follower.poll() and not follower.poll() and follower.runs == town.truth()
