"""The queue's decisions: which jobs are placed, which wait, and which can never fit.

A unit, the waiting jobs of one replica, is placed as a whole or not at all; `gang_placement` handles the nodes of
tasks. Units are taken in order, higher priority first, then older, and one that finds no place doesn't block those
behind it. Each placement is a step (the unit's jobs, the instances, for a new machine the fleet), so that losing a race
for one place costs one unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from chalicelib.domain.facts import BackendFacts
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import Micros
from chalicelib.domain.jobs import Assignment, Job, Mounted
from chalicelib.domain.offers import Offer
from chalicelib.domain.reasons import JobReason
from chalicelib.errors import Bug
from chalicelib.machines.job import CHECK_HEAD_EVERY, CHECK_QUEUE_EVERY, TO_START
from chalicelib.planning.kernel.plan import Note, Plan, Step
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.matching.offer_book import slice_of
from chalicelib.planning.matching.pools import READY
from chalicelib.planning.matching.queued_job import QueuedJob
from chalicelib.planning.placing.all_or_none import Unplaced, place_together
from chalicelib.planning.placing.buying import Purchase
from chalicelib.planning.placing.capacity import Capacity
from chalicelib.planning.placing.claims import assignment_to, claim_of
from chalicelib.planning.placing.gang_needs import is_gang
from chalicelib.planning.placing.gang_placement import GangPlacer
from chalicelib.planning.placing.markets import Markets
from chalicelib.planning.placing.new_machine import order_for
from chalicelib.planning.placing.options import FreePlace, Waiting
from chalicelib.planning.placing.questions import Question
from chalicelib.planning.placing.quotas import Allowance, Amounts, gpus_of
from chalicelib.planning.placing.run_progress import follow
from chalicelib.planning.placing.snapshot import QueueSnapshot
from chalicelib.planning.placing.why_not import as_text
from chalicelib.planning.volumes.attachments import claim_volumes, mounted
from chalicelib.planning.volumes.sites import Volumes, chosen_for, sites, together


def decide_queue(snapshot: QueueSnapshot) -> Plan:
    markets = Markets(snapshot.now, snapshot.facts, snapshot.answers)
    book = snapshot.offers.with_answers(markets.offers()) if snapshot.answers else snapshot.offers
    capacity = Capacity(snapshot.fleets, book, snapshot.facts, snapshot.volumes, snapshot.answers)
    todo, before = (located(units(part), snapshot.volumes) for part in (snapshot.queue, snapshot.ahead))
    allowance = Allowance(snapshot.usage, snapshot.tokens)
    gathering = GangPlacer(capacity, snapshot.now, snapshot.facts, snapshot.gangs, before, todo, allowance, markets)
    steps: list[Step] = []
    notes: list[Note] = []
    waiting: dict[str, int] = {}
    pause = CHECK_HEAD_EVERY
    first_places: dict[str, Assignment] = {}  # of runs whose jobs reach each other
    for each in todo:
        unit = (
            [replace(item, beside=first_places.get(item.run.id) or item.beside) for item in each]
            if first_places
            else each
        )
        answer = gathering.places(unit) if is_gang(unit) else _place_unit(snapshot, capacity, allowance, markets, unit)
        if not isinstance(answer, Unplaced):
            steps += answer
            if unit[0].spec.networked:
                first_places[unit[0].run.id] = _first_place(answer)
            continue
        verdict = answer.verdict(snapshot.now)
        if isinstance(verdict, Waiting):
            fleet, message = verdict.fleet, f"waiting {verdict.text}"
            ahead = waiting.get(fleet, 0)
            waiting[fleet] = ahead + 1
            notes.append(Note(answer.item.job.name, f"{message}; {ahead} ahead of it"))
            usual = CHECK_HEAD_EVERY if sum(waiting.values()) == 1 else CHECK_QUEUE_EVERY
            pause = min(pause, verdict.check_in or usual)
            if verdict.market is not None and verdict.market.to_ask:
                steps.append(markets.step(verdict.market))
                continue
            for item in _queued(unit):
                steps += _wait(snapshot.now, item.job, message, verdict.check_in or usual)
        else:
            why_not = (*markets.silences(capacity, unit), *verdict.notes)
            notes += why_not
            reason, why = verdict.reason, as_text(why_not).strip()
            message = why if reason is JobReason.volume_error else f"nowhere to run: {why}"
            steps += [_fail(snapshot.now, item.job, reason, message) for item in _queued(unit)]
    return Plan(tuple(steps), tuple(notes), snapshot.now + pause if waiting else None)


def _place_unit(
    snapshot: QueueSnapshot, capacity: Capacity, allowance: Allowance, markets: Markets, unit: list[QueuedJob]
) -> tuple[Step, ...] | Unplaced:
    draft, mark, lead = Draft(snapshot.now), capacity.mark(), unit[0]
    question = Question(capacity, allowance, markets, unit)
    answer = place_together(capacity, unit, partial(place, draft, capacity, snapshot.facts))
    wait = question.first(answer.reason if isinstance(answer, Unplaced) else answer)
    if wait is not None:
        capacity.roll_back(mark)
        return Unplaced(lead, wait)
    if isinstance(answer, Unplaced):
        return answer
    need = Amounts(sum(map(_gpus, answer)), len(unit))
    if lacking := allowance.refuses(lead.run, need):
        capacity.roll_back(mark)
        return Unplaced(lead, Waiting("", lacking))
    allowance.takes(lead.run, need, (item.job for item in unit))
    allowance.sign(draft, lead.run)
    return (draft.step(),)


def _first_place(steps: tuple[Step, ...]) -> Assignment:
    """Where the first job of a unit was placed."""
    jobs = (noun for step in steps for noun in step.saves if isinstance(noun, Job))
    return next(job.assignment for job in jobs if job.assignment is not None)


def _gpus(where: FreePlace | Purchase) -> int:
    return (
        gpus_of(where.offer, where.blocks, where.total) if isinstance(where, Purchase) else gpus_of(where.offer, 1, 1)
    )


def _queued(unit: list[QueuedJob]) -> list[QueuedJob]:
    """The jobs that are in the queue themselves. Of several nodes only the first is; the run's own pass ends the
    others."""
    return unit[:1] if is_gang(unit) else unit


def units(queue: Iterable[QueuedJob]) -> list[list[QueuedJob]]:
    """The queue grouped into units, each at the position of its first job."""
    found: dict[object, list[QueuedJob]] = {}
    for item in queue:
        if item.run.finished or item.run.status == "terminating":
            continue  # the run's own pass ends its jobs
        found.setdefault((item.run.id, item.job.replica_num), []).append(item)
    return list(found.values())


def located(found: list[list[QueuedJob]], volumes: Volumes) -> list[list[QueuedJob]]:
    """The units, each job with the sites of its volumes. Nodes are in one cluster, so their sites must meet."""
    return [_located(unit, volumes) if any(item.volumes for item in unit) else unit for unit in found]


def _located(unit: list[QueuedJob], volumes: Volumes) -> list[QueuedJob]:
    where = [sites(item.volumes, volumes) if item.volumes else None for item in unit]
    if is_gang(unit):
        having = iter(together([each for each in where if each is not None]))
        where = [each if each is None else next(having) for each in where]
    return [replace(item, sites=each) for item, each in zip(unit, where, strict=True)]


def place(
    draft: Draft, capacity: Capacity, facts: Mapping[str, BackendFacts], item: QueuedJob, where: FreePlace | Purchase
) -> None:
    if isinstance(where, FreePlace):
        job = _use_place(draft, capacity, item, where)
    else:
        job = _buy_machine(
            draft, capacity, facts.get(where.offer.backend) or BackendFacts(name=where.offer.backend), item, where
        )
    if item.alone:
        follow(draft, item.run, job)


def _use_place(draft: Draft, capacity: Capacity, item: QueuedJob, spot: FreePlace) -> Job:
    before, claim = spot.instance, claim_of(item, spot.blocks)
    started = before.status in READY
    due = draft.now + TO_START if started else before.deadline or draft.now + TO_START
    job, before = _assign(draft, capacity, item, before, spot.offer, due)
    claims = (*before.claims, claim)
    if before.status == InstanceStatus.idle:
        instance = draft.move_instance(before, "claimed", claims=claims, idle_since=None)
    else:
        instance = before.with_(claims=claims, last_processed_at=draft.now)
        draft.save(instance)
    capacity.record_claim(instance, spot.blocks)
    return job


def _buy_machine(draft: Draft, capacity: Capacity, facts: BackendFacts, item: QueuedJob, buy: Purchase) -> Job:
    instance = order_for(draft, capacity, facts, item, buy)
    offer = slice_of(buy.offer, buy.blocks, buy.total)
    return _assign(draft, capacity, item, instance, offer, instance.deadline or draft.now + TO_START)[0]


def _assign(
    draft: Draft, capacity: Capacity, item: QueuedJob, instance: Instance, offer: Offer, due_at: Micros
) -> tuple[Job, Instance]:
    """Give the job its place and its volumes. Returns the job and the machine, which may have new disks."""
    job, volumes = item.job, tuple[Mounted, ...]()
    draft.wake(f"run/{job.run_id}")
    if item.volumes:
        chosen = chosen_for(item.volumes, capacity.volumes, lambda site: site.has(instance))
        if chosen is None:
            raise Bug(f"{instance.name} was chosen for {job.name}, but its volumes aren't there")
        taken, instance = claim_volumes(draft, chosen, job, instance)
        capacity.record_mounts(taken, instance)
        volumes = mounted(item.spec.volumes, taken)
    share = f", {offer.blocks} of {offer.total_blocks} blocks" if offer.total_blocks > 1 else ""
    note = f"placed on {instance.name}{share}"
    assignment = assignment_to(instance, offer, draft.now, volumes)
    run = item.run
    covered = item.alone and run.due_at is not None and draft.now < run.due_at <= due_at  # its run covers the job
    due = None if covered else due_at
    job = draft.move_job(job, "provision", instance, note=note, assignment=assignment, message="", due_at=due)
    return job, instance


def _wait(now: Micros, job: Job, message: str, pause: Micros) -> list[Step]:
    """Record what the job waits for and when the next check is due, but only if that changes."""
    due_at = now + pause
    if job.message == message and job.due_at is not None and now < job.due_at <= due_at:
        return []
    return [Step((job.with_(message=message, due_at=due_at, last_processed_at=now),))]


def _fail(now: Micros, job: Job, reason: JobReason, message: str) -> Step:
    """End a job that can't be placed; whether to retry is the run's decision."""
    draft = Draft(now)
    ending = draft.end_job(job, reason, message=message)
    draft.finish_job(ending, None)
    return draft.step()
