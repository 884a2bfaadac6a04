"""User requests: stop, abort, delete. Decisions like any other: the current nouns in, a plan out.

A request that comes too late, or twice, results in an empty plan. The caller has already checked the user's rights, and
refuses to delete what is in use (a fleet with jobs), because it has the names for the message.
"""

from __future__ import annotations

from chalicelib.domain.events import EventType
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.gateways import Gateway
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.reasons import InstanceReason, RunReason
from chalicelib.domain.runs import Run, RunStatus
from chalicelib.domain.volumes import Volume
from chalicelib.machines.fleet import FLEET
from chalicelib.machines.gateway import GATEWAY
from chalicelib.machines.instance import INSTANCE
from chalicelib.machines.table import allows
from chalicelib.machines.volume import VOLUME
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.transitions import Draft


def stop_run(run: Run, reason: RunReason, draft: Draft, message: str = "") -> Plan:
    """Start ending a run. An abort overrides a stop in progress, but nothing else."""
    if run.finished or run.reason is reason:
        return Plan()
    if run.status is not RunStatus.terminating:
        draft.move_run(
            run, "end", reason=reason, message=message or run.message, due_at=draft.now, ended_by=draft.actor
        )
    elif run.reason is RunReason.stopped_by_user:
        hurried = run.with_(reason=reason, ended_by=draft.actor, last_processed_at=draft.now, due_at=draft.now)
        draft.save(hurried)
        draft.record(EventType.status, hurried, before=run.status.value, after=run.status.value, reason=reason.value)
    else:
        return Plan()
    draft.wake(f"run/{run.id}", f"queue/{run.project_id}")
    return draft.plan()


def delete_run(run: Run, draft: Draft) -> Plan:
    """Remove a finished run from the lists. Its jobs, specs and logs are erased later (`engine/erase_unused.py`)."""
    if run.deleted or not run.finished:
        return Plan()
    draft.save(run.with_(deleted=True, deleted_at=draft.now, due_at=None))
    draft.record(EventType.deleted, run)
    return draft.plan()


def delete_fleet(fleet: Fleet, draft: Draft, why: str = "deleted by a user") -> Plan:
    """Start deleting a fleet; its instances are terminated as a consequence."""
    if not allows(FLEET, fleet.status, "delete"):
        return Plan()
    draft.move(FLEET, fleet, "delete", note=why, to_create=0, due_at=draft.now, ended_by=draft.actor)
    draft.wake(f"fleet/{fleet.id}")
    return draft.plan()


def delete_volume(volume: Volume, draft: Draft, why: str = "deleted by a user") -> Plan:
    """Start deleting a volume. One that is attached is deleted once it isn't."""
    if not allows(VOLUME, volume.status, "delete"):
        return Plan()
    draft.move(VOLUME, volume, "delete", note=why, deadline=None, asked=0, due_at=draft.now)
    draft.wake(volume.unit)
    return draft.plan()


def delete_gateway(gateway: Gateway, draft: Draft, why: str = "deleted by a user") -> Plan:
    """Start deleting a gateway; its machines drop their replicas as a consequence."""
    if not allows(GATEWAY, gateway.status, "delete"):
        return Plan()
    draft.move(GATEWAY, gateway, "delete", note=why, message="", due_at=draft.now)
    draft.wake(gateway.unit)
    return draft.plan()


def end_instance(instance: Instance, draft: Draft) -> Plan:
    """Start terminating one instance that no job uses."""
    if not allows(INSTANCE, instance.status, "end"):
        return Plan()
    draft.end_instance(instance, InstanceReason.terminated_by_user)
    return draft.plan()


def forget_host(instance: Instance, draft: Draft) -> Plan:
    """Stop waiting for a departing host to be cleared. What is still on it stays there."""
    if instance.host is None or instance.forgotten or instance.status is not InstanceStatus.terminating:
        return Plan()
    draft.save(instance.with_(forgotten=True, due_at=draft.now))
    draft.record(EventType.changed, instance, fields=("forgotten",))
    draft.wake(f"instance/{instance.id}")
    return draft.plan()
