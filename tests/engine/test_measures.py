"""What the server measures of itself: when a job is decided about and begun, and what a day's record says of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.instants import DAY, SECOND, day_of
from chalicelib.domain.jobs import Assignment, Job, JobStatus, Mounted
from chalicelib.domain.objectives import ANSWERS, DECISIONS, OBJECTIVES, STARTS, ObjectiveDay, Tally, standings
from chalicelib.engine.counters import Counters
from chalicelib.engine.measures import TRIES, Measures, measure_jobs
from chalicelib.errors import Conflict
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.store import nouns
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import Change
from tests.api.rig import Rig, submit, task
from tests.api.test_runs import job_of
from tests.runtime.test_roots import Embedded
from tests.runtime.test_roots import embedded as embedded  # noqa: PLC0414
from tests.world import nouns as b
from tests.world.time import NOW, Clock


class Bench:
    """A store in which a job has a place on a machine that has been up since then."""

    def __init__(self) -> None:
        self.store, self.clock = MemoryStore(), Clock(NOW)
        self.took: list[tuple[str, float]] = []
        machine = b.host(0, started_at=NOW + 3 * SECOND)
        where = Assignment(
            instance_id=machine.id,
            instance_name=machine.name,
            fleet_id=machine.fleet_id,
            fleet_name=machine.fleet_name,
            offer=machine.offer,
            assigned_at=NOW,
        )
        placed = b.job(b.run(), status=JobStatus.provisioning, assignment=where, provisioned_at=NOW)
        self.commit(nouns.put(machine), nouns.put(placed))
        self.job = self.read(nouns.key_of(placed))

    def read(self, key: keys.Key) -> Job:
        found = nouns.find(self.store, Job, key)
        assert found is not None
        return found

    def commit(self, *changes: Change) -> None:
        self.store.commit(changes)
        measure_jobs(self.store, self.clock, lambda name, took: self.took.append((name, took / SECOND)), changes)

    def move(self, event: str) -> None:
        draft = Draft(self.clock.now())
        draft.move_job(self.job, event)
        self.commit(*(nouns.put(each) for each in (*draft.step().saves, *draft.step().events)))
        self.job = self.read(nouns.key_of(self.job))


@pytest.mark.parametrize("event", ["pull", "run"])
def test_a_start_is_measured_from_the_machines_first_report(event: str) -> None:
    bench = Bench()
    bench.clock.pass_(10)
    bench.move(event)
    assert (STARTS, 7) in bench.took
    if event == "pull":
        bench.took.clear()
        bench.clock.pass_(100)
        bench.move("run")
        assert bench.took == [], "the image's time isn't the server's"


def test_a_job_that_waits_for_its_volumes_isnt_measured() -> None:
    bench = Bench()
    where = bench.job.assignment
    assert where is not None
    bench.job = bench.job.with_(assignment=where.with_(volumes=(Mounted(id="v", name="v", path="/v"),)))
    bench.move("run")
    assert STARTS not in dict(bench.took)


def test_a_job_on_several_nodes_isnt_measured() -> None:
    bench = Bench()
    bench.commit(nouns.put(bench.job.with_(id="second", job_num=1).with_(version=0)))
    bench.move("run")
    assert STARTS not in dict(bench.took)


def test_a_job_whose_start_was_refused_isnt_measured_as_begun() -> None:
    bench = Bench()
    bench.move("requeue")
    assert STARTS not in dict(bench.took)


def test_the_first_decision_about_a_job_is_measured_by_the_server_itself(embedded: Embedded) -> None:
    rig = embedded.rig("here")
    run_id = submit(rig, task())["id"]
    assert job_of(rig, run_id).version == 1
    embedded.clock.pass_(12)
    project = rig.project.id
    rig.root.reconciler.run([f"queue/{project}"])
    assert job_of(rig, run_id).version == 2, "it has been told why it waits"
    counted = rig.root.counters.counts()
    assert counted["objective_events", (("objective", DECISIONS),)] == 1
    assert counted["objective_misses", (("objective", DECISIONS),)] == 1
    embedded.clock.pass_(3600)
    rig.root.reconciler.run([f"queue/{project}"])
    assert rig.root.counters.counts()["objective_events", (("objective", DECISIONS),)] == 1
    rig.root.measures.write(rig.root.ports.store, embedded.clock.now())
    (found,) = (each for each in rig.ok("/api/server/get_slo")["objectives"] if each["name"] == DECISIONS)
    assert (found["events"], found["misses"], found["attained"], found["met"]) == (1, 1, 0.0, False)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig.at(tmp_path)
    yield made
    made.world.plane.store.close()


def test_where_cloudwatch_measures_the_answer_says_so(rig: Rig) -> None:
    found = rig.ok("/api/server/get_slo")
    assert not found["measured"] and all(each["attained"] is None for each in found["objectives"])


def test_a_days_record_adds_up_across_writers_and_restarts() -> None:
    store, first, second = MemoryStore(), Measures(Counters()), Measures(Counters())
    for measures in (first, second):
        measures.note(ANSWERS, missed=False)
        measures.note(ANSWERS, missed=True)
        measures.write(store, NOW)
        measures.write(store, NOW)  # nothing is new
    found = nouns.find(store, ObjectiveDay, keys.objective_day(day_of(NOW)))
    assert found is not None and found.tallies == {ANSWERS: Tally(events=4, misses=2)} and found.version == 2


class Contended(MemoryStore):
    refusals = TRIES - 1

    def commit(self, changes: Any) -> None:
        if self.refusals:
            self.refusals -= 1
            raise Conflict("objectives")
        super().commit(changes)


@pytest.mark.parametrize("refusals", [TRIES - 1, TRIES])
def test_a_write_that_loses_too_often_is_made_up_for_by_the_next(refusals: int) -> None:
    store, measures = Contended(), Measures(Counters())
    store.refusals = refusals
    measures.note(ANSWERS, missed=False)
    if refusals == TRIES:
        with pytest.raises(Conflict):
            measures.write(store, NOW)
        measures.note(ANSWERS, missed=False)
    measures.write(store, NOW)
    found = nouns.find(store, ObjectiveDay, keys.objective_day(day_of(NOW)))
    assert found is not None and found.tallies[ANSWERS].events == (2 if refusals == TRIES else 1)


@pytest.mark.parametrize(
    ("events", "misses", "attained", "left", "met"),
    [(0, 0, None, 1, True), (1000, 0, 1, 1, True), (1000, 1, 0.999, 0, True), (1000, 3, 0.997, -2, False)],
)
def test_what_a_tally_says(events: int, misses: int, attained: float | None, left: float, met: bool) -> None:
    today = day_of(NOW)
    days = [
        ObjectiveDay(day=today, tallies={ANSWERS: Tally(events=events, misses=misses)}),
        ObjectiveDay(day=today - 5 * DAY, tallies={ANSWERS: Tally(events=9, misses=9)}),
    ]
    found = {each.objective.name: each for each in standings(days, today - DAY)}
    assert list(found) == list(OBJECTIVES)
    assert found[ANSWERS].attained == attained and found[ANSWERS].met is met
    assert found[ANSWERS].budget_left == pytest.approx(left)
