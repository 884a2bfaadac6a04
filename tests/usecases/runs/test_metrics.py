"""Points of usage: how long each is stored, and what is shown of them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from chalicelib.domain import keys
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.tenants import Project
from chalicelib.errors import NotFound
from chalicelib.store import nouns
from chalicelib.usecases.agent_message import MetricPoint
from chalicelib.usecases.runs.metrics import (
    DAY_SECONDS,
    MAX_POINTS,
    SHORT_SECONDS,
    UsagePoint,
    WantedPoints,
    job_usage,
    metric_puts,
)
from tests.world import nouns as b
from tests.world.engine import Engine

SLOT = b.NOW - b.NOW % (5 * MINUTE)
JOB = b.job(b.run())


def point(at: int, task: str = JOB.id, **used: Any) -> MetricPoint:
    return MetricPoint(task=task, at=at, **used)


@pytest.mark.parametrize(
    ("at", "lifetime"),
    [
        (0, 7 * DAY_SECONDS),
        (10 * SECOND - 1, 7 * DAY_SECONDS),
        (10 * SECOND, SHORT_SECONDS),
        (5 * MINUTE - 1, SHORT_SECONDS),
    ],
)
def test_a_point_in_the_first_seconds_of_a_slot_is_kept_for_a_week(at: int, lifetime: int) -> None:
    (put,) = metric_puts([point(SLOT + at)], {JOB.id: JOB}, SLOT + at, 7)
    assert put.record.expires_at == (SLOT + at) // SECOND + lifetime
    key = keys.metric(JOB.id, SLOT + at - at % SECOND)
    assert (put.record.key, put.expect, put.record.version) == (key, None, 1)


def test_a_point_keeps_what_was_measured_and_no_more() -> None:
    gpus = [{"memory_usage_bytes": 5, "util_percent": 50.0}]
    used = {"cpu_usage_micro": 1, "memory_usage_bytes": 2, "memory_working_set_bytes": 3, "gpus": gpus}
    (put,) = metric_puts([point(b.NOW - 7, **used)], {JOB.id: JOB}, b.NOW, 7)
    assert orjson.loads(put.record.body) == {**used, "at": b.NOW - 7}


def test_a_clock_that_is_ahead_is_set_right() -> None:
    puts = metric_puts([point(b.NOW + MINUTE), point(b.NOW + MINUTE + 1)], {JOB.id: JOB}, b.NOW, 7)
    assert [put.record.key for put in puts] == [keys.metric(JOB.id, b.NOW + MINUTE)]
    assert orjson.loads(puts[0].record.body)["at"] == b.NOW + MINUTE


def test_points_of_others_jobs_are_dropped_and_a_repeated_one_is_one() -> None:
    own = [point(b.NOW - ago * SECOND) for ago in (3, 3, 2)]
    puts = metric_puts([point(b.NOW - SECOND, "other"), *own], {JOB.id: JOB}, b.NOW, 7)
    assert [put.record.key.sk for put in puts] == [keys.metric(JOB.id, b.NOW - ago * SECOND).sk for ago in (3, 2)]


def test_an_agent_stores_a_point_a_second_at_most_and_none_of_long_ago() -> None:
    second = b.NOW - b.NOW % SECOND - MINUTE
    hostile = [point(second + at, cpu_usage_micro=at) for at in range(300)]
    (put,) = metric_puts(hostile, {JOB.id: JOB}, b.NOW, 7)
    assert orjson.loads(put.record.body)["cpu_usage_micro"] == 299
    oldest = b.NOW - SHORT_SECONDS * SECOND
    puts = metric_puts([point(0), point(oldest - 1), point(oldest)], {JOB.id: JOB}, b.NOW, 7)
    assert [orjson.loads(put.record.body)["at"] for put in puts] == [oldest]


@pytest.fixture
def place() -> Engine:
    place = Engine.in_memory()
    place.hosts(1)
    return place


PROJECT = Project(id=b.PROJECT, name="main", owner_id="u", created_at=b.NOW)


def measured(place: Engine, name: str = "one", **more: Any) -> str:
    """A run whose job used a core and a half between two points, two seconds apart, and was restarted then."""
    job = place.run(name)
    place.store.commit([nouns.pointer(keys.run_name(b.PROJECT, name), job.run_id)])
    points = [(0, 1_000_000, 10), (2, 4_000_000, 20), (4, 500_000, 30), (5.5, 1_250_001, 40)]
    sent = [
        point(
            place.at + round(at * SECOND),
            job.id,
            cpu_usage_micro=cpu,
            memory_usage_bytes=memory,
            memory_working_set_bytes=memory - 1,
            gpus=[{"memory_usage_bytes": memory, "util_percent": 12.5}],
        )
        for at, cpu, memory in points
    ]
    place.store.commit(metric_puts(sent, {job.id: job}, place.at, 7))
    return job.run_id


def shown(place: Engine, **wanted: Any) -> list[UsagePoint]:
    return list(job_usage(place.plane, PROJECT, WantedPoints("one", **wanted)).points)


def test_usage_is_what_was_used_since_the_point_before_the_newest_first(place: Engine) -> None:
    measured(place)
    assert shown(place, limit=10) == [
        UsagePoint(place.at + 5_500_000, 50, 40, 39, ((40, 12.5),)),
        UsagePoint(place.at + 4_000_000, 0, 30, 29, ((30, 12.5),)),
        UsagePoint(place.at + 2_000_000, 150, 20, 19, ((20, 12.5),)),
    ]
    assert len(shown(place)) == 1 and len(shown(place, limit=2)) == 2
    assert len(shown(place, limit=MAX_POINTS + 5)) == 3


def test_usage_within_two_moments(place: Engine) -> None:
    measured(place)
    for after in (1, 1_700_000):
        assert [each.at - place.at for each in shown(place, limit=9, after=place.at + after)] == [5_500_000, 4_000_000]
    assert [each.at - place.at for each in shown(place, limit=9, before=place.at + 5_500_000)] == [4_000_000, 2_000_000]


def test_more_points_than_a_page_are_shown_at_once(place: Engine) -> None:
    job = place.run("one")
    place.store.commit([nouns.pointer(keys.run_name(b.PROJECT, "one"), job.run_id)])
    sent = [point(place.at - at * SECOND, job.id) for at in range(130)]
    for start in (0, 65):
        place.store.commit(metric_puts(sent[start : start + 65], {job.id: job}, place.at, 7))
    assert len(shown(place, limit=120)) == 120 and len(shown(place, limit=500)) == 129


def test_usage_is_that_of_the_newest_submission(place: Engine) -> None:
    measured(place)
    again = b.job(b.run("one", submitted_at=place.at), 1)
    place.save(again)
    assert shown(place, limit=10) == []
    place.store.commit(
        metric_puts([point(place.at - SECOND, again.id), point(place.at, again.id)], {again.id: again}, place.at, 7)
    )
    assert [each.at for each in shown(place, limit=10)] == [place.at]


def test_usage_comes_with_what_the_jobs_machine_has(place: Engine) -> None:
    run_id = measured(place)
    assert job_usage(place.plane, PROJECT, WantedPoints("one")).has is None
    place.reconciler().run()
    has = job_usage(place.plane, PROJECT, WantedPoints("one", run_id=run_id)).has
    assert has is not None and has.cpus == 8


@pytest.mark.parametrize(
    "wanted",
    [{"run_name": "two"}, {"run_name": "one", "replica_num": 1}, {"run_name": "one", "job_num": 1}],
)
def test_what_isnt_there_is_named(place: Engine, wanted: dict[str, Any]) -> None:
    measured(place)
    with pytest.raises(NotFound, match=f"no run '{wanted['run_name']}' with replica .*, job .* in project main"):
        job_usage(place.plane, PROJECT, WantedPoints(**wanted))


def test_a_run_of_another_project_or_name_is_unknown(place: Engine) -> None:
    run_id = measured(place)
    with pytest.raises(NotFound):
        job_usage(place.plane, PROJECT.with_(id="other"), WantedPoints("one", run_id=run_id))
    with pytest.raises(NotFound):
        job_usage(place.plane, PROJECT, WantedPoints("two", run_id=run_id))
