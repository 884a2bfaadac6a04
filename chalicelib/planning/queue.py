"""The queue's decisions: who goes where, who waits, and who may stop hoping.

Jobs are taken in order, higher priority first, then older. One that finds no place doesn't block those behind it. Each
placement is a step of its own (the job, the instance, for a new machine the fleet), so that losing a race for one place
costs one placement.
"""

from __future__ import annotations

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.ids import derive
from chalicelib.domain.instances import Claim, Instance, InstanceStatus
from chalicelib.domain.instants import MINUTE, Micros
from chalicelib.domain.jobs import Assignment, Job
from chalicelib.domain.offers import Offer
from chalicelib.domain.reasons import JobReason
from chalicelib.planning.combine import RUN_IDLE, idle_seconds, merged_fleet, merged_run, wants_of
from chalicelib.planning.offers import slice_of
from chalicelib.planning.placement import Buy, Floor, Hopeless, Spot, Waits, say
from chalicelib.planning.plan import Create, Note, Plan, Step
from chalicelib.planning.snapshots import FleetView, QueuedJob, QueueSnapshot
from chalicelib.planning.transitions import Draft

LOOK_HEAD: Micros = MINUTE  # the first that waits is looked at again this soon even if nothing happens,
LOOK_REST: Micros = 10 * MINUTE  # the others this soon: looking at one looks at all
TO_START: Micros = 10 * MINUTE  # from a place on a running machine to the task's first sign of life


def decide_queue(snapshot: QueueSnapshot) -> Plan:
    floor = Floor(snapshot.fleets, snapshot.offers, snapshot.facts)
    steps: list[Step] = []
    notes: list[Note] = []
    waiting: dict[str, int] = {}
    for item in snapshot.queue:
        if item.run.finished or item.run.status == "terminating":
            continue  # the run's own pass ends its jobs
        verdict = floor.find(wants_of(item.run_spec, item.spec, item.run.fleet_id), item.job)
        if isinstance(verdict, Spot):
            steps.append(_place(floor, snapshot.now, item, verdict))
        elif isinstance(verdict, Buy):
            steps.append(_buy(floor, snapshot, item, verdict))
        elif isinstance(verdict, Waits):
            ahead = waiting.get(verdict.fleet, 0)
            waiting[verdict.fleet] = ahead + 1
            notes.append(Note(item.job.name, f"waits {verdict.text}, {ahead} ahead of it"))
            steps += _wait(snapshot.now, item.job, verdict, head=not sum(waiting.values()) > 1)
        else:
            notes += verdict.notes
            steps.append(_fail(snapshot.now, item.job, verdict))
    return Plan(tuple(steps), tuple(notes), snapshot.now + LOOK_HEAD if waiting else None)


def claim_of(job: Job, blocks: tuple[int, ...]) -> Claim:
    return Claim(
        job_id=job.id,
        run_id=job.run_id,
        replica_num=job.replica_num,
        job_num=job.job_num,
        submission_num=job.submission_num,
        blocks=blocks,
    )


def _place(floor: Floor, now: Micros, item: QueuedJob, spot: Spot) -> Step:
    draft = Draft(now)
    before, claim = spot.instance, claim_of(item.job, spot.blocks)
    started = before.status in (InstanceStatus.idle, InstanceStatus.busy)
    due = now + TO_START if started else before.deadline or now + TO_START
    _assign(draft, item.job, before, spot.offer, due)
    claims = (*before.claims, claim)
    if before.status == InstanceStatus.idle:
        instance = draft.move_instance(before, "claimed", claims=claims, idle_since=None, due_at=None)
    else:
        instance = before.with_(claims=claims, last_processed_at=now)
        draft.save(instance)
    floor.took(instance, spot.blocks)
    return draft.step()


def _buy(floor: Floor, snapshot: QueueSnapshot, item: QueuedJob, buy: Buy) -> Step:
    draft, now = Draft(snapshot.now), snapshot.now
    facts = snapshot.facts.get(buy.offer.backend) or BackendFacts(name=buy.offer.backend)
    fleet = floor.fleets[buy.view.fleet.id]
    config = merged_fleet(buy.view.spec)
    run = merged_run(item.run_spec)
    idle = idle_seconds((run.idle_duration, config.idle_duration), RUN_IDLE, facts)
    claim = claim_of(item.job, tuple(range(buy.blocks)))
    view = FleetView(fleet, buy.view.spec)
    tags = {**(config.tags or {}), **(run.tags or {})}
    instance = new_instance(now, view, buy.offer, buy.total, facts, idle, (claim,)).with_(tags=tags)
    fleet = fleet.with_(next_instance_num=fleet.next_instance_num + 1, last_processed_at=now)
    draft.save(fleet)
    draft.save(instance)
    draft.tell(f"ordered for a job: {buy.offer.instance.name} from {buy.offer.backend}", instance, item.job)
    _assign(draft, item.job, instance, slice_of(buy.offer, buy.blocks, buy.total), instance.deadline or now + TO_START)
    draft.act(Create(instance.id))
    floor.bought(fleet, instance)
    return draft.step()


def new_instance(
    now: Micros,
    view: FleetView,
    offer: Offer,
    blocks: int,
    facts: BackendFacts,
    idle: int | None,
    claims: tuple[Claim, ...] = (),
) -> Instance:
    """An instance that is about to be bought. Its id follows from the fleet and its number: a repeat names the same."""
    num = view.fleet.next_instance_num
    act_until = now + facts.create_timeout + facts.visibility_lag
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
    assignment = Assignment(
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


def _wait(now: Micros, job: Job, verdict: Waits, *, head: bool) -> list[Step]:
    """Says what is waited for, once; and when to look again, no oftener than needed."""
    message = f"waits {verdict.text}"
    look = now + (LOOK_HEAD if head else LOOK_REST)
    if job.message == message and job.due_at is not None and now < job.due_at <= look:
        return []
    return [Step((job.with_(message=message, due_at=look, last_processed_at=now),))]


def _fail(now: Micros, job: Job, verdict: Hopeless) -> Step:
    """No place can ever take it as things are; whether it is tried again is the run's decision."""
    draft = Draft(now)
    ending = draft.end_job(
        job, JobReason.failed_to_start_due_to_no_capacity, message=f"nowhere to run: {say(verdict.notes)}"
    )
    draft.finish_job(ending, None)
    return draft.step()
