"""A plan's invariants, checked before anything of it is committed.

These are the promises that no decision may break, said once more and independently of the code that decides: no block
is held twice, no claim is made or lost apart from its job, a status follows an edge of its table and leaves its line
of history, a fleet keeps its limit, an effect is intended before it is done. A plan that breaks one is a bug and is
dropped whole; the message names the noun.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.jobs import LIVE_ON_INSTANCE, Job
from chalicelib.domain.noun import Noun
from chalicelib.domain.runs import Run
from chalicelib.machines.fleet import FLEET
from chalicelib.machines.instance import INSTANCE
from chalicelib.machines.job import JOB
from chalicelib.machines.run import RUN
from chalicelib.machines.table import Machine
from chalicelib.planning.combine import merged_fleet
from chalicelib.planning.plan import Create, Plan, Step, Terminate
from chalicelib.planning.snapshots import FleetSnapshot, FleetView, InstanceSnapshot, QueueSnapshot, RunSnapshot

Snapshot = QueueSnapshot | RunSnapshot | InstanceSnapshot | FleetSnapshot
Known = dict[tuple[type, str], Noun]

_MACHINES: dict[type, Machine] = {Run: RUN, Job: JOB, Instance: INSTANCE, Fleet: FLEET}
_REACHABLE: dict[tuple[str, str], frozenset[str]] = {}


def lint(snapshot: Snapshot, plan: Plan) -> list[str]:
    """What is wrong with a plan; empty when it may be committed."""
    known = {(type(noun), _id(noun)): noun for noun in _nouns(snapshot)}
    found: list[str] = []
    for step in plan.steps:
        found += _changes(step, known)
        found += _claims(step, known)
        found += _effects(step)
        known.update({(type(noun), _id(noun)): noun for noun in step.saves})
    found += _limits(snapshot, plan)
    return found


def _id(noun: Noun) -> str:
    return str(getattr(noun, "id", id(noun)))


def _nouns(snapshot: Snapshot) -> Iterator[Noun]:
    if isinstance(snapshot, QueueSnapshot):
        for item in snapshot.queue:
            yield from (item.job, item.run)
    elif isinstance(snapshot, RunSnapshot):
        yield snapshot.run
        yield from snapshot.jobs
        yield from snapshot.instances.values()
    elif isinstance(snapshot, InstanceSnapshot):
        yield from snapshot.jobs
    for view in _views(snapshot):
        yield view.fleet
        yield from view.instances
    if isinstance(snapshot, InstanceSnapshot):
        yield snapshot.instance


def _views(snapshot: Snapshot) -> tuple[FleetView, ...]:
    if isinstance(snapshot, QueueSnapshot):
        return snapshot.fleets
    if isinstance(snapshot, FleetSnapshot):
        return (snapshot.view,)
    return (snapshot.fleet,) if isinstance(snapshot, InstanceSnapshot) else ()


def reaches(machine: Machine, start: str) -> frozenset[str]:
    """Every state that a chain of edges leads to from `start`."""
    key = (machine.noun, start)
    if key not in _REACHABLE:
        seen, todo = {start}, [start]
        while todo:
            new = set(machine.table.get(todo.pop(), {}).values()) - seen
            seen |= new
            todo += new
        _REACHABLE[key] = frozenset(seen)
    return _REACHABLE[key]


def _changes(step: Step, known: Known) -> Iterator[str]:
    """A status follows its table, an end is for ever, and each change of status is told."""
    told = {target.id for event in step.events for target in event.targets}
    keys = [(type(noun), _id(noun)) for noun in step.saves]
    if len(set(keys)) < len(keys):
        yield "a noun is saved twice in one step"
    for noun in step.saves:
        machine = _MACHINES.get(type(noun))
        if machine is None:
            continue
        new: Any = noun
        name, old = f"{machine.noun} {new.name}", known.get((type(noun), _id(noun)))
        if old is None:
            if new.version or new.status not in machine.initial:
                yield f"{name} appears as {new.status} out of nowhere"
            if _id(noun) not in told:
                yield f"{name} is made without an event"
            continue
        before = str(old.status)  # type: ignore[attr-defined]
        if new.status == before:
            if before in machine.terminal and type(noun) is Job:
                yield f"{name} is {before} and is changed all the same"
            continue
        if new.status not in reaches(machine, before):
            yield f"{name} can't become {new.status}: it is {before}"
        if _id(noun) not in told:
            yield f"{name} becomes {new.status} without an event"


def _claims(step: Step, known: Known) -> Iterator[str]:
    """No block twice; a claim and its job's place are made and lost together."""
    jobs = {noun.id: noun for noun in step.saves if isinstance(noun, Job)}
    instances = {noun.id: noun for noun in step.saves if isinstance(noun, Instance)}
    for instance in instances.values():
        blocks = [block for claim in instance.claims for block in claim.blocks]
        if len(set(blocks)) < len(blocks):
            yield f"instance {instance.name} has a block that two jobs hold"
        if any(block not in range(instance.total_blocks) for block in blocks):
            yield f"instance {instance.name} gives away a block it doesn't have"
        if len({claim.job_id for claim in instance.claims}) < len(instance.claims):
            yield f"instance {instance.name} holds two claims of one job"
        yield from (
            f"instance {instance.name} holds the claim of {job.name}, which is over"
            for claim in instance.claims
            if (job := jobs.get(claim.job_id)) is not None and job.finished
        )
        if instance.status == InstanceStatus.idle and instance.claims:
            yield f"instance {instance.name} is idle and holds claims"
        old = known.get((Instance, instance.id))
        before = {claim.job_id for claim in old.claims} if isinstance(old, Instance) else set()
        after = {claim.job_id for claim in instance.claims}
        for job_id in after - before:
            job = jobs.get(job_id)
            if job is None or job.assignment is None or job.assignment.instance_id != instance.id:
                yield f"instance {instance.name} takes a claim that no job of this step has"
        for job_id in before - after:
            job = jobs.get(job_id)
            if job is not None and not job.finished and job.assignment is not None:
                yield f"instance {instance.name} drops the claim of {job.name}, which still holds it"
    for job in jobs.values():
        yield from _place_of(job, instances, known)


def _place_of(job: Job, instances: dict[str, Instance], known: Known) -> Iterator[str]:
    old = known.get((Job, job.id))
    was = old.assignment if isinstance(old, Job) else None
    if job.assignment is not None and was is None:
        instance = instances.get(job.assignment.instance_id)
        claims = () if instance is None else instance.claims
        held = [len(claim.blocks) for claim in claims if claim.job_id == job.id]
        if not held:
            yield f"job {job.name} is placed without a claim"
        elif held != [job.assignment.offer.blocks]:
            yield f"job {job.name} is given {job.assignment.offer.blocks} blocks and claims {held[0]}"
    released = job.finished or job.assignment is None
    if released and was is not None and isinstance(old, Job) and old.status in LIVE_ON_INSTANCE:
        place = instances.get(was.instance_id) or known.get((Instance, was.instance_id))
        if isinstance(place, Instance) and job.id in {claim.job_id for claim in place.claims}:
            yield f"job {job.name} lets go of {place.name}, where its claim stays"


def _effects(step: Step) -> Iterator[str]:
    """An effect's intent is committed with it."""
    saved = {noun.id: noun for noun in step.saves if isinstance(noun, Instance)}
    for effect in step.effects:
        instance = saved.get(effect.instance_id)
        if isinstance(effect, Create):
            if instance is None or instance.status != InstanceStatus.pending or instance.act_until is None:
                yield f"instance {effect.instance_id} is bought without a committed act_until"
            elif not instance.bought:
                yield f"instance {instance.name} isn't of a backend, so it can't be bought"
        elif isinstance(effect, Terminate) and (instance is None or instance.status != InstanceStatus.terminating):
            yield f"instance {effect.instance_id} is given back without being terminating"


def _limits(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """A fleet never has more instances than it may, and whoever adds one commits the fleet with it."""
    added: dict[str, int] = {}
    listed = {i.id for view in _views(snapshot) for i in view.instances}
    for step in plan.steps:
        fleets = {noun.id for noun in step.saves if isinstance(noun, Fleet)}
        for noun in step.saves:
            if (
                isinstance(noun, Instance)
                and noun.version == 0
                and noun.id not in listed
                and not isinstance(snapshot, InstanceSnapshot | RunSnapshot)
            ):
                listed.add(noun.id)
                added[noun.fleet_id] = added.get(noun.fleet_id, 0) + 1
                if noun.fleet_id not in fleets:
                    yield f"instance {noun.name} is added without committing its fleet"
    for view in _views(snapshot):
        nodes = merged_fleet(view.spec).nodes
        count = len(view.instances) + added.get(view.fleet.id, 0)
        if added.get(view.fleet.id) and nodes is not None and nodes.max is not None and count > nodes.max:
            yield f"fleet {view.fleet.name} would have {count} instances of at most {nodes.max}"
