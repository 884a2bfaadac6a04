"""Machines whose agent reports before their purchase has recorded them, or long after the first attempt at it."""

from __future__ import annotations

import pytest

from chalicelib.domain.instances import Handle, InstanceStatus
from tests.planning.machines.test_instance import OPEN, World
from tests.world import nouns as b


def test_a_purchase_that_its_agent_overtakes_is_waited_for() -> None:
    """Its agent reports before the purchase has recorded the machine. Until that is over, its provider may show nothing
    of it, so it isn't called gone, and its release would wait."""
    world = World(handles=(Handle(kind="disk", id="d1"),)).reported()
    world.decide()
    assert (world.instance.status, world.instance.act_until) == (InstanceStatus.idle, OPEN)
    world.now = OPEN - 1
    world.seen("gone")
    assert world.instance.status is InstanceStatus.idle
    world.now = OPEN
    world.seen("gone")
    assert world.instance.status is InstanceStatus.terminating


@pytest.mark.parametrize("status", ["idle", "busy", "terminating"])
def test_a_purchase_that_its_agent_overtook_is_over_once_everything_is_recorded(status: str) -> None:
    world = World(status, act_until=OPEN, handles=(Handle(kind="vm", id="v1"),))
    world.bought()
    assert (world.instance.status.value, world.instance.act_until) == (status, None)


def test_a_machine_that_was_bought_at_a_later_attempt_is_hidden_for_the_lag_too() -> None:
    joined = OPEN + 5 * b.MINUTE
    world = World("busy", created_at=b.NOW, started_at=joined, handles=(Handle(kind="vm", id="v1"),))
    world.with_job("running")
    world.now = joined + world.facts.visibility_lag - 1
    world.seen("gone")
    assert world.instance.status is InstanceStatus.busy
