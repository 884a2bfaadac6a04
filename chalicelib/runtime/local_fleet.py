"""This machine in the control plane: the fleet `local` with one on-prem host.

Ids are derived from the install and a counter, so a start that was killed half-way creates nothing twice. If the user
deleted the fleet or instance, the next server that starts with a local fleet creates it again under the next id.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass

from chalicelib.domain import keys
from chalicelib.domain.events import Event, EventType, Target
from chalicelib.domain.fleets import Fleet, FleetBody, FleetStatus
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Instance, InstanceStatus, instance_id
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offers import InstanceType, Offer, Resources
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.tenants import Project
from chalicelib.errors import Bug, Refused
from chalicelib.planning.fitting import Blocks, total_blocks
from chalicelib.store import nouns
from chalicelib.store.port import Change
from chalicelib.usecases.context import Plane
from chalicelib.usecases.fleets import holder

log = logging.getLogger(__name__)

FLEET = "local"
MOST_ENDED = 1_000  # how many fleets of this machine its user may have deleted


@dataclass(frozen=True)
class Place:
    """This machine's instance. `first`: it is that of the first start."""

    instance_id: str
    first: bool


def ensure_fleet(plane: Plane, project: Project, blocks: str) -> Place:
    """This machine's instance, created if missing; the machine is split into `blocks`."""
    wanted: Blocks = "auto" if blocks == "auto" else int(blocks)
    for count in itertools.count(_first(plane, project)):
        fleet_id = _fleet_id(plane, count)
        fleet = nouns.find(plane.store, Fleet, keys.fleet(fleet_id))
        if fleet is None:
            _make(plane, project, fleet_id, wanted)
            return Place(instance_id(fleet_id, 0), first=count == 0)
        if fleet.deleted or fleet.status is FleetStatus.terminated:
            continue
        for num in range(fleet.next_instance_num):
            instance = nouns.find(plane.store, Instance, keys.instance(instance_id(fleet_id, num)))
            if instance is not None and instance.status is not InstanceStatus.terminated:
                _cut(plane, fleet, instance, wanted)
                return Place(instance.id, first=count == num == 0)
        if fleet.status is FleetStatus.active:
            return Place(_rejoin(plane, fleet), first=False)
    raise Bug("counting never ends")


def _fleet_id(plane: Plane, count: int) -> str:
    return derive(plane.install_id, "fleet", FLEET, *([count] if count else []))


def _first(plane: Plane, project: Project) -> int:
    """Where to start counting: at the fleet that has the name now. Earlier ones have ended and may have been erased."""
    named = nouns.find_target(plane.store, keys.fleet_name(project.id, FLEET))
    if named is None:
        return 0
    return next((count for count in range(MOST_ENDED) if _fleet_id(plane, count) == named[0]), 0)


def _make(plane: Plane, project: Project, fleet_id: str, blocks: Blocks) -> None:
    taken, version = holder(plane.store, project, FLEET)
    if taken is not None:
        raise Refused(
            f"Project {project.name} already has another fleet `{FLEET}`.",
            hint="Start with --no-local-fleet, or delete that fleet first.",
        )
    now = plane.clock.now()
    fleet = Fleet(
        id=fleet_id, project_id=project.id, name=FLEET, created_at=now, last_processed_at=now, next_instance_num=1
    )
    configuration = {"type": "fleet", "name": FLEET, "blocks": blocks, "ssh_config": {"hosts": ["localhost"]}}
    spec = FleetSpec.model_validate({"configuration": configuration})
    body = FleetBody(fleet_id=fleet_id, spec=spec.model_dump_json())
    event = Event(
        id=derive(fleet_id, "event", "created"),
        project_id=project.id,
        at=now,
        type=EventType.created,
        detail="this machine",
        targets=(Target(type="fleet", id=fleet_id, name=FLEET),),
        fleet_id=fleet_id,
    )
    changes: list[Change] = [nouns.put(noun) for noun in (fleet, body, _host(plane, fleet, 0), event)]
    plane.store.commit([*changes, nouns.pointer(keys.fleet_name(project.id, FLEET), fleet_id, version=version)])


def _rejoin(plane: Plane, fleet: Fleet) -> str:
    """The user deleted the instance but kept the fleet."""
    host = _host(plane, fleet, fleet.next_instance_num)
    plane.store.commit([nouns.put(fleet.with_(next_instance_num=host.num + 1)), nouns.put(host)])
    return host.id


def _host(plane: Plane, fleet: Fleet, num: int) -> Instance:
    now = plane.clock.now()
    unknown = InstanceType(name="instance", resources=Resources(cpus=0, memory_mib=0))  # until its agent reports
    return Instance(
        id=instance_id(fleet.id, num),
        project_id=fleet.project_id,
        fleet_id=fleet.id,
        fleet_name=fleet.name,
        num=num,
        name=f"{fleet.name}-{num}",
        offer=Offer(backend="remote", instance=unknown, region="remote", price=0.0),
        hostname="localhost",
        created_at=now,
        last_processed_at=now,
        due_at=now + 5 * SECOND,
    )


def _cut(plane: Plane, fleet: Fleet, instance: Instance, blocks: Blocks) -> None:
    """Split the machine into the blocks set at this start. While jobs hold blocks, the old split stays."""
    body = nouns.find(plane.store, FleetBody, keys.fleet_body(fleet.id, fleet.spec_num))
    if body is None:
        raise Bug(f"fleet {fleet.id} has no spec number {fleet.spec_num}")
    spec = FleetSpec.model_validate_json(body.spec)
    if spec.configuration.blocks == blocks:
        return
    if instance.claims:
        log.warning(
            "jobs are running on this machine, so it keeps %s blocks, not %s, until a start without running jobs",
            spec.configuration.blocks,
            blocks,
        )
        return
    changed = spec.model_dump(mode="json", exclude_unset=True)
    changed["configuration"]["blocks"] = blocks
    anew = FleetSpec.model_validate(changed)
    has, offer = instance.offer.instance.resources, instance.offer
    total = total_blocks(blocks, has) if has.cpus else 1  # a machine that hasn't joined yet is split when it does
    if total is None:
        log.warning("this machine's CPUs and GPUs can't be split into %s equal blocks, so it stays whole", blocks)
        total = 1
    number = fleet.spec_num + 1
    plane.store.commit(
        [
            nouns.put(fleet.with_(spec_num=number)),
            nouns.put(FleetBody(fleet_id=fleet.id, spec_num=number, spec=anew.model_dump_json())),
            nouns.put(instance.with_(offer=offer.with_(blocks=total, total_blocks=total), total_blocks=total)),
        ]
    )
