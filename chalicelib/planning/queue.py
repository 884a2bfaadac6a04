"""The queue's decisions: which jobs are placed, which wait, and which can never fit.

A unit, the waiting jobs of one replica, is placed whole or not at all. Units are taken in order, higher priority first,
then older, and one that finds no place doesn't block those behind it. Each placement is a step (the unit's jobs, the
instances, for a new machine the fleet), so that losing a race for one place costs one unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from chalicelib.domain.events import EventType, Trade
from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Claim, Instance, InstanceStatus
from chalicelib.domain.instants import SECOND, Micros
from chalicelib.domain.jobs import Assignment, Job
from chalicelib.domain.offers import Offer
from chalicelib.domain.reasons import JobReason
from chalicelib.machines.instance import RUN_IDLE
from chalicelib.machines.job import LOOK_HEAD, LOOK_REST, TO_START
from chalicelib.planning import purchases
from chalicelib.planning.asking import Spot, Waits
from chalicelib.planning.buying import Buy
from chalicelib.planning.combine import idle_seconds, merged_fleet, merged_run
from chalicelib.planning.floor import Floor
from chalicelib.planning.offers import slice_of
from chalicelib.planning.plan import Note, Plan, Step
from chalicelib.planning.pools import READY
from chalicelib.planning.snapshots import FleetView, QueuedJob, QueueSnapshot
from chalicelib.planning.together import Unplaced, place_together
from chalicelib.planning.transitions import Draft
from chalicelib.planning.why_not import say


def decide_queue(snapshot: QueueSnapshot) -> Plan:
    floor = Floor(snapshot.fleets, snapshot.offers)
    steps: list[Step] = []
    notes: list[Note] = []
    waiting: dict[str, int] = {}
    for unit in units(snapshot.queue):
        draft = Draft(snapshot.now)
        answer = place_together(floor, unit, partial(place, draft, floor, snapshot.facts))
        if not isinstance(answer, Unplaced):
            steps.append(draft.step())
        elif isinstance(answer.reason, Waits):
            fleet, message = answer.reason.fleet, f"waiting {answer.reason.text}"
            ahead = waiting.get(fleet, 0)
            waiting[fleet] = ahead + 1
            notes.append(Note(answer.item.job.name, f"{message}; {ahead} ahead of it"))
            for item in unit:
                steps += _wait(snapshot.now, item.job, message, head=sum(waiting.values()) == 1)
        else:
            notes += answer.reason.notes
            steps += [_fail(snapshot.now, item.job, f"nowhere to run: {say(answer.reason.notes)}") for item in unit]
    return Plan(tuple(steps), tuple(notes), snapshot.now + LOOK_HEAD if waiting else None)


def units(queue: Iterable[QueuedJob]) -> list[list[QueuedJob]]:
    """The queue grouped into units, each at the position of its first job."""
    found: dict[object, list[QueuedJob]] = {}
    for item in queue:
        if item.run.finished or item.run.status == "terminating":
            continue  # the run's own pass ends its jobs
        found.setdefault((item.run.id, item.job.replica_num), []).append(item)
    return list(found.values())


def claim_of(job: Job, blocks: tuple[int, ...]) -> Claim:
    return Claim.made(
        job_id=job.id,
        run_id=job.run_id,
        replica_num=job.replica_num,
        job_num=job.job_num,
        submission_num=job.submission_num,
        blocks=blocks,
    )


def place(draft: Draft, floor: Floor, facts: Mapping[str, BackendFacts], item: QueuedJob, where: Spot | Buy) -> None:
    if isinstance(where, Spot):
        _take(draft, floor, item, where)
    else:
        _buy(draft, floor, facts.get(where.offer.backend) or BackendFacts(name=where.offer.backend), item, where)


def _take(draft: Draft, floor: Floor, item: QueuedJob, spot: Spot) -> None:
    before, claim = spot.instance, claim_of(item.job, spot.blocks)
    started = before.status in READY
    due = draft.now + TO_START if started else before.deadline or draft.now + TO_START
    _assign(draft, item.job, before, spot.offer, due)
    claims = (*before.claims, claim)
    if before.status == InstanceStatus.idle:
        instance = draft.move_instance(before, "claimed", claims=claims, idle_since=None)
    else:
        instance = before.with_(claims=claims, last_processed_at=draft.now)
        draft.save(instance)
    floor.took(instance, spot.blocks)


def _buy(draft: Draft, floor: Floor, facts: BackendFacts, item: QueuedJob, buy: Buy) -> None:
    now, fleet = draft.now, floor.fleets[buy.view.fleet.id]
    config = merged_fleet(buy.view.spec)
    run = merged_run(item.run_spec)
    idle = idle_seconds((run.idle_duration, config.idle_duration), RUN_IDLE // SECOND, facts)
    claim = claim_of(item.job, tuple(range(buy.blocks)))
    view = FleetView(fleet, buy.view.spec)
    tags = {**(config.tags or {}), **(run.tags or {})}
    instance = new_instance(now, view, buy.offer, buy.total, facts, idle, (claim,)).with_(tags=tags)
    fleet = fleet.with_(next_instance_num=fleet.next_instance_num + 1, last_processed_at=now)
    draft.save(fleet)
    draft.save(instance)
    draft.tell(EventType.ordered, instance, item.job, trade=Trade.of("bought", instance.offer))
    _assign(draft, item.job, instance, slice_of(buy.offer, buy.blocks, buy.total), instance.deadline or now + TO_START)
    draft.act(purchases.create(instance))
    floor.bought(fleet, instance)


def new_instance(
    now: Micros,
    view: FleetView,
    offer: Offer,
    blocks: int,
    facts: BackendFacts,
    idle: int | None,
    claims: tuple[Claim, ...] = (),
) -> Instance:
    """An instance about to be bought. Its id follows from the fleet and its number, so a repeat gets the same id."""
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
        act_until=act_until,
        deadline=now + facts.provisioning_timeout,
        due_at=act_until,
    )


def _assign(draft: Draft, job: Job, instance: Instance, offer: Offer, due_at: Micros) -> Job:
    assignment = Assignment.made(
        instance_id=instance.id,
        instance_name=instance.name,
        fleet_id=instance.fleet_id,
        fleet_name=instance.fleet_name,
        offer=offer,
        hostname=instance.hostname,
        internal_ip=instance.internal_ip,
        assigned_at=draft.now,
    )
    draft.wake(f"run/{job.run_id}")
    share = f", {offer.blocks} of {offer.total_blocks} blocks" if offer.total_blocks > 1 else ""
    note = f"placed on {instance.name}{share}"
    return draft.move_job(job, "provision", instance, note=note, assignment=assignment, message="", due_at=due_at)


def _wait(now: Micros, job: Job, message: str, *, head: bool) -> list[Step]:
    """Record once what the job waits for, and when to look again, no more often than needed."""
    look = now + (LOOK_HEAD if head else LOOK_REST)
    if job.message == message and job.due_at is not None and now < job.due_at <= look:
        return []
    return [Step((job.with_(message=message, due_at=look, last_processed_at=now),))]


def _fail(now: Micros, job: Job, message: str) -> Step:
    """Nothing here can ever take it; whether to retry is the run's decision."""
    draft = Draft(now)
    ending = draft.end_job(job, JobReason.failed_to_start_due_to_no_capacity, message=message)
    draft.finish_job(ending, None)
    return draft.step()
