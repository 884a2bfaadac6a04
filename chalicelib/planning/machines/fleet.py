"""A fleet's decisions: keep at least `min` instances, no more than `max`, and end when deleted.

`to_create` is the number that an apply requested (`target`); `min` always applies. `tried` records failed purchases.
When every offer has failed, the fleet pauses, longer each time; after fifteen pauses it waits for an update.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from chalicelib.domain.bundles import unclaimed
from chalicelib.domain.events import EventType, Trade
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.fleets import Fleet, FleetStatus
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE, SECOND, Micros
from chalicelib.domain.offers import Offer
from chalicelib.domain.reasons import InstanceReason
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.machines.fleet import CHECK_DELETING_EVERY, FLEET
from chalicelib.machines.instance import FLEET_IDLE
from chalicelib.planning.kernel import purchases
from chalicelib.planning.kernel.plan import Note, Plan, Step
from chalicelib.planning.kernel.snapshot import FleetView
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.machines.bundles import occupied, staying
from chalicelib.planning.machines.hosts import match_hosts
from chalicelib.planning.machines.placement_groups import delete_unused_groups, earliest_check
from chalicelib.planning.machines.snapshots import FleetSnapshot
from chalicelib.planning.matching.colocation import beside, capable, first_of, is_cluster, place_of
from chalicelib.planning.matching.fitting import Misfit
from chalicelib.planning.matching.machine_index import Query
from chalicelib.planning.matching.requirements import fleet_purchase, idle_seconds, merged_fleet
from chalicelib.planning.placing.buying import in_zones
from chalicelib.planning.placing.new_machine import new_instance
from chalicelib.planning.placing.options import CHECK_OFFERS_EVERY
from chalicelib.planning.placing.placement_groups import in_group
from chalicelib.planning.placing.why_not import bundled, too_many, uncontained, undivided, unlisted, unreserved

PAUSES: tuple[Micros, ...] = (MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE)
MOST_PAUSES = 15
OFFERS_READ = 200  # more than a fleet tries before it pauses
MAX_IN_FLIGHT = 100  # machines that a fleet buys at the same time, so that a large fleet doesn't delay the others
STEP_SIZE = 30  # machines, with their events
NEXT_BATCH: Micros = 2 * SECOND
WIDEN = "widen `resources`, `regions`, `backends` or `max_price`"
CHECK_CLEARED_EVERY: Micros = MINUTE
PAUSE_PER_INSTANCE: Micros = SECOND // 1000  # the larger the fleet, the less often its instances are counted

_LEAVING = (InstanceStatus.terminating, InstanceStatus.terminated)


def decide_fleet(snapshot: FleetSnapshot) -> Plan:
    """The next steps of one fleet."""
    fleet = snapshot.view.fleet
    if fleet.status == FleetStatus.terminating:
        return _wind_up(snapshot)
    if fleet.status != FleetStatus.active:
        return Plan()
    steps, fleet = match_hosts(snapshot)
    left, fleet = delete_unused_groups(fleet, snapshot.view.instances, snapshot.now)
    snapshot = replace(snapshot, view=replace(snapshot.view, fleet=fleet))
    steps += [*left, *_shrink(snapshot)]
    grown, notes, fleet = _grow(snapshot)
    steps += grown
    recheck_at = None if fleet.due_at is None or fleet.due_at <= snapshot.now else fleet.due_at
    if recheck_at is None and fleet.to_add:  # hosts that are being cleared wake it; this is for lost wake-ups
        recheck_at = snapshot.now + CHECK_CLEARED_EVERY
    due = earliest_check(fleet, recheck_at)
    if due != fleet.due_at:  # nothing else is left to wait for
        steps.append(Step((fleet.with_(due_at=due),)))
    return Plan(tuple(steps), tuple(notes), due)


def ends_instances(fleet: Fleet, spec: FleetSpec) -> bool:
    """Could the fleet's decision terminate instances, rather than only count them?"""
    nodes = merged_fleet(spec).nodes
    shrinks = nodes is not None and nodes.max is not None and fleet.next_instance_num > nodes.max
    return shrinks or fleet.status != FleetStatus.active


def has_minimum(spec: FleetSpec) -> bool:
    """Does the fleet replace instances that are gone? Then one that only a lagging index still shows must not be
    counted: the fleet would take it for live, and no later pass would be due."""
    nodes = merged_fleet(spec).nodes
    return nodes is not None and nodes.min > 0


def _wind_up(snapshot: FleetSnapshot) -> Plan:
    fleet, now = snapshot.view.fleet, snapshot.now
    left = [i for i in snapshot.view.instances if i.status != InstanceStatus.terminated]
    leave, fleet = delete_unused_groups(fleet, left, now)
    if not left and not fleet.groups:
        draft = Draft(now, fleet.ended_by)
        draft.move(FLEET, fleet, "emptied", deleted=True, due_at=None)
        return Plan((draft.step(),))
    steps = list(leave)
    for instance in unclaimed(left):
        if instance.status not in _LEAVING:  # a job that was placed meanwhile ends first
            draft = Draft(now, fleet.ended_by)
            draft.end_instance(instance, InstanceReason.terminated_by_user, "its fleet is being deleted")
            steps.append(draft.step())
    if fleet.due_at is None or fleet.due_at <= now:
        fleet = fleet.with_(due_at=earliest_check(fleet, now + CHECK_DELETING_EVERY), last_processed_at=now)
        steps.append(Step((fleet,)))
    return Plan(tuple(steps), next_wake=fleet.due_at)


def _shrink(snapshot: FleetSnapshot) -> list[Step]:
    """End idle instances above `max`, the newest first."""
    nodes = merged_fleet(snapshot.view.spec).nodes
    if nodes is None or nodes.max is None:
        return []
    left, steps = staying(snapshot.view.instances), list[Step]()
    over, bundles = len(left) - nodes.max, Counter(each.bundle for each in left)
    for instance in reversed([each for each in unclaimed(left) if each.status == InstanceStatus.idle]):
        size = 1 if instance.bundle is None else bundles.pop(instance.bundle, 0)  # 0: it ends with one that came before
        if over <= 0 or not size:
            continue
        over -= size
        draft = Draft(snapshot.now)
        draft.end_instance(
            instance, InstanceReason.max_instances_limit, f"the fleet is limited to {nodes.max} instances"
        )
        steps.append(draft.step())
    return steps


def _missing(view: FleetView) -> int:
    """How many to create now. Terminating instances still count against `max`: they still exist."""
    nodes = merged_fleet(view.spec).nodes
    if nodes is None:
        return 0
    wanted = max(view.fleet.to_create, nodes.min - len(staying(view.instances)), 0)
    room = wanted if nodes.max is None else max(0, nodes.max - occupied(view.fleet, view.instances))
    return min(wanted, room)


def _grow(snapshot: FleetSnapshot) -> tuple[list[Step], list[Note], Fleet]:
    view, fleet, now = snapshot.view, snapshot.view.fleet, snapshot.now
    missing = _missing(view)
    if not missing:
        if fleet.to_create and merged_fleet(view.spec).nodes is None:
            fleet = fleet.with_(to_create=0)
        return [], [], fleet
    if fleet.paused_until is not None and now < fleet.paused_until:
        return [], [], fleet
    query, first = fleet_purchase(merged_fleet(view.spec)), None
    if is_cluster(view.spec):
        first = first_of(view.instances)
        found = beside(query, first, capable(snapshot.facts))
        if found is None:
            return _await_first_machine(fleet, now, first)
        query = found
    machines = snapshot.offers.machines(query, OFFERS_READ)
    usable = [m for m in machines if m[0].availability.usable and m[0].key not in fleet.tried]
    usable = [m for m in usable if missing % m[0].bundle == 0]
    if not usable and (awaited := snapshot.offers.awaited_by(query)):
        return _await_offers(fleet, now, awaited)
    if not usable:
        where = f" in {place_of(first)}" if first else ""
        return _pause(fleet, now, _why_nothing_fits(query, snapshot, where, found=bool(machines)))
    offer, _, blocks = usable[0]
    return _order(snapshot, fleet, in_zones(offer, query), blocks, first)


def _order(
    snapshot: FleetSnapshot, fleet: Fleet, offer: Offer, blocks: int, first: Instance | None
) -> tuple[list[Step], list[Note], Fleet]:
    """Order as many of the missing machines as may be ordered now. `first`: of its cluster."""
    view, now, missing, steps = snapshot.view, snapshot.now, _missing(snapshot.view), list[Step]()
    room = max(0, MAX_IN_FLIGHT - sum(instance.status == InstanceStatus.pending for instance in view.instances))
    bundle = fleet.next_instance_num if offer.bundle > 1 else None
    if bundle is not None:  # one at a time: each is a purchase of its own
        room = offer.bundle if room >= offer.bundle else 0
    elif is_cluster(view.spec) and first is None:
        room = 1  # the others are bought where the first one is
    pause = max(NEXT_BATCH, len(view.instances) * PAUSE_PER_INSTANCE)
    next_batch_at = now + pause if missing > room else None
    wanted, batch = min(missing, room), _batch_size(view, offer, snapshot)
    whole: Instance | None = None  # the first machine of a bundle, which is bought once all are committed
    for start in range(0, wanted, batch):
        draft = Draft(now)
        for _ in range(min(batch, wanted - start)):
            ordered = FleetView(fleet, view.spec), offer, blocks
            fleet, instance = _create(draft, *ordered, snapshot, next_batch_at, bundle)
            whole = whole or instance
        if bundle is not None and whole is not None and start + batch >= wanted:
            draft.save(whole)
            draft.act(purchases.create(whole))
        steps.append(purchases.batch_creates(draft.step(), snapshot.facts))
    if not steps and (fleet.due_at is None or fleet.due_at <= now):
        fleet = fleet.with_(due_at=earliest_check(fleet, next_batch_at))
        steps.append(Step((fleet,)))
    return steps, [], fleet


def _await_first_machine(fleet: Fleet, now: Micros, first: Instance | None) -> tuple[list[Step], list[Note], Fleet]:
    """Wait until the provider accepts a cluster's first machine, which wakes the fleet; the due time is for lost
    wake-ups."""
    if fleet.due_at is not None and fleet.due_at > now:
        return [], [], fleet
    due = (first.act_until if first else None) or now
    fleet = fleet.with_(due_at=earliest_check(fleet, max(due, now + NEXT_BATCH)), last_processed_at=now)
    return [Step((fleet,))], [], fleet


def _await_offers(fleet: Fleet, now: Micros, awaited: str) -> tuple[list[Step], list[Note], Fleet]:
    """Wait for the first offers of a backend before concluding that nothing fits."""
    message = f"waiting for the first offers of {awaited}"
    due = earliest_check(fleet, now + CHECK_OFFERS_EVERY)
    fleet = fleet.with_(due_at=due, message=message, last_processed_at=now)
    return [Step((fleet,))], [Note(f"fleet `{fleet.name}`", message)], fleet


def _batch_size(view: FleetView, offer: Offer, snapshot: FleetSnapshot) -> int:
    """How many machines to buy in one step: several in a cluster, if its backend can create them in one call."""
    facts = snapshot.facts.get(offer.backend)
    if offer.bundle > 1:
        return STEP_SIZE
    return min(STEP_SIZE, facts.batch) or 1 if facts is not None and is_cluster(view.spec) else 1


def _create(
    draft: Draft,
    view: FleetView,
    offer: Offer,
    blocks: int,
    snapshot: FleetSnapshot,
    next_batch_at: Micros | None,
    bundle: int | None,
) -> tuple[Fleet, Instance]:
    now = snapshot.now
    facts = snapshot.facts.get(offer.backend) or BackendFacts(name=offer.backend)
    idle = idle_seconds((merged_fleet(view.spec).idle_duration,), FLEET_IDLE // SECOND, offer)
    ordered = new_instance(now, view, offer, blocks, facts, idle, bundle=bundle)
    fleet, instance = in_group(view.fleet, view.spec, ordered, facts)
    fleet = fleet.with_(
        next_instance_num=fleet.next_instance_num + 1,
        to_create=max(0, fleet.to_create - 1),
        consolidation_attempt=0,
        message="",
        paused_until=None,
        due_at=earliest_check(fleet, next_batch_at),
        last_processed_at=now,
    )
    draft.save(fleet)
    draft.save(instance)
    draft.record(EventType.ordered, instance, fleet, trade=Trade.of("bought", instance.offer))
    if bundle is None:
        draft.act(purchases.create(instance))
    return fleet, instance


def _why_nothing_fits(query: Query, snapshot: FleetSnapshot, where: str, *, found: bool) -> Misfit:
    if found:
        return Misfit(f"every matching offer{where} is unavailable or has failed", WIDEN)
    wrong = unreserved(query.reservation, query, snapshot.offers) if query.reservation else None
    book = snapshot.offers
    wrong = wrong or uncontained(query, book) or undivided(query, book) or too_many(query, book)
    wrong = wrong or bundled(query, book, "with `placement: cluster`, set `nodes` of the fleet to a multiple of {}")
    return wrong or unlisted(query, book) or Misfit(f"no offer{where} matches this fleet", WIDEN)


def _pause(fleet: Fleet, now: Micros, why: Misfit) -> tuple[list[Step], list[Note], Fleet]:
    """Pause the fleet, because every offer has failed or there is none, and report why."""
    attempt = fleet.consolidation_attempt + 1
    last = attempt > MOST_PAUSES
    due = None if last else now + PAUSES[min(attempt, len(PAUSES)) - 1]
    message = f"{why.text}; no more attempts until the fleet is updated" if last else f"{why.text}; will retry"
    paused = fleet.with_(
        consolidation_attempt=min(attempt, MOST_PAUSES + 1),
        tried=(),
        message=message,
        paused_until=due,
        due_at=earliest_check(fleet, due),
        last_processed_at=now,
        to_create=0 if last else fleet.to_create,
    )
    if last and fleet.consolidation_attempt > MOST_PAUSES:
        return [], [], fleet
    draft = Draft(now)
    draft.save(paused)
    if message != fleet.message:
        draft.record(EventType.paused, paused, detail=message)
    return [draft.step()], [Note(f"fleet `{fleet.name}`", why.text, why.hint)], paused
