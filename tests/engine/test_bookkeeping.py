"""The books are kept in turns: each ends in time, and the next goes on there, whatever became of the one before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, SECOND
from chalicelib.domain.rounds import BooksPlace
from chalicelib.engine.bookkeeping import PATIENCE, TRIES, keep_books
from chalicelib.engine.read import Reader
from chalicelib.store import nouns
from chalicelib.store.listing import every
from tests.api.rig import Rig

NAMES = ("ants", "bees", "cats", "main")  # in order, as they are visited


class Killed(BaseException):
    """The function's time is up."""


class Watched:
    """A store that notes whose costs are counted; a count of `endless` outlasts its turn if it reads so many days."""

    def __init__(self, rig: Rig, endless: str = "", days: int = 0, seconds: int = 0) -> None:
        self.rig, self.endless, self.days, self.seconds = rig, endless, days, seconds
        self.counted: list[str] = []
        self.names = {keys.events_of(id_): name for name, id_ in projects(rig).items()}

    def query(self, index: Any, partition: str, **more: Any) -> Any:
        if partition in self.names and more.get("limit") != 1:
            name, clock = self.names[partition], self.rig.world.clock
            self.counted.append(name)
            clock.pass_(self.seconds)
            if name == self.endless and int(more["low"]) <= clock.now() - (self.days + 1) * DAY:
                raise Killed
        return self.rig.world.store.query(index, partition, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rig.world.store, name)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig.at(tmp_path)
    for name in NAMES[:-1]:
        made.ok("/api/projects/create", {"project_name": name})
    made.world.clock.pass_(3.5 * DAY / SECOND)
    yield made
    made.world.plane.store.close()


def projects(rig: Rig) -> dict[str, str]:
    records = every(rig.world.store, "projects", "name/")
    return {record.key.sk.removeprefix("name/"): nouns.pointed(record) for record in records}


def turn(rig: Rig, store: Watched) -> list[str]:
    store.counted = []
    try:
        keep_books(Reader(store), rig.world.clock)  # type: ignore[arg-type]
    except Killed:
        store.counted.append("killed")
    return store.counted


def days(rig: Rig) -> dict[str, int]:
    """How many days of each project have been counted."""
    return {
        name: len(list(every(rig.world.store, keys.project(id_).pk, keys.COST_DAYS)))
        for name, id_ in projects(rig).items()
    }


def test_a_turn_visits_every_project_once(rig: Rig) -> None:
    store = Watched(rig)
    assert turn(rig, store) == list(NAMES) and days(rig) == dict.fromkeys(NAMES, 4)
    assert turn(rig, store) == [], "all has been counted"


def test_a_turn_whose_time_is_up_leaves_the_others_to_the_next(rig: Rig) -> None:
    store = Watched(rig, seconds=PATIENCE // SECOND // 2)
    assert [turn(rig, store) for _ in range(3)] == [["ants", "bees"], ["cats", "main"], []]
    place = nouns.find(rig.world.store, BooksPlace, keys.BOOKS)
    assert place is not None and place.after == "", "the next round begins with the first"


def test_a_count_that_outlasts_its_turn_is_cut_to_the_last_day(rig: Rig) -> None:
    store = Watched(rig, endless="bees", days=3)
    assert turn(rig, store) == ["ants", "bees", "killed"]
    assert turn(rig, store) == ["bees", "killed"]
    assert turn(rig, store) == ["bees", "cats", "main"]
    assert days(rig) == {**dict.fromkeys(NAMES, 4), "bees": 1}


def test_one_that_never_ends_doesnt_hold_up_the_others(rig: Rig) -> None:
    store = Watched(rig, endless="bees")
    for _ in range(TRIES):
        assert turn(rig, store)[-1] == "killed"
    assert turn(rig, store) == ["cats", "main"]
    assert days(rig) == {**dict.fromkeys(NAMES, 4), "bees": 0}
