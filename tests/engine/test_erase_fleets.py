"""Fleets and instances that have ended are erased; whoever still speaks of them goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.contacts import Contact
from chalicelib.domain.fleets import Fleet, FleetStatus
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import DAY
from chalicelib.domain.jobs import Assignment
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.engine.erase_unused import BATCH, Erased, Eraser
from chalicelib.errors import Forbidden, Refused
from chalicelib.runtime.local_fleet import ensure_fleet
from chalicelib.store import nouns
from chalicelib.usecases.agents.calls import sync
from tests.api.rig import Rig, fleet, submit, task
from tests.api.test_fleets import add_instance, create, fleet_of, instance_of
from tests.api.test_runs import finish, job_of
from tests.engine.test_erase_unused import Crashing, pass_days, turn
from tests.world import nouns as b
from tests.world.engine import Engine


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig.at(tmp_path)
    yield made
    made.world.plane.store.close()


def end(rig: Rig, instance: Instance) -> Instance:
    """As the engine does once nothing of it is left."""
    now = rig.world.clock.now()
    gone = instance_of(rig, instance.id).with_(status=InstanceStatus.terminated, finished_at=now, last_processed_at=now)
    rig.save(gone)
    return gone


def end_fleet(rig: Rig, made: Any) -> Fleet:
    rig.ok("P/fleets/delete", {"names": [made["name"]]})
    now = rig.world.clock.now()
    ended = fleet_of(rig, made["id"]).with_(
        status=FleetStatus.terminated, deleted=True, due_at=None, last_processed_at=now
    )
    rig.save(ended)
    return ended


def left_of(rig: Rig, partition: str) -> list[str]:
    return [record.key.sk for record in rig.world.plane.store.query("main", partition).records]


def test_a_terminated_instance_goes_with_its_agents_record_and_a_live_one_stays(rig: Rig) -> None:
    made = create(rig, fleet())
    gone, live = add_instance(rig, made), add_instance(rig, made, 1)
    rig.save(b.presence_of(gone), Contact(instance_id=gone.id, shown=("a key",)), b.presence_of(live))
    end(rig, gone)
    pass_days(rig, 29.9)
    assert turn(rig).instances == []
    pass_days(rig, 0.1)
    assert turn(rig).instances == [gone.id]
    assert left_of(rig, f"instance/{gone.id}") == []
    assert left_of(rig, f"instance/{live.id}") == ["presence", "status"]
    assert turn(rig) == Erased()
    assert [each["id"] for each in rig.ok("/api/instances/list", {})] == [live.id]
    assert "There is no instance" in rig.refused("P/instances/get", {"id": gone.id})


def test_how_long_is_the_operators_choice(rig: Rig) -> None:
    gone = end(rig, add_instance(rig, create(rig, fleet())))
    pass_days(rig, 2)
    assert turn(rig, fleets=3).instances == [] and turn(rig, fleets=2).instances == [gone.id]


def test_an_ended_fleet_goes_with_its_specs_and_its_name(rig: Rig) -> None:
    made = create(rig, fleet("pool"))
    instance = add_instance(rig, made)
    ended = end(rig, instance)
    end_fleet(rig, made)
    events = left_of(rig, keys.events_of(rig.project.id))
    pass_days(rig, 29.9)
    assert turn(rig).fleets == []
    pass_days(rig, 0.1)
    done = turn(rig)
    assert (done.instances, done.fleets) == ([ended.id], [made["id"]])
    assert left_of(rig, f"fleet/{made['id']}") == []
    assert "fleet-name/pool" not in left_of(rig, f"project/{rig.project.id}")
    assert left_of(rig, keys.events_of(rig.project.id)) == events, "what it cost stays known"
    assert rig.ok("/api/events/list", {"within_fleets": [made["id"]]})
    assert turn(rig) == Erased()
    assert create(rig, fleet("pool"))["id"] != made["id"]


def test_the_name_of_a_fleet_that_another_took_stays_with_that_one(rig: Rig) -> None:
    old = create(rig, fleet("pool"))
    end_fleet(rig, old)
    new = create(rig, fleet("pool"))
    pass_days(rig, 30)
    assert turn(rig).fleets == [old["id"]]
    assert rig.ok("P/fleets/get", {"name": "pool"})["id"] == new["id"]
    assert [each["id"] for each in rig.ok("/api/fleets/list", {})] == [new["id"]]


def test_a_run_still_shows_where_it_ran(rig: Rig) -> None:
    made = create(rig, fleet())
    instance = add_instance(rig, made)
    run = submit(rig, task())
    place = Assignment(
        instance_id=instance.id,
        instance_name=instance.name,
        fleet_id=made["id"],
        fleet_name=made["name"],
        offer=instance.offer,
        hostname="box",
        assigned_at=rig.world.clock.now(),
    )
    rig.save(job_of(rig, run["id"]).with_(assignment=place, due_at=None))
    finish(rig, run["id"])
    end(rig, instance)
    end_fleet(rig, made)
    before = rig.ok("P/runs/get", {"id": run["id"]})
    pass_days(rig, 30)
    assert turn(rig).fleets == [made["id"]]
    assert rig.ok("P/runs/get", {"id": run["id"]}) == before
    assert [each["id"] for each in rig.ok("/api/runs/list", {})] == [run["id"]]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("commits", range(4))
def test_a_crash_leaves_the_rest_to_the_next_turn(rig: Rig, commits: int, after: bool) -> None:
    made = create(rig, fleet())
    ended = end(rig, add_instance(rig, made))
    end_fleet(rig, made)
    pass_days(rig, 30)
    crashing: Any = Crashing(rig.world.plane.store, commits, after=after)
    with pytest.raises(KeyboardInterrupt):
        turn(rig, crashing)
    turn(rig)
    assert left_of(rig, f"fleet/{made['id']}") == left_of(rig, f"instance/{ended.id}") == []
    assert turn(rig) == Erased()


@pytest.mark.slow
def test_a_turn_is_bounded_and_a_pass_asks_for_none_of_them_again() -> None:
    world = Engine.in_memory()
    fleet = world.fleet("pool", nodes={"min": 0, "max": None})
    ended = [
        b.machine(num, fleet, status=InstanceStatus.terminated, finished_at=world.at, due_at=None)
        for num in range(BATCH + 3)
    ]
    for start in range(0, len(ended), 100):
        world.save(*ended[start : start + 100])
    world.save(world.again(fleet).with_(next_instance_num=len(ended)))
    world.at += 30 * DAY
    plane = world.plane
    eraser = Eraser(plane.store, plane.blobs, plane.logs, world.clock, plane.retention)
    assert [len(eraser.run().instances) for _ in range(3)] == [BATCH, 3, 0]
    read = world.reconciler().load.read
    now = world.again(fleet)
    read.view(now)
    world.store.keys.clear()
    assert read.view(now).instances == () and world.store.keys == []


# --- who comes back late --------------------------------------------------------------------------------------------


def test_an_agent_that_was_away_for_longer_still_learns_that_it_has_to_end(rig: Rig) -> None:
    plane = rig.world.plane
    instance = add_instance(rig, create(rig, fleet()))
    token = bootstrap_token(plane.install_key, instance.id, 0)
    hello = {"v": 1, "instance": instance.id, "boot": "b", "seq": 1, "agent": "test", "tasks": []}
    credential = sync(plane, instance.id, token, hello)["credential"]
    end(rig, instance)
    pass_days(rig, 30)
    assert turn(rig).instances == [instance.id]
    with pytest.raises(Forbidden):
        sync(plane, instance.id, credential, {**hello, "seq": 2})
    assert sync(plane, instance.id, token, {**hello, "seq": 2})["error"] == "gone"
    with pytest.raises(Forbidden):
        sync(plane, instance.id, bootstrap_token(b"x" * 32, instance.id, 0), {**hello, "seq": 2})


def test_this_machine_keeps_its_fleet_after_earlier_ones_were_erased(rig: Rig) -> None:
    plane, first = rig.world.plane, ensure_fleet(rig.world.plane, rig.project, "1")[0]
    end(rig, instance_of(rig, first.instance_id))
    end_fleet(rig, rig.ok("P/fleets/get", {"name": "local"}))
    second = ensure_fleet(plane, rig.project, "1")[0]
    assert second.instance_id != first.instance_id
    pass_days(rig, 30)
    assert len(turn(rig).fleets) == 1
    assert ensure_fleet(plane, rig.project, "1")[0] == second
    end(rig, instance_of(rig, second.instance_id))
    end_fleet(rig, rig.ok("P/fleets/get", {"name": "local"}))
    assert ensure_fleet(plane, rig.project, "1")[0].instance_id not in (first.instance_id, second.instance_id)


def test_a_fleet_of_the_users_that_has_this_machines_name_is_left_alone(rig: Rig) -> None:
    create(rig, fleet("local"))
    with pytest.raises(Refused, match="another fleet"):
        ensure_fleet(rig.world.plane, rig.project, "1")[0]
    found = nouns.find_target(rig.world.plane.store, keys.fleet_name(rig.project.id, "local"))
    assert found is not None and fleet_of(rig, found[0]).status is FleetStatus.active
