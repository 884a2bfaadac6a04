"""Agents that break their promise, where every write is billed: found in every minute's round, without a due time."""

from __future__ import annotations

from chalicelib.domain import keys
from chalicelib.domain.instances import Instance, InstanceStatus, Presence
from chalicelib.domain.instants import HOUR, MINUTE
from chalicelib.engine.silent_agents import silent_units
from chalicelib.store import nouns
from tests.world import nouns as b
from tests.world.engine import Engine


def watched(place: Engine, count: int = 2) -> list[Presence]:
    """The presences of so many hosts, one of which is silent from half an hour on."""
    found = []
    for number, host in enumerate(place.hosts(count)):
        presence = nouns.find(place.store, Presence, b.presence_of(host).place().key)
        assert presence is not None
        promise = place.at + (HOUR if number else HOUR // 2)
        place.save(presence.with_(watched=True, seen_until=promise))
        found.append(place.again(presence))
    return found


def test_whoever_breaks_a_promise_is_named_until_that_is_known() -> None:
    place = Engine.in_memory()
    late, _ = watched(place)
    assert silent_units(place.store, place.clock) == []
    place.at += HOUR // 2 + MINUTE
    assert silent_units(place.store, place.clock) == [f"instance/{late.instance_id}"]
    place.reconciler().run(silent_units(place.store, place.clock))
    assert silent_units(place.store, place.clock) == []


def test_nobody_expects_a_report_of_a_machine_that_has_ended() -> None:
    place = Engine.in_memory()
    late, _ = watched(place)
    place.at += HOUR // 2 + MINUTE
    instance = nouns.find(place.store, Instance, keys.instance(late.instance_id))
    assert instance is not None
    place.save(instance.with_(status=InstanceStatus.terminated, finished_at=place.at, due_at=None))
    assert silent_units(place.store, place.clock) == []
    assert place.again(late).over and place.again(late).place().gsi1 is None


def test_a_pass_is_due_all_the_same_in_case_nobody_watches() -> None:
    presence = Presence(instance_id="i", project_id="p", seen_until=MINUTE)
    assert presence.check_at == MINUTE + 1
    assert presence.with_(watched=True).check_at == MINUTE + 6 * HOUR
