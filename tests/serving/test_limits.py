"""Rate limits: against a bucket that leaks, which is another way to say the same, and by the paths they apply to."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.domain.instants import SECOND
from chalicelib.domain.specs.services import HeaderPartitioningKey, RateLimit
from chalicelib.serving import routing
from chalicelib.serving.limits import Limiter, applying, client
from tests.harness.examples import many


class Bucket:
    """Each request that passes puts a drop in; drops leak at the rate; there is room for the burst and one more."""

    def __init__(self, interval: int, burst: int) -> None:
        self._interval, self._burst = interval, burst
        self._level, self._at = Fraction(0), 0

    def passes(self, now: int) -> bool:
        self._level = max(Fraction(0), self._level - Fraction(now - self._at, self._interval))
        self._at = now
        if self._level > self._burst:
            return False
        self._level += 1
        return True


RATES = st.sampled_from([1 / 60, 0.5, 1, 3, 7.5, 100, 1e6])
TRACES = st.lists(st.integers(0, 3 * SECOND), min_size=1, max_size=60)


@settings(max_examples=many(200), deadline=None)
@given(rps=RATES, burst=st.integers(0, 6), pauses=TRACES)
def test_it_lets_through_what_a_leaking_bucket_would(rps: float, burst: int, pauses: list[int]) -> None:
    limit, limiter, now = RateLimit(rps=rps, burst=burst), Limiter(), 0
    bucket = Bucket(max(1, round(SECOND / rps)), burst)
    for pause in pauses:
        now += pause
        assert (limiter.admit("s", limit, "me", now) == 0) is bucket.passes(now)


@settings(deadline=None)
@given(rps=RATES, burst=st.integers(0, 4), pauses=TRACES)
def test_who_waits_as_long_as_told_passes_and_not_before(rps: float, burst: int, pauses: list[int]) -> None:
    limit, now = RateLimit(rps=rps, burst=burst), 0
    for pause in pauses:
        limiter = Limiter()
        for _ in range(burst + 1):
            assert limiter.admit("s", limit, "me", now) == 0
        wait = limiter.admit("s", limit, "me", now)
        assert wait > 0
        assert limiter.admit("s", limit, "me", now + wait - 1) == 1
        assert limiter.admit("s", limit, "me", now + wait) == 0
        now += pause


def test_clients_services_and_prefixes_have_their_own() -> None:
    limiter, one, other = Limiter(), RateLimit(rps=1), RateLimit(rps=1, prefix="/other")
    assert limiter.admit("s", one, "me", 0) == 0
    assert limiter.admit("s", one, "me", 0) > 0
    assert limiter.admit("s", one, "you", 0) == 0
    assert limiter.admit("t", one, "me", 0) == 0
    assert limiter.admit("s", other, "me", 0) == 0


def test_a_flood_of_clients_makes_it_forget_those_that_are_quiet_soonest() -> None:
    limiter, slow = Limiter(most=100), RateLimit(rps=1 / 60)
    for number in range(1000):
        limiter.admit("s", slow, f"client-{number}", number)
        assert len(limiter) <= 100
    assert limiter.admit("s", slow, "client-999", 1000) > 0
    assert limiter.admit("s", slow, "client-0", 1000) == 0


LIMITS = (RateLimit(rps=1), RateLimit(rps=1, prefix="/api"), RateLimit(rps=1, prefix="/api/slow"))


@pytest.mark.parametrize(
    ("path", "prefix"),
    [
        (b"/", "/"),
        (b"/api", "/api"),
        (b"/api/slow/x", "/api/slow"),
        (b"/%61pi/slo%77", "/api/slow"),
        (b"//api///slow", "/api/slow"),
        (b"/API", "/"),
    ],
)
def test_the_longest_prefix_of_the_path_as_it_is_read(path: bytes, prefix: str) -> None:
    limit = applying(LIMITS, routing.read(path))
    assert limit is not None and limit.prefix == prefix
    assert applying(LIMITS[1:], b"/other") is None


def test_clients_are_told_apart_by_address_or_by_a_header() -> None:
    sent = {"x-key": "mine"}
    by_header = RateLimit(rps=1, key=HeaderPartitioningKey(type="header", header="X-Key"))
    assert client(LIMITS[0], "10.0.0.1", lambda name: sent.get(name, "")) == "10.0.0.1"
    assert client(by_header, "10.0.0.1", lambda name: sent.get(name, "")) == "mine"
    assert client(by_header, "10.0.0.1", lambda name: "") == ""


def test_a_long_value_is_remembered_as_a_short_one_of_its_own() -> None:
    by_header = RateLimit(rps=1, key=HeaderPartitioningKey(type="header", header="X-Key"))
    long = [client(by_header, "", lambda name, end=end: "\xe9" * 10_000 + end) for end in ("", "a")]
    assert len(set(long)) == 2 and max(map(len, long)) <= 64
