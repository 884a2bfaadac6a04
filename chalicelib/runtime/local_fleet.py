"""This machine in the control plane: the fleet `local` with one on-prem host, or several to try clusters with.

Ids are derived from the install and a counter, so a start that was killed half-way creates nothing twice. If the user
deleted the fleet or instance, the next server that starts with a local fleet creates it again under the next id.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from chalicelib.domain import keys
from chalicelib.domain.events import EventType
from chalicelib.domain.fleets import Fleet, FleetBody, FleetStatus
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Instance, instance_id
from chalicelib.domain.instants import SECOND
from chalicelib.domain.offers import InstanceType, Offer, Resources
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.tenants import Project
from chalicelib.errors import Bug, Refused
from chalicelib.planning.kernel.snapshot import NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.matching.fitting import Blocks, total_blocks
from chalicelib.store import nouns
from chalicelib.usecases.context import Plane
from chalicelib.usecases.machines.fleets import holder

log = logging.getLogger(__name__)

FLEET = "local"
UNKNOWN = Resources(cpus=0, memory_mib=0)  # what a machine has, until its agent reports
MOST_ENDED = 1_000  # how many fleets of this machine its user may have deleted


@dataclass(frozen=True)
class LocalPlace:
    """An instance of this machine. `first`: it was created at the first start."""

    instance_id: str
    first: bool


def ensure_fleet(
    plane: Plane,
    project: Project,
    blocks: str,
    hosts: int | None = None,
    here: Callable[[], Resources] = lambda: UNKNOWN,
) -> tuple[LocalPlace, ...]:
    """This machine's instances, created if missing, each split into `blocks`. `hosts`: their number, each with its own
    agent; None: as many as there are. Several form a cluster. `here`: the machine's resources, if no agent has reported
    them yet."""
    wanted: Blocks = "auto" if blocks == "auto" else int(blocks)
    for count in itertools.count(_first(plane, project)):
        fleet_id = _fleet_id(plane, count)
        fleet = nouns.find(plane.store, Fleet, keys.fleet(fleet_id))
        if fleet is None:
            _make(plane, project, fleet_id, wanted, hosts or 1)
            if wanted != 1:
                _blocks_of(wanted, here())
            return tuple(LocalPlace(instance_id(fleet_id, num), first=count == num == 0) for num in range(hosts or 1))
        if fleet.deleted or fleet.status is FleetStatus.terminated:
            continue
        live = _live(plane, fleet)
        if fleet.status is FleetStatus.active:
            missing = max(1, hosts or 1) - len(live)
            if hosts is not None and missing < 0:
                text = (
                    "fleet `%s` has %d hosts, more than --local-hosts %d; `dstack fleet delete %s -i NUM` removes one"
                )
                log.warning(text, FLEET, len(live), hosts, FLEET)
            fleet, live = _joined(plane, fleet, live, missing)
        if live:
            _respecify(plane, fleet, live, wanted, here)
            return tuple(LocalPlace(instance.id, first=count == instance.num == 0) for instance in live)
    raise Bug("counting never ends")


def _live(plane: Plane, fleet: Fleet) -> list[Instance]:
    return list(plane.read.view(fleet, again=lambda _: True).instances)


def _fleet_id(plane: Plane, count: int) -> str:
    return derive(plane.install_id, "fleet", FLEET, *([count] if count else []))


def _first(plane: Plane, project: Project) -> int:
    """The number of the fleet that has the name now. Earlier ones have ended and may have been erased."""
    named = nouns.find_target(plane.store, keys.fleet_name(project.id, FLEET))
    if named is None:
        return 0
    return next((count for count in range(MOST_ENDED) if _fleet_id(plane, count) == named[0]), 0)


def _make(plane: Plane, project: Project, fleet_id: str, blocks: Blocks, hosts: int) -> None:
    taken, version = holder(plane.store, project, FLEET)
    if taken is not None:
        raise Refused(
            f"Project {project.name} already has another fleet `{FLEET}`.",
            hint="Start with --no-local-fleet, or delete that fleet first.",
        )
    now = plane.clock.now()
    fleet = Fleet(
        id=fleet_id, project_id=project.id, name=FLEET, created_at=now, last_processed_at=now, next_instance_num=hosts
    )
    spec = FleetSpec.model_validate({"configuration": _configuration(blocks, hosts)})
    body = FleetBody(fleet_id=fleet_id, spec=spec.model_dump_json())
    draft = Draft(now)
    draft.save(fleet)
    draft.save(body)
    draft.record(EventType.created, fleet, detail="this machine")
    _add_hosts(plane, draft, fleet, range(hosts))
    pointer = nouns.pointer(keys.fleet_name(project.id, FLEET), fleet_id, version=version)
    plane.committer.take(NounsSnapshot(now, ()), draft.plan(), [pointer])


def _configuration(blocks: Blocks, hosts: int) -> dict[str, Any]:
    alone = {"type": "fleet", "name": FLEET, "blocks": blocks, "ssh_config": {"hosts": ["localhost"] * hosts}}
    return alone if hosts == 1 else {**alone, "placement": "cluster"}


def _joined(plane: Plane, fleet: Fleet, live: list[Instance], more: int) -> tuple[Fleet, list[Instance]]:
    """Add hosts that are requested for the first time, or that the user deleted without deleting the fleet."""
    if more <= 0:
        return fleet, live
    draft, first = Draft(plane.clock.now()), fleet.next_instance_num
    draft.save(fleet.with_(next_instance_num=first + more))
    _add_hosts(plane, draft, fleet, range(first, first + more))
    plane.committer.take(NounsSnapshot(draft.now, (fleet,)), draft.plan())
    fleet_again = nouns.find(plane.store, Fleet, keys.fleet(fleet.id))
    assert fleet_again is not None, "it was just written"
    return fleet_again, _live(plane, fleet_again)


def _add_hosts(plane: Plane, draft: Draft, fleet: Fleet, nums: Iterable[int]) -> None:
    for num in nums:
        host = _host(plane, fleet, num)
        draft.save(host)
        draft.record(EventType.created, host, fleet)


def _host(plane: Plane, fleet: Fleet, num: int) -> Instance:
    now = plane.clock.now()
    unknown = InstanceType(name="instance", resources=UNKNOWN)
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


def _respecify(plane: Plane, fleet: Fleet, live: list[Instance], blocks: Blocks, here: Callable[[], Resources]) -> None:
    """Store the number of hosts, and the split of this start. While jobs hold blocks, the old split stays."""
    body = plane.read.fleet_body(fleet.id, fleet.spec_num)
    old = FleetSpec.model_validate_json(body.spec)
    before = old.configuration.blocks
    cut = before != blocks
    if cut and any(instance.claims for instance in live):
        text = "jobs are running on this machine, so it keeps %s blocks, not %s, until a start without running jobs"
        log.warning(text, before, blocks)
        cut = False
    split = blocks if cut else before or 1
    changed = old.model_dump(mode="json", exclude_unset=True)
    changed["configuration"] |= _configuration(split, len(live))
    anew = FleetSpec.model_validate(changed)
    if anew.model_dump_json() == body.spec:
        return
    number = fleet.spec_num + 1
    resized = [_split(instance, split, here) for instance in live] if cut else []
    body = FleetBody(fleet_id=fleet.id, spec_num=number, spec=anew.model_dump_json())
    draft = Draft(plane.clock.now())
    for noun in (fleet.with_(spec_num=number), body, *resized):
        draft.save(noun)
    plane.committer.take(NounsSnapshot(draft.now, (fleet, *live)), draft.plan())


def _split(instance: Instance, blocks: Blocks, here: Callable[[], Resources]) -> Instance:
    has, offer = instance.offer.instance.resources, instance.offer
    total = _blocks_of(blocks, has if has.cpus else here())
    if not has.cpus:  # a machine that hasn't joined yet is split when it does
        total = 1
    return instance.with_(offer=offer.with_(blocks=total, total_blocks=total), total_blocks=total)


def _blocks_of(blocks: Blocks, has: Resources) -> int:
    total = total_blocks(blocks, has)
    if has.cpus and total is None:
        gpus = f" and {len(has.gpus)} GPUs" if has.gpus else ""
        text = "this machine has %d CPUs%s, which can't be split into %s equal blocks, so it stays whole"
        log.warning(text, has.cpus, gpus, blocks)
    return total or 1
