"""An instance and the others of its bundle: they end together, and only when no job uses any of them.

Rule 1: once one is ending, for whatever reason, each of the others ends with its next pass. Rule 2: the first is
terminated at the provider only when all of them are ending. Rule 3: the others have ended once the first has.
"""

from __future__ import annotations

from chalicelib.domain.bundles import follows
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.reasons import InstanceReason
from chalicelib.planning.machines.snapshots import InstanceSnapshot

_LEAVING = (InstanceStatus.terminating, InstanceStatus.terminated)


def first_of(snapshot: InstanceSnapshot) -> Instance | None:
    """The instance that stands for its purchase; None: it does itself."""
    return next((each for each in snapshot.bundle if not follows(each)), None)


def in_use(snapshot: InstanceSnapshot, instance: Instance) -> bool:
    """Does a job use the instance, or another of its bundle?"""
    return bool(instance.claims) or any(each.claims for each in snapshot.bundle)


def ended(snapshot: InstanceSnapshot) -> Instance | None:
    """Another one that is ending, or has ended."""
    return next((each for each in snapshot.bundle if each.status in _LEAVING), None)


def why_ended(other: Instance, instance: Instance) -> tuple[InstanceReason, str]:
    """Why the instance ends with that one."""
    reason = other.reason or InstanceReason.error
    if reason is InstanceReason.terminated_by_user and instance.claims:  # its job was placed meanwhile
        reason = InstanceReason.error
    return reason, f"{other.name}, which was bought together with it, has ended: {other.message or reason.value}"[:500]


def awaits_others(snapshot: InstanceSnapshot) -> bool:
    """Does the end of an instance have to wait for others?"""
    first, now = first_of(snapshot), snapshot.now
    if first is not None:
        return first.status is not InstanceStatus.terminated
    return any(
        each.status not in _LEAVING or (each.claims and each.taken_back_at is not None and now < each.taken_back_at)
        for each in snapshot.bundle
    )
