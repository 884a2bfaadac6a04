"""Deletion of empty placement groups, which is requested until the provider says that they are gone."""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.domain.events import EventType
from chalicelib.domain.fleets import Fleet, FleetStatus
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.errors import Bug
from chalicelib.machines.instance import TERMINATE_EVERY, TERMINATE_SELDOM
from chalicelib.planning.kernel.failures import meaning
from chalicelib.planning.kernel.plan import Outcome, Plan, Step
from chalicelib.planning.kernel.purchases import PATIENCE
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.machines.snapshots import FleetSnapshot
from chalicelib.planning.placing.placement_groups import DeleteGroup, GroupLeft, GroupNotDeleted, changed, group_of


def earliest_check(fleet: Fleet, at: Micros | None) -> Micros | None:
    """When the next pass over the fleet is due: at this time, or earlier for a group that is being deleted."""
    checks = [group.look_at for group in fleet.groups if group.leaving and group.look_at is not None]
    return min([*checks, *([] if at is None else [at])], default=None)


def delete_unused_groups(fleet: Fleet, instances: Iterable[Instance], now: Micros) -> tuple[tuple[Step, ...], Fleet]:
    """Request the deletion of empty groups for which that is due."""
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
    fleet = fleet.with_(due_at=earliest_check(fleet, fleet.due_at), last_processed_at=now)
    draft.save(fleet)
    return (draft.step(),), fleet


def decide_group(snapshot: FleetSnapshot, outcome: Outcome) -> Plan:
    """Apply the outcome of a request to delete a group."""
    if not isinstance(outcome, GroupLeft | GroupNotDeleted):
        raise Bug(f"{outcome} is no outcome of an effect on a fleet")
    fleet, now, draft = snapshot.view.fleet, snapshot.now, Draft(snapshot.now)
    group = group_of(fleet, outcome.group)
    if group is None:
        return Plan()
    if isinstance(outcome, GroupLeft) and not outcome.going:
        fleet = fleet.with_(groups=tuple(each for each in fleet.groups if each.id != group.id))
        if fleet.status is FleetStatus.terminating:  # this may have been the last obstacle to its end
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
        draft.record(EventType.failed, fleet, reason=outcome.error, detail=detail)
    draft.save(fleet)
    return draft.plan()
