"""The token bucket of an account."""

from __future__ import annotations

import pytest

from chalicelib.backends.kit.limits import TokenBucket, bucket_of, take_from_all
from chalicelib.domain.instants import SECOND
from chalicelib.errors import Throttled


class Time:
    at = 1_795_000_000 * SECOND

    def now(self) -> int:
        return self.at

    def pass_(self, seconds: float) -> None:
        self.at += round(seconds * SECOND)


def taken(bucket: TokenBucket, most: int = 1000) -> int:
    """How many tokens it has now."""
    for number in range(most):
        try:
            bucket.take()
        except Throttled:
            return number
    return most


def wait(bucket: TokenBucket) -> float:
    with pytest.raises(Throttled) as found:
        bucket.take()
    return found.value.retry_after


def test_a_full_bucket_has_its_burst_and_then_the_rate() -> None:
    time = Time()
    bucket = TokenBucket("Example", 2.0, 5, time.now)
    assert taken(bucket) == 5
    time.pass_(1)
    assert taken(bucket) == 2
    time.pass_(3600)
    assert taken(bucket) == 5


@pytest.mark.parametrize("burst", [1, 3])
def test_the_time_that_it_names_is_when_it_has_a_token(burst: int) -> None:
    time = Time()
    bucket = TokenBucket("Example", 1 / 12, burst, time.now)
    taken(bucket)
    assert wait(bucket) == 12.0
    time.pass_(11.9)
    assert taken(bucket) == 0
    time.pass_(0.1)
    assert taken(bucket) == 1


def test_a_refused_call_takes_nothing() -> None:
    time = Time()
    bucket = TokenBucket("Example", 1.0, 1, time.now)
    bucket.take()
    assert [wait(bucket) for _ in range(5)] == [1.0] * 5


def test_a_pause_ends_when_the_longest_does() -> None:
    time = Time()
    bucket = TokenBucket("Example", 100.0, 10, time.now)
    bucket.pause(30), bucket.pause(5)
    assert wait(bucket) == 30.0
    time.pass_(30)
    assert taken(bucket) == 10


def test_what_takes_from_several_takes_from_all_or_none() -> None:
    time = Time()
    launches, account = TokenBucket("Example", 1 / 12, 1, time.now), TokenBucket("Example", 1.0, 2, time.now)
    account.take()
    account.take()
    with pytest.raises(Throttled) as found:
        take_from_all([launches, account])
    assert found.value.retry_after == 1.0
    time.pass_(1)
    take_from_all([launches, account])
    with pytest.raises(Throttled) as found:
        take_from_all([launches, account])
    assert found.value.retry_after == 12.0
    time.pass_(1)
    assert taken(account) == 1


def test_all_clients_of_an_account_share_its_bucket() -> None:
    time = Time()
    first, other = (bucket_of("Example", key, 1.0, 4, time.now) for key in ("key", "another"))
    assert taken(first) == 4
    assert taken(bucket_of("Example", "key", 1.0, 4, time.now)) == 0
    assert taken(other) == 4
    assert taken(bucket_of("Example", "key", 1.0, 4, time.now, "launches")) == 4
    first.pause(30)
    time.pass_(20)
    assert wait(bucket_of("Example", "key", 1.0, 4, time.now)) == 10.0


def test_a_bucket_goes_with_its_last_client() -> None:
    time = Time()
    assert taken(bucket_of("Example", "key", 1.0, 4, time.now)) == 4
    assert taken(bucket_of("Example", "key", 1.0, 4, time.now)) == 4
