"""Machines that are bought for a gateway's replicas: which offer to buy, and what follows if the purchase fails.

A backend of containers gives it one of these in place of a machine, if gateways can run there.

Such a machine belongs to a gateway instead of a fleet. Decisions about machines expect a fleet with its conditions, so
`as_fleet` makes one without conditions, which is never stored and lasts as long as the gateway.

An offer that failed isn't tried again until a few others have failed as well. Then all are tried again after a pause.
"""

from __future__ import annotations

from dataclasses import dataclass

from chalicelib.domain.events import EventType, Trade
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.fleets import Fleet, FleetStatus
from chalicelib.domain.gateways import Gateway, Orders
from chalicelib.domain.instances import Instance, InstanceStatus, instance_id
from chalicelib.domain.instants import MINUTE, Micros
from chalicelib.domain.offers import Offer
from chalicelib.domain.ranges import Range
from chalicelib.domain.reasons import InstanceReason
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.specs.resources import CPUSpec, DiskSpec, GPUSpec, ResourcesSpec
from chalicelib.planning.kernel import purchases
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.machines.fleet import PAUSES
from chalicelib.planning.matching.containers import without_job
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.offer_book import OfferBook
from chalicelib.planning.placing.options import CHECK_OFFERS_EVERY

MOST_TRIED = 3  # offers that fail before a pause
RECHECK_OFFERS: Micros = 10 * MINUTE  # where no offer fits; the catalog is refreshed every few hours
_DISK = DiskSpec(size=Range[float](min=20.0))
SMALL = ResourcesSpec(
    cpu=CPUSpec(arch="x86", count=Range[int](min=2)),
    memory=Range[float](min=2.0),
    gpu=GPUSpec(count=Range[int](min=0, max=0)),
    disk=_DISK,
)
SMALL_CONTAINER = ResourcesSpec(
    cpu=CPUSpec(arch="x86", count=Range[int](min=1)),
    memory=Range[float](min=1.0),
    gpu=GPUSpec(count=Range[int](min=0, max=0)),
    disk=DiskSpec(size=Range[float](min=2.0)),
)
_NO_CONDITIONS = FleetSpec.model_validate({"configuration": {"type": "fleet", "nodes": "0.."}})


@dataclass(frozen=True)
class Missing:
    """Why no machine is bought now, and when to try again."""

    text: str
    retry_at: Micros


def as_fleet(gateway: Gateway) -> FleetView:
    """The gateway as decisions about its machines see their owner: as a fleet without conditions."""
    status = FleetStatus.terminating if gateway.ending else FleetStatus.active
    fleet = Fleet(
        id=gateway.id,
        project_id=gateway.project_id,
        name=gateway.name,
        status=status,
        created_at=gateway.created_at,
        last_processed_at=gateway.last_processed_at,
    )
    return FleetView(fleet, _NO_CONDITIONS)


def choose(gateway: Gateway, facts: BackendFacts, offers: OfferBook, now: Micros) -> tuple[Orders, Offer | Missing]:
    """The offer to buy next: one of the configured type, whatever its architecture, or the cheapest small one without
    GPUs."""
    orders = gateway.orders
    if orders.paused_until is not None and now < orders.paused_until:
        return orders, Missing(orders.refused, orders.paused_until)
    queries = queries_of(gateway, facts)
    if len(orders.tried) < MOST_TRIED:
        for query in queries:
            if (found := offers.best(query, orders.tried)) is not None:
                return orders, found[0]
    if awaited := offers.awaited_by(queries[0]):
        return orders, Missing(f"waiting for the first offers of {awaited}", now + CHECK_OFFERS_EVERY)
    if not orders.tried:
        return orders, Missing(_why_none(gateway, facts, offers), now + RECHECK_OFFERS)
    until = now + PAUSES[min(orders.pauses, len(PAUSES) - 1)]
    return orders.with_(tried=(), pauses=orders.pauses + 1, paused_until=until), Missing(orders.refused, until)


def queries_of(gateway: Gateway, facts: BackendFacts) -> list[Query]:
    wanted = gateway.written.get("instance_type")
    backends, regions = frozenset({gateway.backend.lower()}), frozenset({gateway.region.lower()})
    inside = facts.gateway_containers
    if not wanted:
        found = [Query(SMALL_CONTAINER if inside else SMALL, backends=backends, regions=regions)]
    else:
        types, kinds = frozenset({str(wanted).lower()}), (_any(arch, facts) for arch in ("x86", "arm"))
        found = [Query(each, backends=backends, regions=regions, instance_types=types) for each in kinds]
    return found if inside else [without_job(query) for query in found]


def _any(arch: str, facts: BackendFacts) -> ResourcesSpec:
    disk = SMALL_CONTAINER.disk if facts.gateway_containers else _DISK
    read = {"cpu": {"arch": arch, "count": {"min": 1}}, "memory": {"min": 0.5}, "disk": disk}
    return ResourcesSpec.model_validate(read)


def _why_none(gateway: Gateway, facts: BackendFacts, offers: OfferBook) -> str:
    backends = frozenset({gateway.backend.lower()})
    if not any(offers.best(Query(_any(arch, facts), backends=backends), ()) for arch in ("x86", "arm")):
        return f"no offers of the backend {gateway.backend} are known: see `dstack backend list`"
    wanted = gateway.written.get("instance_type")
    what = f"no machine of the type {wanted}" if wanted else "no machine with 2 CPUs, 2 GB of memory and no GPU"
    fix = "name another `instance_type` or `region`" if wanted else "name another `region`, or an `instance_type`"
    return f"the backend {gateway.backend} sells {what} in {gateway.region}: {fix}"


def order(
    draft: Draft, gateway: Gateway, offer: Offer, facts: BackendFacts, origin: str = ""
) -> tuple[Orders, Instance]:
    """Order a machine, which is bought after the commit. Returns it without its seat, and the updated orders. `origin`:
    what a market was asked for it, and when."""
    num, now = gateway.orders.next_num, draft.now
    act_until = purchases.act_until(now, facts)
    machine = Instance(
        id=instance_id(gateway.id, num),
        project_id=gateway.project_id,
        fleet_id=gateway.id,
        fleet_name=gateway.name,
        num=num,
        name=f"{gateway.name}-{num}",
        offer=offer,
        tags=gateway.written.get("tags") or {},
        created_at=now,
        last_processed_at=now,
        act_until=act_until,
        deadline=now + facts.provisioning_timeout,
        due_at=act_until,
    )
    draft.record(EventType.ordered, machine, gateway, trade=Trade.of("bought", offer), detail=origin)
    draft.act(purchases.create(machine))
    return gateway.orders.with_(next_num=num + 1, paused_until=None), machine


def ended(orders: Orders, machine: Instance) -> Orders:
    """The orders after the end of one of its machines. A machine that never reported, or never had an address, counts
    as a failed offer; another one resets the failures before it."""
    if machine.started_at is not None and machine.hostname:
        return orders.with_(tried=(), pauses=0, refused="")
    if machine.status is not InstanceStatus.terminated or machine.reason in (None, InstanceReason.terminated_by_user):
        return orders
    tried = tuple(dict.fromkeys((*orders.tried, machine.offer.key)))
    return orders.with_(tried=tried, refused=machine.message or str(machine.reason))
