"""Bundles: machines that are bought in one purchase, and end together.

Their offer says how many they are (`OfferTerms.bundle`), and its price is that of one of them. Each is an instance of
its own, for one node of a task. The first one stands for the purchase: it alone is created and terminated at the
provider, and the others have its handles, each with its own number, the `WORKER`. So the bundle is released only once
none of them is needed, and all of it at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.domain.instances import Handle, Instance, instance_id

WORKER = "worker"  # in a handle's data: the number of the machine in its bundle, from 0


def rank(instance: Instance) -> int:
    """Its number in its bundle; 0 if it was bought by itself."""
    return 0 if instance.bundle is None else instance.num - instance.bundle


def follows(instance: Instance) -> bool:
    """Does another instance stand for its purchase?"""
    return rank(instance) > 0


def members(instance: Instance) -> tuple[str, ...]:
    """The ids of all instances of its purchase, itself included, in order."""
    if instance.bundle is None:
        return (instance.id,)
    numbers = range(instance.bundle, instance.bundle + instance.offer.bundle)
    return tuple(instance_id(instance.fleet_id, number) for number in numbers)


def others(instance: Instance) -> tuple[str, ...]:
    return tuple(each for each in members(instance) if each != instance.id)


def others_among(instance: Instance, found: Iterable[Instance | None]) -> tuple[Instance, ...]:
    """Those that belong to its purchase. Its numbers alone don't say so: if only a part of it was committed, the next
    machines of the fleet have the rest of them."""
    purchase = instance.fleet_id, instance.bundle
    there = (each for each in found if each is not None and each.id != instance.id)
    return tuple(each for each in there if each.bundle is not None and (each.fleet_id, each.bundle) == purchase)


def woken_by_end(instance: Instance) -> tuple[str, ...]:
    """The ids of those that need a pass when it begins to end: from any other one the first learns it, and from the
    first all do. If each woke all, a large bundle would take as many passes as it has pairs."""
    if instance.bundle is None or not follows(instance):
        return members(instance)
    return instance.id, instance_id(instance.fleet_id, instance.bundle)


def handles_for(instance: Instance, first: Instance) -> tuple[Handle, ...]:
    """The first one's handles, as the instance has them."""
    number = str(rank(instance))
    return tuple(each.with_(data={**each.data, WORKER: number}) for each in first.handles)


def worker(handle: Handle) -> int:
    return int(handle.data.get(WORKER, "0"))


def unclaimed(instances: Iterable[Instance]) -> list[Instance]:
    """Those that no job uses, nor any other machine of their bundle."""
    instances = list(instances)
    used = {(each.fleet_id, each.bundle) for each in instances if each.claims and each.bundle is not None}
    return [each for each in instances if not each.claims and (each.fleet_id, each.bundle) not in used]
