"""Look-ups that are shared by those who ask at once."""

from __future__ import annotations

import threading

import pytest

from chalicelib.backends.kit.cache import LookupCache, SharedLookup
from tests.harness.server import until


def test_who_asks_at_once_shares_a_look_up_that_began_after_the_question() -> None:
    shared, begun, release = SharedLookup[int](), threading.Semaphore(0), threading.Semaphore(0)
    values, found = iter([1, 2, 3]), list[int]()

    def look_up() -> int:
        value = next(values)
        begun.release()
        assert release.acquire(timeout=120)
        return value

    def ask() -> None:
        found.append(shared.get("here", look_up))

    threads = [threading.Thread(target=ask) for _ in range(9)]
    threads[0].start()
    assert begun.acquire(timeout=120)
    for thread in threads[1:]:
        thread.start()
    until("all to ask", lambda: shared.waiting("here") == 9)
    release.release()  # the first one's; what the others get has yet to begin
    assert begun.acquire(timeout=120)
    release.release()
    for thread in threads:
        thread.join(120)
    assert sorted(found) == [1, *[2] * 8]
    release.release()
    assert shared.get("here", look_up) == 3, "nothing is kept"


def test_a_look_up_that_fails_is_the_failure_of_one() -> None:
    shared = SharedLookup[int]()

    def fail() -> int:
        raise LookupError("not now")

    with pytest.raises(LookupError):
        shared.get("here", fail)
    assert shared.get("here", lambda: 1) == 1


def test_what_was_looked_up_before_a_clear_is_not_cached() -> None:
    """It may be older than what the clear was about."""
    cache, values = LookupCache[int](lambda: 0), iter([1, 2])

    def look_up() -> int:
        cache.clear()
        return next(values)

    assert cache.get("here", look_up) == 1
    assert cache.get("here", lambda: next(values)) == 2
    assert cache.get("here", lambda: next(values)) == 2
