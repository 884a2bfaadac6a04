"""At no moment do two servers of a pair decide, and before long one does."""

from __future__ import annotations

import pytest

from chalicelib.runtime.pair.protocol import PATIENCE
from tests.runtime.pair.simulation import LASTS, Rules, World, histories

PLANTED = {
    "a shorter wait": Rules(patience=lambda watch, now: watch.left(now) - LASTS),
    "a lease that is counted from the answer": Rules(counts_from_answer=True, fastest=1.9),
    "swaps without a condition": Rules(blind=True),
    "clocks that differ by more than the wait": Rules(fastest=4.0),
}


@pytest.mark.slow
def test_two_servers_never_decide_at_once() -> None:
    found = histories(range(150))
    assert found.both == []
    assert found.takeovers > 1_000, "there was trouble enough"


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED)
def test_the_simulation_notices(planted: str) -> None:
    assert histories(range(150), PLANTED[planted]).both


def test_without_trouble_the_first_server_decides_for_good() -> None:
    world = World(1, Rules(faults=False))
    world.run(300.0)
    assert world.deciders == ["a"] and not world.both


def test_a_killed_server_is_followed_by_another_within_the_wait() -> None:
    world = World(2, Rules(faults=False, fastest=1.0))
    world.run(60.0)
    world.kill(world.servers[0], back_after=1e9)
    world.run(60.0 + PATIENCE * LASTS + 10.0)
    assert world.deciders[0] == "a" and len(world.deciders) == 2
    assert [server.decides(world.now) for server in world.servers].count(True) == 1


def test_a_killed_server_that_is_back_before_that_goes_on() -> None:
    world = World(3, Rules(faults=False))
    world.run(60.0)
    world.kill(world.servers[0], back_after=5.0)
    world.run(200.0)
    assert world.deciders == ["a"] and world.place.found is not None and world.place.found.lease.epoch == 2


def test_a_paused_server_decides_nothing_when_it_wakes() -> None:
    world = World(4, Rules(faults=False))
    world.run(60.0)
    world.pause(world.servers[0], 120.0)
    world.run(179.9)
    assert len(world.deciders) == 2
    world.run(400.0)
    assert not world.both and len(world.deciders) == 2
