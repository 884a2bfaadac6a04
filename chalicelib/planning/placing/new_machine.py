"""New machines and their orders. An instance is committed together with its purchase, which is executed afterwards."""

from __future__ import annotations

from chalicelib.domain.events import EventType, Trade
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Claim, Instance
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.offers import Offer
from chalicelib.machines.instance import RUN_IDLE
from chalicelib.planning.kernel import purchases
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.matching.requirements import idle_seconds, merged_fleet, merged_run
from chalicelib.planning.placing.buying import Purchase
from chalicelib.planning.placing.capacity import Capacity
from chalicelib.planning.placing.claims import claim_of
from chalicelib.planning.placing.placement_groups import in_group


def order_for(
    draft: Draft,
    capacity: Capacity,
    facts: BackendFacts,
    item: QueuedJob,
    buy: Purchase,
    gang: str = "",
    bundle: int | None = None,
) -> Instance:
    """Order a machine with the job's claim on it. `gang`: the attempt that a container is bought for; `bundle`: the
    number of the bundle's first machine, whose purchase is that of all."""
    fleet, config, run = capacity.fleets[buy.view.fleet.id], merged_fleet(buy.view.spec), merged_run(item.run_spec)
    idle = _idle(item, run.idle_duration, config.idle_duration, buy.offer)
    claim = claim_of(item, tuple(range(buy.blocks)))
    tags = {**(config.tags or {}), **(run.tags or {})}
    view = FleetView(fleet, buy.view.spec)
    ordered = new_instance(draft.now, view, buy.offer, buy.total, facts, idle, (claim,), bundle)
    fleet, instance = in_group(fleet, buy.view.spec, ordered.with_(tags=tags, for_run=True, gang=gang), facts)
    fleet = fleet.with_(next_instance_num=fleet.next_instance_num + 1, last_processed_at=draft.now)
    draft.save(fleet)
    draft.save(instance)
    trade = Trade.of("bought", instance.offer)
    draft.record(EventType.ordered, instance, item.job, trade=trade, detail=capacity.origin(instance.offer))
    if bundle is None:
        draft.act(purchases.create(instance))
    capacity.record_purchase(fleet, instance)
    return instance


def _idle(item: QueuedJob, of_run: int | None, of_fleet: int | None, offer: Offer) -> int | None:
    """How long the machine may idle. No token pays for idle machines, so a run under a limit can't make it longer."""
    usual = RUN_IDLE // SECOND
    if item.run.limit is not None and of_fleet is None:
        of_fleet = usual
    return idle_seconds((of_run, of_fleet), usual, offer)


def new_instance(
    now: Micros,
    view: FleetView,
    offer: Offer,
    blocks: int,
    facts: BackendFacts,
    idle: int | None,
    claims: tuple[Claim, ...] = (),
    bundle: int | None = None,
) -> Instance:
    """An instance to be bought. Its id derives from the fleet and its number, so a repeated plan gets the same id.
    `bundle`: the number of the first machine of its bundle, which alone is created at the provider."""
    num = view.fleet.next_instance_num
    act_until = purchases.act_until(now, facts)
    return Instance(
        id=derive(view.fleet.id, "instance", num),
        project_id=view.fleet.project_id,
        fleet_id=view.fleet.id,
        fleet_name=view.fleet.name,
        num=num,
        name=f"{view.fleet.name}-{num}",
        offer=offer.with_(blocks=blocks, total_blocks=blocks),
        total_blocks=blocks,
        claims=claims,
        tags=merged_fleet(view.spec).tags or {},
        env={name: str(value) for name, value in view.spec.configuration.env.items()},
        idle_seconds=idle,
        created_at=now,
        last_processed_at=now,
        bundle=bundle,
        act_until=act_until if bundle in (None, num) else None,
        deadline=now + facts.provisioning_timeout,
        due_at=act_until,
    )
