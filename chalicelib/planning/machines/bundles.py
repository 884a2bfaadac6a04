"""An instance and the others of its bundle: they end together, and only when no job uses any of them.

Rule 1: once one is ending, for whatever reason, each of the others ends with its next pass. Rule 2: the first is
terminated at the provider only when all of them are ending. Rule 3: the others have ended once the first has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chalicelib.domain.bundles import follows, rank
from chalicelib.domain.fleets import Fleet
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


def unaware(snapshot: InstanceSnapshot) -> list[Instance]:
    """Those that it has to wake as it ends: the first all that aren't ending, each other one the first."""
    first = first_of(snapshot)
    return [each for each in (snapshot.bundle if first is None else (first,)) if each.status not in _LEAVING]


def staying(instances: Iterable[Instance]) -> list[Instance]:
    """Those of a fleet's instances that neither are ending nor will end with another of their bundle."""
    instances = list(instances)
    leaving = _ending(instances)
    return [each for each in instances if each.status not in _LEAVING and each.bundle not in leaving]


def occupied(fleet: Fleet, instances: Sequence[Instance]) -> int:
    """How many of a fleet's nodes its instances take up. A bundle that ends counts as a whole until all of it is gone,
    or a part of it would be replaced."""
    leaving = _ending(instances)
    one_of_each = {each.bundle: each for each in instances if each.bundle in leaving}.values()
    sizes = (_ordered(each, fleet, instances) for each in one_of_each)
    return sum(each.bundle not in leaving for each in instances) + sum(sizes)


def _ending(instances: Sequence[Instance]) -> set[int]:
    """The bundles of which one is ending, or of which the first has ended."""
    bundled = [(each.bundle, each) for each in instances if each.bundle is not None]
    begun = {bundle for bundle, each in bundled if each.status in _LEAVING}
    return begun | ({bundle for bundle, _ in bundled} - {bundle for bundle, each in bundled if not follows(each)})


def _ordered(instance: Instance, fleet: Fleet, instances: Sequence[Instance]) -> int:
    """How many machines of its bundle were committed: not all, if the next purchase has one of its numbers."""
    start = instance.num - rank(instance)
    after = (each.num for each in instances if each.num > start and each.bundle != instance.bundle)
    return min(instance.offer.bundle, min(after, default=fleet.next_instance_num) - start)


def awaits_others(snapshot: InstanceSnapshot) -> bool:
    """Does the end of an instance have to wait for others?"""
    first, now = first_of(snapshot), snapshot.now
    if first is not None:
        return first.status is not InstanceStatus.terminated
    return any(
        each.status not in _LEAVING or (each.claims and each.taken_back_at is not None and now < each.taken_back_at)
        for each in snapshot.bundle
    )
