"""The ownership of hosts: a host belongs to one fleet, and a refusal to add it to another one names that fleet."""

from __future__ import annotations

from chalicelib.domain import keys
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.hosts.inspection import LEAVES, Lack
from chalicelib.store import nouns
from chalicelib.store.port import Store


def ended(store: Store, owner: str, install_id: str) -> bool:
    """Whether `owner` is a terminated instance of this installation, whose remains on the host are unused."""
    installation, _, instance_id = owner.partition("/")
    found = nouns.find(store, Instance, keys.instance(instance_id)) if installation == install_id else None
    return found is not None and found.status is InstanceStatus.terminated


def held(store: Store, owner: str, install_id: str, project_id: str, fleet_id: str = "") -> Lack | None:
    """Why a host that belongs to `owner` (installation/instance) can't join this fleet of this project. None if the
    owner isn't an instance of this installation, or isn't known. Nothing about other projects is revealed."""
    installation, _, instance_id = owner.partition("/")
    if installation != install_id or not instance_id:
        return None
    found = nouns.find(store, Instance, keys.instance(instance_id))
    if found is None:
        return None
    if found.project_id != project_id:
        return Lack("it belongs to a fleet of another project of this server", LEAVES)
    if found.fleet_id == fleet_id:
        name = found.name if found.host is None else f"{found.host.key} ({found.name})"
        return Lack(f"this fleet has the same machine as {name}", "name it once")
    return Lack(f"it belongs to fleet {found.fleet_name} (instance {found.name})", LEAVES)
