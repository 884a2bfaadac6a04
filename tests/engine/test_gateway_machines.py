"""A gateway on machines of the simulated cloud, from its order to its end, with the real engine and agents' sessions on
virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain import keys
from chalicelib.domain.gateways import Gateway, GatewayStatus
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE, SECOND
from chalicelib.planning.kernel.requests import delete_gateway
from chalicelib.planning.kernel.snapshot import NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.store import nouns
from chalicelib.usecases.operator.backends import uses
from tests.world.embedded import EmbeddedSite

LONG = 60 * MINUTE


class Door:
    """A gateway of the site's project `main`."""

    def __init__(self, site: EmbeddedSite, **fields: Any) -> None:
        self.site, self.store = site, site.root.ports.store
        pointer = nouns.find_target(self.store, keys.project_name("main"))
        assert pointer is not None
        self.project = pointer[0]
        now = site.time.at
        made = Gateway(
            id=derive("door", "gateway"),
            project_id=self.project,
            name="door",
            configuration='{"type": "gateway"}',
            backend=site.cloud.facts.name,
            region="sim-north",
            created_at=now,
            last_processed_at=now,
            due_at=now,
            **fields,
        )
        self.id = made.id
        name = nouns.pointer(keys.gateway_name(self.project, "door"), made.id)
        self.store.commit([nouns.put(made), name])
        site.root.plane.wake([made.unit])

    @property
    def now(self) -> Gateway:
        found = nouns.find(self.store, Gateway, keys.gateway(self.id))
        assert found is not None
        return found

    def machines(self) -> list[Instance]:
        found = [keys.instance(each.instance_id) for each in self.now.replicas]
        return [each for each in nouns.find_many(self.store, Instance, found) if each]

    def becomes(self, status: GatewayStatus, within: int = LONG) -> Gateway:
        done = self.site.time.run(self.site.time.at + within, lambda: self.now.status is status)
        assert done, (self.now, self.machines())
        return self.now

    def delete(self) -> None:
        plane, gateway = self.site.root.plane, self.now
        draft = Draft(self.site.time.now())
        plane.committer.take(NounsSnapshot(draft.now, (gateway,)), delete_gateway(gateway, draft), [])
        plane.wake([gateway.unit])

    def owned(self) -> list[str]:
        return [each.handle.id for each in self.site.cloud.list_owned()]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[EmbeddedSite]:
    made = EmbeddedSite("gateways", tmp_path / "data")
    yield made
    made.close()


@pytest.mark.slow
def test_a_gateway_gets_its_machines_and_leaves_none(site: EmbeddedSite) -> None:
    door = Door(site, wanted=2)
    running = door.becomes(GatewayStatus.running)
    machines = door.machines()
    assert [each.status for each in machines] == [InstanceStatus.idle] * 2 and len(door.owned()) == 4  # with disks
    assert all(each.hostname for each in running.replicas)
    assert [vm["open_ports"] for vm in site.cloud.machines()] == [[80, 443]] * 2
    assert [site.hosts.hosts[name].carried for name in site.hosts.hosts] == [
        {"id": door.id, "num": num, "http": 80, "https": 443} for num in (0, 1)
    ]
    site.time.run(site.time.at + LONG)
    assert door.machines() and all(each.status is InstanceStatus.idle for each in door.machines()), "nobody is idle"
    assert uses(site.root.plane, door.project, site.cloud.facts.name) == ["gateway door"]
    door.delete()
    door.becomes(GatewayStatus.deleted)
    assert door.owned() == [] and not door.now.replicas
    found = nouns.find_many(door.store, Instance, [keys.instance(each.id) for each in machines])
    assert [each.status for each in found if each] == [InstanceStatus.terminated] * 2


@pytest.mark.slow
def test_no_job_is_placed_on_its_machine_and_no_list_shows_it(site: EmbeddedSite) -> None:
    door = Door(site)
    door.becomes(GatewayStatus.running)
    assert site.call("/api/instances/list", {}) == []
    fleet = {"configuration": {"type": "fleet", "name": "pool", "nodes": "0..1"}}
    site.call("/api/project/main/fleets/apply", {"plan": {"spec": fleet}, "force": False})
    spec = {"run_name": "work", "configuration": {"type": "task", "commands": ["true"]}}
    site.call("/api/project/main/runs/apply", {"plan": {"run_spec": spec}, "force": False})
    site.time.run(site.time.at + LONG)
    assert [each.claims for each in door.machines()] == [()]
    run = site.call("/api/project/main/runs/get", {"run_name": "work"})
    where = run["latest_job_submission"]["job_provisioning_data"]["instance_id"]
    assert where and where != door.machines()[0].id


@pytest.mark.slow
def test_what_isnt_sold_is_tried_elsewhere_then_later_and_nothing_stays(site: EmbeddedSite) -> None:
    site.behave('{"capacity": {"sim-north/sim.2cpu": 0, "sim-north/sim.4cpu": 0, "sim-north/sim.8cpu": 0}}')
    door = Door(site)
    site.time.run(site.time.at + 10 * SECOND)
    assert door.now.orders.pauses == 1 and "no sim.8cpu is left in sim-north" in door.now.message
    failed = door.becomes(GatewayStatus.failed)
    assert "is left in sim-north" in failed.message
    site.behave("{}")
    door.becomes(GatewayStatus.running)
    assert len(door.owned()) == 2
    door.delete()
    door.becomes(GatewayStatus.deleted)
    assert door.owned() == []


@pytest.mark.slow
def test_a_machine_that_its_cloud_loses_is_replaced(site: EmbeddedSite) -> None:
    door = Door(site)
    door.becomes(GatewayStatus.running)
    (before,) = door.machines()
    for handle in before.handles:
        site.cloud.terminate(handle)
    site.hosts.kill(next(handle.id for handle in before.handles if handle.kind == "vm"))

    def another() -> bool:
        return [each.id for each in door.machines()] not in ([], [before.id]) and bool(door.now.running)

    assert site.time.run(site.time.at + LONG, another), door.now
    assert len(door.owned()) == 2


@pytest.mark.parametrize("pause", [0.005, 0.015, 0.03, 0.3, 5.0])
@pytest.mark.slow
def test_one_that_is_deleted_while_it_is_bought_leaves_nothing(pause: float, site: EmbeddedSite) -> None:
    door = Door(site)
    site.time.run(site.time.at + round(pause * SECOND))
    door.delete()
    door.becomes(GatewayStatus.deleted)
    site.time.run(site.time.at + LONG)
    assert door.owned() == []
