"""Gateways on hosts, over the real store: what passes write, what is found of it, and what erases it."""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.domain import keys
from chalicelib.domain.gateways import Gateway, GatewayStatus, ReplicaState
from chalicelib.domain.instances import Instance, InstanceStatus, Presence
from chalicelib.domain.instants import DAY, HOUR, MINUTE
from chalicelib.machines.gateway import CHECK_HOSTS_EVERY, TO_LEAVE
from chalicelib.planning.gateways.gateways import apply_report
from chalicelib.planning.kernel.requests import delete_gateway
from chalicelib.planning.kernel.snapshot import NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.store import nouns
from tests.api.rig import Rig
from tests.engine.test_erase_unused import turn
from tests.world import nouns as b
from tests.world.engine import Engine
from tests.world.gateways import gateway


@pytest.fixture
def place() -> Engine:
    return Engine.in_memory()


def submitted(place: Engine, **fields: object) -> Gateway:
    of = gateway(**{"version": 0, "created_at": place.at, "due_at": place.at, "fleet": "hosts", **fields})
    place.store.commit([nouns.put(of), nouns.pointer(keys.gateway_name(b.PROJECT, of.name), of.id)])
    return of.with_(version=1)


def passes(place: Engine, after: int = 0) -> None:
    place.at += after + 1
    place.reconciler().run(sorted(place.take_woken()))


def report(place: Engine, of: Gateway, state_reported: str) -> None:
    """Each machine that carries it says how its replica is."""
    for replica in place.again(of).replicas:
        machine = nouns.find(place.store, Instance, keys.instance(replica.instance_id))
        now = place.again(of)
        assert machine is not None
        draft = Draft(place.at)
        apply_report(draft, now, machine, state_reported, "")
        place.plane.committer.take(NounsSnapshot(place.at, (now, machine)), draft.plan())


def test_it_is_placed_runs_moves_and_goes(place: Engine) -> None:
    first, second = place.hosts(2)
    of = submitted(place)
    passes(place)
    assert [each.instance_name for each in place.again(of).replicas] == [first.name]
    seat = place.again(first).gateway
    assert seat is not None and (seat.gateway_id, seat.num) == (of.id, 0)
    assert first.id in place.rung  # its agent is told, though it is idle
    report(place, of, "running")
    passes(place)
    assert place.again(of).status is GatewayStatus.running
    place.save(place.again(first).with_(status=InstanceStatus.terminating))
    passes(place, HOUR)
    passes(place)
    moved = [(each.instance_name, each.state) for each in place.again(of).replicas]
    assert moved == [(second.name, ReplicaState.provisioning)]
    gone = place.again(of)
    place.plane.committer.take(NounsSnapshot(place.at, (gone,)), delete_gateway(gone, Draft(place.at)))
    passes(place)
    machine = place.again(second)
    assert machine.gateway is not None and machine.gateway.leaving
    place.save(machine.with_(gateway=None))
    passes(place, TO_LEAVE + MINUTE)
    assert place.again(of).deleted and place.again(of).due_at is None
    assert place.plane.read.gateways(b.PROJECT) == []


def test_it_says_that_its_machine_cant_be_reached_and_then_that_it_can(place: Engine) -> None:
    (first,) = place.hosts(1)
    of = submitted(place)
    passes(place)
    report(place, of, "running")
    passes(place)
    for seen_until, message in ((place.at, f"{first.name}: it can't be reached"), (place.at + DAY, "")):
        agent = nouns.find(place.store, Presence, keys.presence(first.id))
        agent = agent or Presence(instance_id=first.id, project_id=first.project_id)
        place.save(agent.with_(seen_until=seen_until))
        place.at += MINUTE
        place.reconciler().run([f"instance/{first.id}"])
        passes(place)
        assert (place.again(of).status, place.again(of).message) == (GatewayStatus.running, message)


def test_it_waits_for_hosts_and_finds_them(place: Engine) -> None:
    of = submitted(place, wanted=2)
    passes(place)
    assert place.again(of).message == "the fleet hosts no longer exists"
    place.hosts(2)
    passes(place, CHECK_HOSTS_EVERY)
    assert len(place.again(of).replicas) == 2 and place.again(of).message == ""


def test_hosts_are_read_only_while_a_replica_has_none(place: Engine) -> None:
    place.hosts(40)
    of = submitted(place)
    passes(place)
    before = place.store.read
    passes(place, HOUR)
    assert place.store.read - before < 40, "a gateway whose replicas have machines reads those machines"
    assert place.again(of).replicas


def test_a_deleted_one_is_erased_with_its_name_and_its_place_as_the_default(tmp_path: Path) -> None:
    rig = Rig.at(tmp_path)
    store, now = rig.world.store, rig.world.clock.now()
    of = gateway(version=0, status=GatewayStatus.deleted, deleted_at=now, due_at=None)
    of = of.with_(project_id=rig.project.id)
    pointers = [keys.gateway_name(rig.project.id, of.name), keys.default_gateway(rig.project.id)]
    store.commit([nouns.put(of), *(nouns.pointer(key, of.id) for key in pointers)])
    rig.world.clock.pass_(29 * DAY / 1e6)
    assert turn(rig).gateways == []
    rig.world.clock.pass_(2 * DAY / 1e6)
    assert turn(rig).gateways == [of.id]
    assert [store.get(key) for key in (keys.gateway(of.id), *pointers)] == [None, None, None]
