"""Hosts that join an SSH fleet by themselves, and leave it again.

Such a host accepts no logins from us. It is pending until its agent reports. Once it is no longer wanted, its agent is
ordered to clear the host, and reports when it has. A host that never reported is released at once; if it reports later,
it gets the same order.
"""

from __future__ import annotations

from chalicelib.domain.events import EventType
from chalicelib.domain.instances import Instance, InstanceStatus, OnPrem
from chalicelib.domain.instants import MINUTE, Micros
from chalicelib.domain.reasons import InstanceReason
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.machines.hosts import new_host

REPORTS_WITHIN: Micros = 5 * MINUTE
LEFT = "its host left the fleet"


def join_host(view: FleetView, hostname: str, draft: Draft) -> tuple[Instance, Plan]:
    host, deadline = OnPrem(hostname=hostname, port=0, joined=True), draft.now + REPORTS_WITHIN
    instance = new_host(view, host, draft.now, deadline=deadline)
    fleet = view.fleet.with_(next_instance_num=instance.num + 1, last_processed_at=draft.now)
    draft.save(fleet)
    draft.save(instance)
    draft.record(EventType.created, instance, fleet, detail=f"{hostname} joins")
    draft.wake(f"instance/{instance.id}")
    return instance, draft.plan()


def should_leave(instance: Instance) -> bool:
    """Is it time for its agent to clear the host?"""
    joined = instance.host is not None and instance.host.joined
    return joined and instance.status is InstanceStatus.terminating and not instance.claims


def is_cleared(instance: Instance) -> bool:
    return instance.left or instance.forgotten or instance.started_at is None


def host_left(instance: Instance, draft: Draft) -> Plan:
    """Record that the host's agent has reported it as cleared. Jobs that were there are lost."""
    if instance.host is None or not instance.host.joined or instance.left:
        return Plan()
    if instance.status is InstanceStatus.terminated:
        return Plan()
    left = instance.with_(left=True, due_at=draft.now)
    if instance.status is InstanceStatus.terminating:
        draft.save(left)
        draft.wake(f"instance/{left.id}")
    else:
        reason = InstanceReason.unreachable if left.claims else InstanceReason.terminated_by_user
        draft.end_instance(left, reason, LEFT)
    return draft.plan()
