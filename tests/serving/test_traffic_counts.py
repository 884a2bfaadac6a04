"""What a door counts, and when it has to be said: against a list of every request, second by second."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.domain.instants import SECOND
from chalicelib.domain.services import BUCKET, HISTORY, Answers, Traffic
from chalicelib.serving.traffic_counts import Counts
from tests.domain.test_latencies import histogram
from tests.serving.door import service
from tests.serving.test_balancer import replica

RUN = "run"
NOBODY: Counter[str] = Counter()


def run_report(counts: Counts, now: int, *, urgent: bool = False) -> Traffic | None:
    return next((each for each in counts.report(NOBODY, now, urgent=urgent) if each.run_id == RUN), None)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=12))
def test_buckets_hold_what_a_list_of_all_requests_says(requests: list[tuple[int, int]]) -> None:
    """Each came at one second and stayed for some."""
    counts = Counts("server")
    moments = sorted([(at, 0) for at, _ in requests] + [(at + stay, 1) for at, stay in requests])
    for at, what in moments:
        (counts.ends if what else counts.begins)(RUN, at * SECOND)
    found = run_report(counts, 100 * SECOND)
    buckets = {} if found is None else {bucket.at: bucket for bucket in found.buckets}
    for start in range(0, 100, 10):
        begins = sum(start <= at < start + 10 for at, _ in requests)
        busy = sum(max(0, min(at + stay, start + 10) - max(at, start)) for at, stay in requests) / 10
        bucket = buckets.pop(start * SECOND, None)
        assert (bucket.requests if bucket else 0) == begins
        assert abs((bucket.busy if bucket else 0) - busy) < 0.001
    assert not buckets


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 99), st.floats(0, 400)), max_size=12).map(sorted))
def test_answers_are_counted_by_how_long_they_took_and_when_they_came(answers: list[tuple[int, float]]) -> None:
    counts = Counts("server")
    for at, seconds in answers:
        counts.first_byte(RUN, seconds / 2, at * SECOND)
        counts.whole(RUN, seconds, at * SECOND)
    found = run_report(counts, 100 * SECOND)
    assert found is not None or not answers
    steps = {} if found is None else {step.at: step for step in found.answers}
    for start in range(0, 100, 30):
        own = [seconds for at, seconds in answers if start <= at < start + 30]
        step = steps.pop(start * SECOND, Answers(at=0))
        assert step.whole == histogram(own) and step.first_byte == histogram([each / 2 for each in own])
    assert not steps
    if found is not None:
        assert found.whole.histogram == histogram([seconds for _, seconds in answers])
        assert abs(found.whole.seconds - sum(seconds for _, seconds in answers)) < 0.01


def test_the_bucket_that_is_open_is_told_as_far_as_it_goes() -> None:
    counts = Counts("server")
    counts.begins(RUN, 0)
    found = run_report(counts, 4 * SECOND)
    assert found is not None and [(b.at, b.requests, b.busy) for b in found.buckets] == [(0, 1, 1.0)]
    assert not found.quiet
    counts.ends(RUN, 5 * SECOND)
    found = run_report(counts, BUCKET)
    assert found is not None and [(b.requests, b.busy) for b in found.buckets] == [(1, 0.5)]
    assert found.quiet


def test_no_bucket_is_older_than_anybody_looks_back_and_then_all_is_forgotten() -> None:
    counts = Counts("server")
    counts.begins(RUN, 0)
    counts.ends(RUN, SECOND)
    assert run_report(counts, HISTORY - SECOND)
    last = run_report(counts, HISTORY + BUCKET)
    assert last is not None and last.buckets == () and last.quiet
    assert run_report(counts, HISTORY + 2 * BUCKET) is None and len(counts) == 0


def test_who_waits_first_is_urgent_once() -> None:
    counts = Counts("server")
    for _ in range(3):
        counts.begins(RUN, SECOND)
        counts.hold(RUN, SECOND)
    assert counts.urgent
    found = run_report(counts, 2 * SECOND, urgent=True)
    assert found is not None and found.held == 3
    assert not counts.urgent and run_report(counts, 2 * SECOND, urgent=True) is None
    for _ in range(3):
        counts.resume(RUN, 3 * SECOND)
    found = run_report(counts, 3 * SECOND)
    assert found is not None and (found.held, found.quiet) == (0, False)


def test_a_held_request_makes_busy_as_one_under_way_does() -> None:
    counts = Counts("server")
    counts.begins(RUN, 0)
    counts.hold(RUN, 0)
    counts.resume(RUN, 6 * SECOND)
    counts.ends(RUN, BUCKET)
    found = run_report(counts, BUCKET)
    assert found is not None and [(b.requests, b.busy) for b in found.buckets] == [(1, 1.0)]


def test_a_draining_replica_is_let_go_with_its_last_request() -> None:
    counts, under_way = Counts("server"), Counter({"old": 2})
    served = service([replica("old", draining=True), replica("new")]).with_(run_id=RUN)
    counts.begins(RUN, 0)
    counts.looked_up(served, under_way, 0)
    assert not counts.urgent
    assert counts.report(under_way, 0)[0].let_go == ()
    under_way["old"] = 1
    counts.ended(RUN, "old", under_way)
    assert not counts.urgent
    del under_way["old"]
    counts.ended(RUN, "old", under_way)
    assert counts.urgent
    assert counts.report(under_way, SECOND, urgent=True)[0].let_go == ("old",)


def test_one_without_requests_is_let_go_at_once_though_nobody_ever_came() -> None:
    counts = Counts("server")
    counts.looked_up(service([replica("new")]).with_(run_id=RUN), NOBODY, 0)
    assert len(counts) == 0
    counts.looked_up(service([replica("old", draining=True)]).with_(run_id=RUN), NOBODY, 0)
    found = run_report(counts, 0, urgent=True)
    assert found is not None and found.let_go == ("old",) and found.quiet
    counts.gone(RUN)
    assert len(counts) == 0


def test_a_service_that_ended_under_a_request_is_forgotten_once_that_is_over() -> None:
    counts = Counts("server")
    counts.begins(RUN, 0)
    counts.looked_up(service((replica("a", draining=True),)).with_(run_id=RUN), {"a": 1}, 0)
    counts.gone(RUN)
    assert counts.busy == 1
    counts.ends(RUN, SECOND)
    assert run_report(counts, 2 * SECOND)
    run_report(counts, HISTORY + 2 * BUCKET)
    assert not len(counts)
