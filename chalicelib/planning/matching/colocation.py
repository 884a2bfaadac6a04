"""Where the machines of a cluster are bought: all of them where its first one is.

They share the backend, region and zone of the first machine. So the others are bought only once its provider has
accepted it, and then all at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.planning.matching.machine_index import Query

_LEAVING = (InstanceStatus.terminating, InstanceStatus.terminated)


def is_cluster(spec: FleetSpec) -> bool:
    return spec.configuration.placement == "cluster"


def capable(facts: Mapping[str, BackendFacts]) -> frozenset[str]:
    """The backends whose machines can be clusters."""
    return frozenset(name.lower() for name, each in facts.items() if each.multinode)


def first_of(instances: Iterable[Instance]) -> Instance | None:
    """The machine that determines where a cluster is: the first accepted one, or else the first ordered. Containers end
    with their job, so they are only beside those of the same job."""
    machines = (each for each in instances if each.bought and not each.offer.is_container)
    staying = (each for each in machines if each.status not in _LEAVING)
    return min(staying, key=lambda each: (each.status is InstanceStatus.pending, not each.zone, each.num), default=None)


def beside(query: Query, first: Instance | None, backends: Collection[str]) -> Query | None:
    """The query for the next machine of a cluster; None: the place of the first one isn't known yet."""
    if first is None:
        return query._replace(backends=_both(query.backends, backends))
    if first.status is InstanceStatus.pending:
        return None
    return query._replace(
        backends=_both(query.backends, [first.offer.backend.lower()]),
        regions=_both(query.regions, [first.offer.region.lower()]),
        zones=_both(query.zones, [zone.lower()]) if (zone := _zone(first)) else query.zones,
    )


def place_of(first: Instance) -> str:
    return _zone(first) or first.offer.region or first.offer.backend


def _zone(first: Instance) -> str:
    """Its zone or, if the provider's response was lost although the agent has reported, a possible one."""
    return first.zone or next(iter(first.offer.availability_zones or ()), "")


def _both(allowed: frozenset[str] | None, given: Collection[str]) -> frozenset[str]:
    return frozenset(given) if allowed is None else allowed.intersection(given)
