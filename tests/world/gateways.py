"""Gateways, and machines that carry their replicas."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.fleets import Fleet
from chalicelib.domain.gateways import Gateway, GatewayReplica, GatewaySeat, GatewayStatus, ReplicaState
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Instance
from chalicelib.planning.gateways.snapshots import GatewaySnapshot
from tests.world import nouns as b

FLEET = b.fleet("edge")


def gateway(name: str = "door", **rest: Any) -> Gateway:
    """One that was just submitted, for hosts of the fleet `edge`."""
    filled = {
        "configuration": '{"type": "gateway", "name": "door", "fleet": "edge"}',
        "fleet": "edge",
        "domain": "example.com",
        "created_at": b.NOW,
        "last_processed_at": b.NOW,
        "due_at": b.NOW,
        "version": 1,
    }
    return Gateway(id=derive(name, "gateway"), project_id=b.PROJECT, name=name, **{**filled, **rest})


def host(num: int = 0, *, of: Fleet = FLEET, **rest: Any) -> Instance:
    return b.host(num, of, **{"hostname": f"10.0.0.{num + 1}", "version": 1, **rest})


def carrying(of: Gateway, *machines: Instance, state: ReplicaState = ReplicaState.running, **rest: Any) -> Gateway:
    """The gateway with a replica on each machine; `seated` gives the machines their side."""
    replicas = [
        GatewayReplica(
            num=num,
            instance_id=machine.id,
            instance_name=machine.name,
            hostname=machine.hostname,
            state=state,
            created_at=b.NOW,
        )
        for num, machine in enumerate(machines)
    ]
    ran = {"status": GatewayStatus.running, "running_at": b.NOW}
    more = ran if state is ReplicaState.running else {"status": GatewayStatus.provisioning}
    return of.with_(**{"replicas": tuple(replicas), "wanted": len(machines), **more, **rest})


def seated(of: Gateway, machine: Instance, num: int = 0, **rest: Any) -> Instance:
    return machine.with_(gateway=GatewaySeat(gateway_id=of.id, name=of.name, num=num, **rest))


def snapshot_of(of: Gateway, *machines: Instance, now: int = b.NOW, fleet_exists: bool = True) -> GatewaySnapshot:
    """What is seen of it: the machines that carry it, and all as the hosts of its fleet."""
    carry = {each.instance_id for each in of.replicas}
    return GatewaySnapshot(now, of, {each.id: each for each in machines if each.id in carry}, machines, fleet_exists)
