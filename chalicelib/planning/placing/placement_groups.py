"""Placement groups: one for each place in which a cluster has machines, where the backend can keep them together.

A machine is ordered in a group, which its purchase creates if necessary (`engine/effects/placement_groups.py`), and
stays in it until it is gone. A group without machines is marked as leaving: no machine joins it from then on, and its
deletion is requested until the provider says that it is gone.

The groups are part of their fleet's record, because every order commits that record: of an order in a group and the
decision to delete the group, the later one conflicts. So a group in use is never deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.fleets import Fleet, PlacementGroup
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import Micros
from chalicelib.domain.offers import Offer
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.planning.kernel.plan import Effect, Failed, Outcome
from chalicelib.planning.matching.colocation import is_cluster


@dataclass(frozen=True)
class DeleteGroup(Effect):
    """Delete a fleet's placement group. Repeated until the provider answers `Gone`."""

    group: str = ""


@dataclass(frozen=True)
class GroupLeft(Outcome):
    """What is left after the deletion of a group was requested. `going` describes it; empty: nothing is left."""

    group: str
    going: str = ""


@dataclass(frozen=True)
class GroupNotDeleted(Failed):
    group: str = ""


def in_group(fleet: Fleet, spec: FleetSpec, instance: Instance, facts: BackendFacts) -> tuple[Fleet, Instance]:
    """Put a new machine into the group of its place. Returns the fleet, which has that group, and the machine."""
    if not facts.placement_groups or not is_cluster(spec) or instance.offer.is_container or instance.bundle is not None:
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
    """The fleet after the provider didn't know the group that a machine should join, so that the next attempt creates
    it. None: the group may just not be visible yet."""
    group = group_of(fleet, instance.placement_group)
    if group is None or group.handle is None or now < (group.made_at or 0) + facts.visibility_lag:
        return None
    return changed(fleet, group.id, handle=None, made_at=None)
