"""Gateways for tests: a record that runs on a host of the local fleet, and the host's agent as whom it asks."""

from __future__ import annotations

from typing import Any

import orjson

from chalicelib.domain import keys
from chalicelib.domain.gateways import Gateway, GatewayReplica, GatewaySeat, ReplicaState
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Instance, Presence
from chalicelib.domain.tenants import hash_token
from chalicelib.store import nouns
from chalicelib.store.port import Store
from tests.world import nouns as b


def gateway(project_id: str, *machines: Instance, name: str = "edge", **rest: Any) -> Gateway:
    """One that runs on these machines."""
    written = {"type": "gateway", "name": name, **rest.pop("written", {})}
    made = Gateway(
        id=derive(f"{project_id}/{name}", "gateway"),
        project_id=project_id,
        name=name,
        configuration=orjson.dumps(written).decode(),
        created_at=b.NOW,
        last_processed_at=b.NOW,
        **{"domain": "example.test", **rest},
    )
    replicas = (
        GatewayReplica(
            num=num, instance_id=each.id, state=ReplicaState.running, hostname=each.hostname, created_at=b.NOW
        )
        for num, each in enumerate(machines)
    )
    return made.with_(replicas=tuple(replicas))


def seated(machine: Instance, gateway: Gateway, num: int = 0) -> Instance:
    http, https = gateway.http_port, gateway.https_port
    seat = GatewaySeat(gateway_id=gateway.id, name=gateway.name, num=num, http_port=http, https_port=https)
    return machine.with_(gateway=seat)


def credential(machine: Instance) -> str:
    return f"{machine.id}.secret"


def agent(machine: Instance) -> Presence:
    """Of an agent that has that credential."""
    hashed = hash_token(credential(machine))
    return Presence(instance_id=machine.id, project_id=machine.project_id, credential_hash=hashed)


def record(store: Store, made: Gateway, *, default: bool = False) -> Gateway:
    """In the store, under its name."""
    changes = [nouns.put(made), nouns.pointer(keys.gateway_name(made.project_id, made.name), made.id)]
    if default:
        changes.append(nouns.pointer(keys.default_gateway(made.project_id), made.id))
    store.commit(changes)
    found = nouns.find(store, Gateway, keys.gateway(made.id))
    assert found is not None
    return found


def keep(store: Store, made: Gateway, *machines: Instance, default: bool = False) -> Gateway:
    """The same, and on these machines."""
    seats = [seated(machine, made, num) for num, machine in enumerate(machines)]
    store.commit([nouns.put(each) for seat in seats for each in (seat, agent(seat))])
    return record(store, made, default=default)
