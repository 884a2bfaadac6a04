"""How soon a machine that ends is asked for again: often at first, and ever more rarely once that could have shown its
end."""

from __future__ import annotations

import pytest

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instants import HOUR
from chalicelib.planning.machines.outcomes import FREQUENT_CHECKS
from tests.planning.machines.test_instance import World
from tests.world import nouns as b


def test_what_is_still_going_is_asked_for_soon_and_then_ever_more_rarely() -> None:
    world = World("terminating", due_at=b.NOW, created_at=b.NOW - HOUR, started_at=b.NOW - HOUR)
    assert [pause_after_asking(world) for _ in range(7)] == [5, 5, 5, 5, 80, 160, 300]


@pytest.mark.parametrize("started", [False, True])
def test_what_may_be_gone_but_is_too_new_to_prove_it_is_asked_for_as_soon_as_before(started: bool) -> None:
    """Requests that could show nothing don't count: the first that can isn't minutes away."""
    born, slow = b.NOW + b.SECOND, BackendFacts(name="aws", visibility_lag=b.MINUTE)
    world = World("terminating", due_at=b.NOW, created_at=born, started_at=born if started else None, facts=slow)
    shown_by = born + world.facts.visibility_lag + (0 if started else world.facts.create_timeout)
    early = 0
    while world.now < shown_by:
        assert pause_after_asking(world) == 5
        early += 1
    assert early > 2 * FREQUENT_CHECKS
    assert [pause_after_asking(world) for _ in range(4)] == [5, 5, 5, 80]


def test_requests_for_which_it_was_too_soon_do_not_count() -> None:
    world = World("terminating", due_at=b.NOW, created_at=b.NOW - HOUR, started_at=b.NOW - HOUR)
    for _ in range(10):
        world.decide()
        world.not_done("Throttled", "wait your turn")
        world.now = world.instance.due_at or 0
    assert [pause_after_asking(world) for _ in range(4)] == [5, 5, 5, 80]


def pause_after_asking(world: World) -> int:
    """Asks for the end of what is still going, and waits; returns the seconds."""
    world.decide()
    world.left("vm v1 is being removed")
    due, began = world.instance.due_at or 0, world.now
    world.now = due
    return (due - began) // b.SECOND
