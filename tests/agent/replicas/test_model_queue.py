"""What waits inside a model server: read from its metrics, and told no more often than it matters."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.agent.replicas.model_queue import SETTLED, SPACE, Gauge, waiting
from tests.harness.examples import many

POLL = 5.0  # seconds between two looks at a model server


def reported_after(*found: int | None, gauge: Gauge | None = None) -> list[int | None]:
    """What is told after each look."""
    gauge, reported = gauge or Gauge(), list[int | None]()
    for at, each in enumerate(found):
        before = gauge.reported
        assert gauge.update(each, at * POLL) == (gauge.reported != before)
        reported.append(gauge.reported)
    return reported


def test_the_first_number_is_told_at_once_and_a_rise_soon_after() -> None:
    assert reported_after(0, 40, 40, 40) == [0, 0, 0, 40]


def test_a_small_change_is_told_a_minute_later() -> None:
    assert reported_after(*[40] + [42] * 12) == [40] * 12 + [42]


def test_a_model_server_that_is_silent_for_three_looks_is_unknown_until_it_is_back() -> None:
    assert reported_after(7, None, None, None, 7, 7, 7) == [7, 7, 7, None, None, None, 7]
    assert reported_after(7, None, None, 7, None, None) == [7] * 6
    assert reported_after(None, None, None, None) == [None] * 4


@settings(max_examples=many(100))
@given(st.lists(st.one_of(st.none(), st.integers(0, 500)), min_size=1, max_size=200))
@pytest.mark.slow
def test_whatever_model_servers_say_300_of_them_cause_at_most_20_writes_a_second(found: list[int | None]) -> None:
    gauge = Gauge()
    news = [at * POLL for at, each in enumerate(found) if gauge.update(each, at * POLL)]
    seconds = len(found) * POLL
    assert len(news) <= seconds / SPACE + 1


@settings(max_examples=many(100))
@given(st.integers(0, 500), st.lists(st.integers(0, 500), max_size=20))
def test_what_stays_is_told_exactly_in_the_end(value: int, before: list[int]) -> None:
    after = int(SETTLED // POLL) + 1
    assert reported_after(*before, *[value] * after)[-1] == value


@pytest.mark.parametrize(
    ("metrics", "found"),
    [
        (b"", None),
        (b"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting 2.0\n", 2),
        (b'vllm:num_requests_waiting{model_name="a}b"} 2\r\nvllm:num_requests_running{} 9\n', 2),
        (b"vllm:num_requests_waiting_by_reason 9\nother 1\n", None),
        (b'sglang:num_queue_reqs{tp_rank="0"} 5e0 1700000000\n', 5),
    ],
)
def test_the_model_servers_own_words_are_read(metrics: bytes, found: int | None) -> None:
    assert waiting(metrics) == found


@pytest.mark.parametrize("value", [b"NaN", b"+Inf", b"-1", b"many", b"1e300"])
def test_nonsense_is_no_number_of_requests(value: bytes) -> None:
    with pytest.raises(ValueError):
        waiting(b"vllm:num_requests_waiting " + value + b"\n")


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=5))
def test_the_model_servers_of_one_replica_are_added_up(counts: list[int]) -> None:
    lines = [b'vllm:num_requests_waiting{engine="%d"} %d' % item for item in enumerate(counts)]
    assert waiting(b"\n".join(lines)) == sum(counts)
