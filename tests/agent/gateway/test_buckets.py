"""What a gateway makes of what nginx has counted: buckets, who waits, who is let go, and when to say so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chalicelib.agent.gateway import nginx
from chalicelib.agent.gateway.buckets import BUCKET, HISTORY, SECOND, STEP, Buckets
from chalicelib.domain.latencies import BOUNDS, CELLS
from chalicelib.domain.services import Traffic

RUN = "run"


def counts(total: int, busy: int = 0, held: int = 0, **jobs: int) -> dict[str, Any]:
    return {"runs": {RUN: {"total": total, "busy": busy, "held": held}}, "jobs": jobs}


def begun(total: int = 0) -> Buckets:
    made = Buckets()
    made.set_services([RUN], counts(total)["runs"])
    return made


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5), st.booleans()), max_size=400), st.integers(0, 9))
def test_nothing_that_came_is_lost_or_told_twice(steps: list[tuple[int, int, bool]], before: int) -> None:
    """Second by second: so many more, so many under way, and whether nginx began anew just before."""
    buckets, now, total, came = begun(before), 1_000 * BUCKET, before, {}
    for more, busy, anew in steps:
        total = more if anew and more < total else total + more
        now += SECOND
        buckets.sample(counts(total, busy), {}, now)
        came[now - now % BUCKET] = came.get(now - now % BUCKET, 0) + more
    report = Traffic(door="g", **buckets.report(RUN, now))
    counted = {bucket.at: bucket.requests for bucket in report.buckets}
    assert all(counted.get(at, 0) == requests for at, requests in came.items() if at > now - HISTORY)
    assert all(at > now - HISTORY and at % BUCKET == 0 for at in counted)


def test_what_was_counted_before_anybody_looked_isnt_told() -> None:
    buckets = begun(100)
    buckets.sample(counts(103), {}, BUCKET)
    assert sum(bucket["requests"] for bucket in buckets.report(RUN, BUCKET)["buckets"]) == 3


def test_what_is_under_way_is_an_average() -> None:
    buckets = begun()
    for second in range(10):
        buckets.sample(counts(4, 4 if second < 5 else 0), {}, BUCKET + second * SECOND)
    assert buckets.report(RUN, 2 * BUCKET)["buckets"] == [{"at": BUCKET, "requests": 4, "busy": 2.0}]


def test_a_service_is_told_of_at_first_every_ten_seconds_while_it_is_busy_and_once_more() -> None:
    buckets, reported = begun(), []
    for second in range(60):
        now = BUCKET + second * SECOND
        buckets.sample(counts(min(second, 25)), {}, now)
        reported += [(second, report["quiet"]) for report in buckets.reports(now)]
    assert reported == [(0, True), (10, True), (20, True), (30, True)]


def took(*cells: int, seconds: float = 1.0) -> dict[str, Any]:
    return {"histogram": [*cells, *[0] * (CELLS - len(cells))], "seconds": seconds}


def test_how_long_answers_took_is_told_for_each_half_minute_and_in_total() -> None:
    buckets = begun()
    for second, first_byte, whole in ((0, took(1), None), (29, took(1, 2), took(0, 1)), (30, took(1, 4), took(0, 3))):
        counted = counts(9, 1)
        counted["runs"][RUN] |= {"first_byte": first_byte, **({"whole": whole} if whole else {})}
        buckets.sample(counted, {}, STEP + second * SECOND)
    report = Traffic(door="g", **buckets.report(RUN, 2 * STEP))
    assert [(each.at, each.first_byte, each.whole) for each in report.answers] == [
        (STEP, (1, 2), (0, 1)), (2 * STEP, (0, 2), (0, 2)),
    ]  # fmt: skip
    assert (report.first_byte.histogram, report.whole.histogram) == ((1, 4), (0, 3))
    assert report.whole.seconds == 1.0
    buckets.sample(counts(9), {}, STEP + HISTORY)
    assert [each["at"] for each in buckets.report(RUN, STEP + HISTORY)["answers"]] == [2 * STEP]


def test_an_nginx_that_begins_anew_times_answers_anew_and_what_was_before_isnt_told() -> None:
    buckets, before = Buckets(), counts(5)
    before["runs"][RUN]["whole"] = took(0, 3)
    buckets.set_services([RUN], before["runs"])
    for now, whole in ((STEP, took(0, 4)), (2 * STEP, took(0, 2))):
        counted = counts(5, 1)
        counted["runs"][RUN]["whole"] = whole
        buckets.sample(counted, {}, now)
    report = buckets.report(RUN, 2 * STEP)
    assert [each["whole"] for each in report["answers"]] == [[0, 1], [0, 2]]
    assert report["whole"]["histogram"] == [0, 2]


def test_nginx_has_the_servers_bounds() -> None:
    text = Path(nginx.__file__).with_name("lua").joinpath("durations.lua").read_text()
    found = re.search(r"BOUNDS = \{[^\n]*\n(.*?)\}", text, re.DOTALL)
    assert found is not None
    assert tuple(float(each) for each in found[1].replace(",", " ").split()) == BOUNDS


def test_who_waits_is_told_of_at_once() -> None:
    buckets = begun()
    buckets.sample(counts(1, 1, 1), {}, BUCKET)
    (report,) = buckets.reports(BUCKET)
    assert (report["held"], report["waits_since"], report["quiet"]) == (1, BUCKET, False)
    buckets.sample(counts(2, 2, 2), {}, BUCKET + SECOND)
    assert not buckets.reports(BUCKET + SECOND)
    assert buckets.report(RUN, BUCKET + SECOND)["waits_since"] == BUCKET, "the first of them came then"
    buckets.sample(counts(2), {}, BUCKET + 2 * SECOND)
    assert buckets.report(RUN, BUCKET + 2 * SECOND)["waits_since"] is None


def test_a_draining_replica_is_let_go_once_it_had_nothing_for_a_second() -> None:
    buckets, draining = begun(), {RUN: ["old"]}
    buckets.sample(counts(1, 1, old=1), draining, BUCKET)
    buckets.sample(counts(1, 0, old=0), draining, BUCKET + SECOND)
    assert buckets.report(RUN, BUCKET + SECOND)["let_go"] == []
    buckets.sample(counts(1, 0, old=0), draining, BUCKET + 2 * SECOND)
    (report,) = buckets.reports(BUCKET + 2 * SECOND)
    assert report["let_go"] == ["old"]
    buckets.sample(counts(1), {}, BUCKET + 3 * SECOND)
    assert buckets.report(RUN, BUCKET + 3 * SECOND)["let_go"] == []


def test_a_report_that_isnt_taken_is_due_again() -> None:
    buckets = begun()
    buckets.sample(counts(1, 1, 1), {}, BUCKET)
    buckets.mark_unsent(buckets.reports(BUCKET))
    assert buckets.reports(BUCKET + SECOND)
