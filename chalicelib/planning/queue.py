"""The queue's decisions: which jobs are placed, which wait, and which can never fit.

A unit, the waiting jobs of one replica, is placed whole or not at all; the nodes of a task are `gathering`'s part.
Units are taken in order, higher priority first, then older, and one that finds no place doesn't block those behind it.
Each placement is a step (the unit's jobs, the instances, for a new machine the fleet), so that losing a race for one
place costs one unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import Micros
from chalicelib.domain.jobs import Job
from chalicelib.domain.offers import Offer
from chalicelib.domain.reasons import JobReason
from chalicelib.machines.job import LOOK_HEAD, LOOK_REST, TO_START
from chalicelib.planning.asking import Spot, Waits
from chalicelib.planning.buying import Buy
from chalicelib.planning.floor import Floor
from chalicelib.planning.gangs import is_gang
from chalicelib.planning.gathering import Gathering
from chalicelib.planning.new_machine import order_for
from chalicelib.planning.offers import slice_of
from chalicelib.planning.places import assignment_to, claim_of
from chalicelib.planning.plan import Note, Plan, Step
from chalicelib.planning.pools import READY
from chalicelib.planning.snapshots import QueuedJob, QueueSnapshot
from chalicelib.planning.together import Unplaced, place_together
from chalicelib.planning.transitions import Draft
from chalicelib.planning.why_not import say


def decide_queue(snapshot: QueueSnapshot) -> Plan:
    floor = Floor(snapshot.fleets, snapshot.offers, snapshot.facts)
    todo = units(snapshot.queue)
    gathering = Gathering(floor, snapshot.now, snapshot.facts, snapshot.gangs, units(snapshot.ahead), todo)
    steps: list[Step] = []
    notes: list[Note] = []
    waiting: dict[str, int] = {}
    for unit in todo:
        answer = gathering.places(unit) if is_gang(unit) else _together(snapshot, floor, unit)
        if not isinstance(answer, Unplaced):
            steps += answer
        elif isinstance(answer.reason, Waits):
            fleet, message = answer.reason.fleet, f"waiting {answer.reason.text}"
            ahead = waiting.get(fleet, 0)
            waiting[fleet] = ahead + 1
            notes.append(Note(answer.item.job.name, f"{message}; {ahead} ahead of it"))
            for item in _queued(unit):
                steps += _wait(snapshot.now, item.job, message, head=sum(waiting.values()) == 1)
        else:
            notes += answer.reason.notes
            message = f"nowhere to run: {say(answer.reason.notes)}"
            steps += [_fail(snapshot.now, item.job, message) for item in _queued(unit)]
    return Plan(tuple(steps), tuple(notes), snapshot.now + LOOK_HEAD if waiting else None)


def _together(snapshot: QueueSnapshot, floor: Floor, unit: list[QueuedJob]) -> tuple[Step, ...] | Unplaced:
    draft = Draft(snapshot.now)
    answer = place_together(floor, unit, partial(place, draft, floor, snapshot.facts))
    return answer if isinstance(answer, Unplaced) else (draft.step(),)


def _queued(unit: list[QueuedJob]) -> list[QueuedJob]:
    """Those that stand in the queue themselves: of several nodes, the run's own pass ends the others."""
    return unit[:1] if is_gang(unit) else unit


def units(queue: Iterable[QueuedJob]) -> list[list[QueuedJob]]:
    """The queue grouped into units, each at the position of its first job."""
    found: dict[object, list[QueuedJob]] = {}
    for item in queue:
        if item.run.finished or item.run.status == "terminating":
            continue  # the run's own pass ends its jobs
        found.setdefault((item.run.id, item.job.replica_num), []).append(item)
    return list(found.values())


def place(draft: Draft, floor: Floor, facts: Mapping[str, BackendFacts], item: QueuedJob, where: Spot | Buy) -> None:
    if isinstance(where, Spot):
        _take(draft, floor, item, where)
    else:
        _buy(draft, floor, facts.get(where.offer.backend) or BackendFacts(name=where.offer.backend), item, where)


def _take(draft: Draft, floor: Floor, item: QueuedJob, spot: Spot) -> None:
    before, claim = spot.instance, claim_of(item, spot.blocks)
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
    instance = order_for(draft, floor, facts, item, buy)
    offer = slice_of(buy.offer, buy.blocks, buy.total)
    _assign(draft, item.job, instance, offer, instance.deadline or draft.now + TO_START)


def _assign(draft: Draft, job: Job, instance: Instance, offer: Offer, due_at: Micros) -> Job:
    draft.wake(f"run/{job.run_id}")
    share = f", {offer.blocks} of {offer.total_blocks} blocks" if offer.total_blocks > 1 else ""
    note = f"placed on {instance.name}{share}"
    assignment = assignment_to(instance, offer, draft.now)
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
