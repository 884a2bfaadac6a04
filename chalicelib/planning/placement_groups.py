"""Placement groups: one for each place in which a cluster has machines, where the backend can keep them together.

A machine is ordered in a group, which its purchase makes if it isn't there (`engine/effects/placement_groups.py`), and
is in it until it is gone. A group without machines is marked as leaving: nobody joins it from then on, and its deletion
is requested until the cloud says that it is gone.

The groups are part of their fleet's record, because every order commits that record, too: of an order in a group and
the decision that the group leaves, the later one conflicts. So a group that is used is never deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from chalicelib.domain.events import EventType
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.fleets import Fleet, FleetStatus, PlacementGroup
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.offers import Offer
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.errors import Bug
from chalicelib.machines.instance import TERMINATE_EVERY, TERMINATE_SELDOM
from chalicelib.planning.colocation import is_cluster
from chalicelib.planning.failures import meaning
from chalicelib.planning.plan import Effect, Failed, Outcome, Plan, Step
from chalicelib.planning.purchases import PATIENCE
from chalicelib.planning.snapshots import FleetSnapshot
from chalicelib.planning.transitions import Draft


@dataclass(frozen=True)
class DeleteGroup(Effect):
    """Delete a fleet's placement group. Repeated until the cloud says Gone."""

    group: str = ""


@dataclass(frozen=True)
class GroupLeft(Outcome):
    """After its deletion was requested: `going` says what is still there; empty: nothing."""

    group: str
    going: str = ""


@dataclass(frozen=True)
class GroupNotDeleted(Failed):
    group: str = ""


def in_group(fleet: Fleet, spec: FleetSpec, instance: Instance, facts: BackendFacts) -> tuple[Fleet, Instance]:
    """A machine about to be ordered, in the group of its place; and the fleet, which has that group."""
    if not facts.placement_groups or not is_cluster(spec):
        return fleet, instance
    group = next((each for each in fleet.groups if _takes(each, instance.offer)), None)
    if group is None:
        offer = instance.offer
        group = PlacementGroup(id=derive(instance.id, "placement-group"), backend=offer.backend, region=offer.region)
        fleet = fleet.with_(groups=(*fleet.groups, group))
    return fleet, instance.with_(placement_group=group.id)


def _takes(group: PlacementGroup, offer: Offer) -> bool:
    if group.leaving or (group.backend, group.region) != (offer.backend, offer.region):
        return False
    zone = group.handle.data.get("zone") if group.handle else None
    return not zone or offer.availability_zones is None or zone in offer.availability_zones


def group_of(fleet: Fleet, group_id: str) -> PlacementGroup | None:
    return next((group for group in fleet.groups if group.id == group_id), None)


def changed(fleet: Fleet, group_id: str, **changes: Any) -> Fleet:
    """The fleet with this group changed."""
    return fleet.with_(groups=tuple(g.with_(**changes) if g.id == group_id else g for g in fleet.groups))


def lost(fleet: Fleet, instance: Instance, now: Micros, facts: BackendFacts) -> Fleet | None:
    """The cloud didn't know the group that a machine should join: the fleet that lets the next attempt make it. None:
    it may only not be visible yet."""
    group = group_of(fleet, instance.placement_group)
    if group is None or group.handle is None or now < (group.made_at or 0) + facts.visibility_lag:
        return None
    return changed(fleet, group.id, handle=None, made_at=None)


# --- leaving ----------------------------------------------------------------------------------------------------------


def sooner(fleet: Fleet, at: Micros | None) -> Micros | None:
    """When the fleet must be looked at: then, or earlier for a group that leaves."""
    looks = [group.look_at for group in fleet.groups if group.leaving and group.look_at is not None]
    return min([*looks, *([] if at is None else [at])], default=None)


def take_leave(fleet: Fleet, instances: Iterable[Instance], now: Micros) -> tuple[tuple[Step, ...], Fleet]:
    """Request the deletion of the groups that nobody is in, as often as that is due."""
    used = {each.placement_group for each in instances if each.status is not InstanceStatus.terminated}
    due = [
        group
        for group in fleet.groups
        if (group.look_at is None or group.look_at <= now if group.leaving else group.id not in used)
    ]
    if not due:
        return (), fleet
    draft = Draft(now)
    for group in due:
        pause = min(TERMINATE_EVERY * 2 ** min(group.asked, 8), TERMINATE_SELDOM)
        fleet = changed(fleet, group.id, leaving=True, asked=group.asked + 1, look_at=now + pause)
        until = now + pause + PATIENCE
        draft.act(DeleteGroup(f"fleet/{fleet.id}", group.backend, until, fleet.project_id, group.id))
    fleet = fleet.with_(due_at=sooner(fleet, fleet.due_at), last_processed_at=now)
    draft.save(fleet)
    return (draft.step(),), fleet


def decide_group(snapshot: FleetSnapshot, outcome: Outcome) -> Plan:
    """What follows from the request to delete a group."""
    if not isinstance(outcome, GroupLeft | GroupNotDeleted):
        raise Bug(f"{outcome} is no outcome of an effect on a fleet")
    fleet, now, draft = snapshot.view.fleet, snapshot.now, Draft(snapshot.now)
    group = group_of(fleet, outcome.group)
    if group is None:
        return Plan()
    if isinstance(outcome, GroupLeft) and not outcome.going:
        fleet = fleet.with_(groups=tuple(each for each in fleet.groups if each.id != group.id))
        if fleet.status is FleetStatus.terminating:  # it may have waited for this alone
            fleet = fleet.with_(due_at=now)
        draft.save(fleet)
        draft.wake(f"fleet/{fleet.id}")
        return draft.plan()
    message = outcome.going if isinstance(outcome, GroupLeft) else outcome.message
    if message == group.message:
        return Plan()
    fleet = changed(fleet, group.id, message=message)
    if isinstance(outcome, GroupNotDeleted):
        pause = meaning(outcome.error).retry_after if outcome.retry_after is None else outcome.retry_after
        look_at = max(group.look_at or now, now + round(pause * SECOND))
        fleet = changed(fleet, group.id, look_at=look_at)
        detail = f"placement group in {group.region}: {message}"[:500]
        draft.tell(EventType.failed, fleet, reason=outcome.error, detail=detail)
    draft.save(fleet)
    return draft.plan()
