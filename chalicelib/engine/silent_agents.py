"""Finds the agents that failed to report in time, by a periodic scan, where every write is billed.

Checking each agent when its report is due, only to find that it has reported, would rewrite its instance's due time
every five minutes, which costs more than all its calls. So those due times lie hours ahead, and a scan every other
minute reads all presences, which an index lists, for half a read unit each. The units that it finds are processed in
the same pass.
"""

from __future__ import annotations

from chalicelib.domain import keys
from chalicelib.domain.instances import Instance, InstanceStatus, Presence
from chalicelib.engine.ports import Clock
from chalicelib.errors import Conflict
from chalicelib.store import nouns
from chalicelib.store.listing import all_of
from chalicelib.store.port import Store


def silent_units(store: Store, clock: Clock) -> list[str]:
    """The units affected by silent agents: the instances, and the runs with jobs on them."""
    now = clock.now()
    listed = (nouns.read(Presence, record) for record in all_of(store, "gsi1", keys.PRESENCES))
    late = [presence for presence in listed if presence.seen_until < now]
    found = nouns.find_many(store, Instance, [keys.instance(each.instance_id) for each in late]) if late else []
    units: dict[str, None] = {}
    for presence, instance in zip(late, found, strict=True):
        if instance is None or instance.status is InstanceStatus.terminated:
            _leave_out(store, presence)
        elif not instance.unreachable or instance.claims:
            units[f"instance/{instance.id}"] = None
            units |= dict.fromkeys(f"run/{claim.run_id}" for claim in instance.claims)
    return list(units)


def _leave_out(store: Store, presence: Presence) -> None:
    try:
        store.commit([nouns.put(presence.with_(over=True))])
    except Conflict:
        return  # its agent has reported meanwhile; the next scan tries again
