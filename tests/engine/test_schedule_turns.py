"""A schedule's turn is taken once, however often and by however many it is fired."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from chalicelib.backends.accounts import Account, Accounts
from chalicelib.backends.simulated.cloud import FakeCloud
from chalicelib.domain import keys
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.domain.turns import ScheduleTurn
from chalicelib.engine.schedule_turns import claim_turn
from chalicelib.runtime.lambda_ import fired_at
from chalicelib.store import nouns
from chalicelib.store.memory import MemoryStore
from chalicelib.store.port import Change
from functions import sweep_orphans
from tests.functions.test_handlers import Stack
from tests.harness.lambda_host import scheduled_event
from tests.world.nouns import NOW


def test_a_turn_is_taken_once_and_the_next_one_again() -> None:
    store = MemoryStore(clock=lambda: NOW)
    assert [claim_turn(store, "sweep", at) for at in (NOW, NOW, NOW + MINUTE, NOW)] == [True, False, True, False]
    assert claim_turn(store, "refresh", NOW), "each schedule has its own"


def test_of_two_at_the_same_moment_one_takes_it() -> None:
    class Raced(MemoryStore):
        def commit(self, changes: Sequence[Change]) -> None:
            if (last := nouns.find(self, ScheduleTurn, keys.schedule("sweep"))) is None:
                super().commit([nouns.put(ScheduleTurn(schedule="sweep", at=NOW))])
            else:
                assert last.at == NOW
            super().commit(changes)

    assert not claim_turn(Raced(clock=lambda: NOW), "sweep", NOW)


def test_a_schedules_event_says_its_turn_and_others_have_none() -> None:
    assert fired_at(scheduled_event("sweep", NOW / SECOND)) == NOW // SECOND * SECOND
    assert fired_at({}) is None


@pytest.fixture
def stack(tmp_path: Path) -> Any:
    made = Stack.at(tmp_path)
    yield made
    made.root.close()


def test_a_schedule_that_fires_twice_sends_each_account_once(stack: Stack) -> None:
    clouds = [FakeCloud(stack.rig.world.clock.now) for _ in range(3)]
    backends = Accounts([Account.of(cloud, f"p{number}") for number, cloud in enumerate(clouds)])
    object.__setattr__(stack.root.ports, "backends", backends)
    fires = stack.fires("sweep")
    done = [sweep_orphans.handler(fires, None, stack.root)["accounts"] for _ in range(2)]
    assert [len(accounts) for accounts in done] == [3, 0]
    assert sorted(event["sweep"] for event in stack.events) == sorted(done[0])
    stack.rig.world.clock.pass_(300)
    assert len(sweep_orphans.handler(stack.fires("sweep"), None, stack.root)["accounts"]) == 3
    assert len(sweep_orphans.handler({}, None, stack.root)["accounts"]) == 3, "whoever else asks gets one"


def test_no_account_is_always_the_last(stack: Stack) -> None:
    """A turn may be cut off, if there are very many."""
    cloud = FakeCloud(stack.rig.world.clock.now)
    backends = Accounts([Account.of(cloud, f"p{number}") for number in range(7)])
    object.__setattr__(stack.root.ports, "backends", backends)
    last = set[str]()
    for _ in range(7):
        stack.rig.world.clock.pass_(300)
        last.add(sweep_orphans.handler(stack.fires("sweep"), None, stack.root)["accounts"][-1])
    assert len(last) == 7


def test_without_accounts_a_schedule_reads_and_writes_nothing_of_its_turn(stack: Stack) -> None:
    object.__setattr__(stack.root.ports, "backends", Accounts())
    assert sweep_orphans.handler(stack.fires("sweep"), None, stack.root) == {"accounts": []}
    assert nouns.find(stack.root.ports.store, ScheduleTurn, keys.schedule("sweep")) is None and stack.events == []
