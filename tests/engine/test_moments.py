"""What a project looked like is stored whole, however large the project is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from chalicelib.domain import keys
from chalicelib.domain.events import Event, EventType, Target
from chalicelib.domain.instants import DAY, SECOND
from chalicelib.domain.moments import EVERY, LARGEST, InstanceThen, JobThen, Moment, RunThen, State
from chalicelib.engine.moments import newest, state_of, store_moment
from chalicelib.engine.read import Reader
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from chalicelib.usecases.operator.moments import PAGE, PAGES, marks
from tests.api.rig import Rig, submit, task

pytestmark = pytest.mark.slow
ITEM = 409_600  # bytes, DynamoDB's limit


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig.at(tmp_path)
    yield made
    made.world.plane.store.close()


def large(now: int, runs: int, jobs: int, instances: int) -> State:
    ids = random.Random(1)

    def new() -> str:
        return str(UUID(int=ids.getrandbits(128), version=4))

    return State(
        runs={
            (id_ := new()): RunThen(
                id=id_,
                name=f"run-{number}",
                user="ann",
                status="running",
                submitted_at=now - ids.randrange(DAY),
                jobs={
                    f"0-{job}": JobThen(name=f"0-{job}", status="running", instance=new()[:13], price=ids.random())
                    for job in range(jobs)
                },
            )
            for number in range(runs)
        },
        instances={
            (id_ := new()): InstanceThen(id=id_, name=new()[:13], fleet_id="f", created_at=now - ids.randrange(DAY))
            for _ in range(instances)
        },
    )


def test_a_state_of_any_size_fits_its_records_and_is_read_as_it_was(rig: Rig) -> None:
    store, now = rig.world.store, rig.world.now()
    state = large(now, 1500, 8, 5000)
    moment, parts = Moment.of(rig.project.id, now, state)
    assert moment.parts == len(parts) >= 1
    for each in (*parts, moment):
        assert len(nouns.put(each).record.body) < LARGEST + 1000 < ITEM
        store.commit([nouns.put(each)])
    read = Reader(store)
    found = newest(read, rig.project.id, now)
    assert found is not None and state_of(read, found) == state


def test_the_next_moment_goes_on_from_a_large_one(rig: Rig) -> None:
    store, clock = rig.world.store, rig.world.clock
    read, began = Reader(store), clock.now()
    moment, parts = Moment.of(rig.project.id, began, large(began, 1200, 8, 5000))
    for each in (*parts, moment):
        store.commit([nouns.put(each)])
    clock.pass_(60)
    run = submit(rig, task("train"))["id"]
    clock.pass_(2 * EVERY / SECOND)
    assert store_moment(read, clock, rig.project.id)
    found = newest(read, rig.project.id, clock.now())
    assert found is not None and found.at > began and len(state_of(read, found).runs) == 1201
    assert run in state_of(read, found).runs
    bodies = [
        record.body
        for pk in (f"moments/{rig.project.id}", keys.moment_part(rig.project.id, 0, 0).pk)
        for record in all_of(store, "main", pk)
    ]
    assert len(bodies) >= 4 and max(map(len, bodies)) < ITEM


def test_one_that_was_stored_before_there_were_parts_is_read(rig: Rig) -> None:
    moment, parts = Moment.of(rig.project.id, rig.world.now(), State())
    body = nouns.put(moment).record.body
    assert b"parts" not in body and parts == [] and state_of(Reader(rig.world.store), moment) == State()


def test_marks_of_a_long_history_are_read_bit_by_bit(rig: Rig) -> None:
    """Each once, and no answer reads more than its pages."""
    plane, clock = rig.world.plane, rig.world.clock
    began, wanted, new = clock.now(), [], []
    for number in range(2 * (PAGE * PAGES + 200)):
        failed = number % 100 in (0, 99)
        event = Event(
            id=f"{number:08}",
            project_id=rig.project.id,
            at=began + 1000 + number // 2 * 4000 + number % 2 * 400,
            type=EventType.status,
            before="running",
            after="failed" if failed else "done",
            targets=(Target(type="run", id=f"r{number}", name="run"),),
        )
        wanted += [event.id] if failed else []
        new.append(nouns.put(event))
    for start in range(0, len(new), 80):
        plane.store.commit(new[start : start + 80])
    clock.pass_(60)
    queries: list[int] = []

    class Watched:
        def query(self, *args: Any, **more: Any) -> Any:
            queries.append(1)
            return plane.store.query(*args, **more)

    watched: Any = SimpleNamespace(store=Watched(), clock=clock)
    found, until, answers = [], None, 0
    while answers == 0 or until is not None:
        page = marks(watched, rig.project, began, until)
        found = [mark.event.id for mark in page.items] + found
        until, answers = page.next_until, answers + 1
    assert found == wanted and answers > 1 and len(queries) <= answers * PAGES
