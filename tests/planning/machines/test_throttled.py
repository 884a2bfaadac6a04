"""Calls that come too soon: nothing is wrong, and each waits for its turn."""

from __future__ import annotations

from chalicelib.domain.events import EventType
from chalicelib.planning.kernel.purchases import Create
from tests.planning.machines.test_instance import World, effects
from tests.world import nouns as b


def test_a_purchase_that_waits_for_its_turn_says_so_once() -> None:
    """Several that wait for one limit are told again and again."""
    world = World().with_job()
    said = []
    for error, message in (("Throttled", "too many"), ("Throttled", "too many"), ("Transient", "reset")) * 2:
        plan = world.not_bought(error, message, retry_after=1)
        said += [event.type for step in plan.steps for event in step.events]
        world.now = world.instance.due_at or 0
        assert effects(world.decide()) == [Create]
    assert said == [EventType.repeated] * 4


def test_a_termination_that_comes_too_soon_changes_no_reason() -> None:
    """Its jobs are told it."""
    world = World("terminating", due_at=b.NOW)
    world.instance = world.instance.with_(message="taken back by its provider")
    world.decide()
    plan = world.not_done("Throttled", "too many calls")
    assert [event for step in plan.steps for event in step.events] == []
    assert world.instance.message == "taken back by its provider"
    world.not_done("Transient", "reset")
    assert world.instance.message == "reset"
