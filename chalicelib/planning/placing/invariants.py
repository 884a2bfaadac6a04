"""Invariants of plans that change places: no block is held twice, a claim and its job change together, a gang is sealed
with all its places, and a project stays within its quota, as an access token does within its limit. Both are committed
with every placement.
"""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.domain.gangs import Gang, GangStatus
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.jobs import Job
from chalicelib.domain.quotas import Quota
from chalicelib.domain.reasons import InstanceReason
from chalicelib.domain.spending import Spending, address_of
from chalicelib.planning.kernel.lint import Known
from chalicelib.planning.kernel.plan import Plan, Step
from chalicelib.planning.kernel.snapshot import Snapshot
from chalicelib.planning.placing.quotas import gpus_of
from chalicelib.planning.placing.snapshot import QueueSnapshot


def claims(step: Step, known: Known) -> Iterator[str]:
    """No block is held twice; a claim and its job's place come and go together."""
    jobs = {noun.id: noun for noun in step.saves if isinstance(noun, Job)}
    instances = {noun.id: noun for noun in step.saves if isinstance(noun, Instance)}
    for instance in instances.values():
        blocks = [block for claim in instance.claims for block in claim.blocks]
        if len(set(blocks)) < len(blocks):
            yield f"instance {instance.name} has a block held by two jobs"
        if any(block not in range(instance.total_blocks) for block in blocks):
            yield f"instance {instance.name} hands out a block it doesn't have"
        if len({claim.job_id for claim in instance.claims}) < len(instance.claims):
            yield f"instance {instance.name} holds two claims of one job"
        yield from (
            f"instance {instance.name} holds the claim of {job.name}, which has ended"
            for claim in instance.claims
            if (job := jobs.get(claim.job_id)) is not None and job.finished
        )
        if instance.status == InstanceStatus.idle and instance.claims:
            yield f"instance {instance.name} is idle but holds claims"
        if instance.reason is InstanceReason.terminated_by_user and instance.claims:
            yield f"instance {instance.name} is terminated by a user while a job has a claim on it"
        old = known.get((Instance, instance.id))
        before = {claim.job_id for claim in old.claims} if isinstance(old, Instance) else set()
        after = {claim.job_id for claim in instance.claims}
        reserved = {claim.job_id for claim in instance.claims if (claim.run_id, instance.id) in _reserved(step)}
        for job_id in after - before - reserved:
            job = jobs.get(job_id)
            if job is None or job.assignment is None or job.assignment.instance_id != instance.id:
                yield f"instance {instance.name} gets a claim that belongs to no job of this step"
        for job_id in before - after:
            job = jobs.get(job_id)
            if job is not None and not job.finished and job.assignment is not None:
                yield f"instance {instance.name} drops the claim of {job.name}, which still needs it"
    for job in jobs.values():
        yield from _place_of(job, instances, known)


def _reserved(step: Step) -> set[tuple[str, str]]:
    """Runs and the machines that their gangs have in this step."""
    return {(gang.run_id, place) for gang in step.saves if isinstance(gang, Gang) for place in gang.places}


def _place_of(job: Job, instances: dict[str, Instance], known: Known) -> Iterator[str]:
    old = known.get((Job, job.id))
    was = old.assignment if isinstance(old, Job) else None
    if job.assignment is not None and was is None:
        instance = instances.get(job.assignment.instance_id) or known.get((Instance, job.assignment.instance_id))
        claims = instance.claims if isinstance(instance, Instance) else ()
        held = [len(claim.blocks) for claim in claims if claim.job_id == job.id]
        if not held:
            yield f"job {job.name} is placed without a claim"
        elif held != [job.assignment.offer.blocks]:
            yield f"job {job.name} is assigned {job.assignment.offer.blocks} blocks but claims {held[0]}"
    if was is not None and (job.finished or job.assignment is None):
        place = instances.get(was.instance_id) or known.get((Instance, was.instance_id))
        if isinstance(place, Instance) and job.id in {claim.job_id for claim in place.claims}:
            yield f"job {job.name} leaves {place.name}, which keeps its claim"


def gangs(step: Step, known: Known) -> Iterator[str]:
    """A gang is sealed with all its places, and one that has to be undone stays due."""
    for gang in step.saves:
        if not isinstance(gang, Gang):
            continue
        if len(set(gang.places)) < len(gang.places):
            yield f"gang {gang.name} has a machine twice"
        if gang.status in (GangStatus.sealed, GangStatus.starting) and len(gang.places) != gang.nodes:
            yield f"gang {gang.name} is {gang.status.value} with {len(gang.places)} of {gang.nodes} places"
        waits = gang.status in (GangStatus.gathering, GangStatus.sealed)
        if gang.due_at is None and (waits or (gang.status is GangStatus.undone and gang.places)):
            yield f"gang {gang.name} is {gang.status.value}, but nothing will look at it again"


def quotas(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    usage = snapshot.usage if isinstance(snapshot, QueueSnapshot) else None
    if usage is None:
        return
    before = {i.id: {claim.job_id for claim in i.claims} for view in snapshot.views() for i in view.instances}
    jobs, gpus = usage.all.jobs, usage.all.gpus
    most, gave = usage.quota.limits, False
    for step in plan.steps:
        signed = any(isinstance(noun, Quota) for noun in step.saves)
        for instance in (noun for noun in step.saves if isinstance(noun, Instance)):
            new = [claim for claim in instance.claims if claim.job_id not in before.get(instance.id, ())]
            before[instance.id] = {claim.job_id for claim in instance.claims}
            if new and not signed:
                yield f"instance {instance.name} gets a claim without committing its project's quota"
            gave = gave or bool(new)
            jobs += len(new)
            gpus += sum(gpus_of(instance.offer, len(claim.blocks), instance.total_blocks) for claim in new)
    if gave and most.jobs is not None and jobs > most.jobs:
        yield f"project {usage.quota.project_name} would have {jobs} jobs of at most {most.jobs}"
    if gave and most.gpus is not None and gpus > max(most.gpus, usage.all.gpus):
        yield f"project {usage.quota.project_name} would have {gpus} GPUs of at most {most.gpus}"


def token_limits(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """Every place of a job whose run has a token's limit is committed together with the record that lists it, and none
    is given once the day's dollars are spent."""
    if not isinstance(snapshot, QueueSnapshot) or not snapshot.tokens:
        return
    limited = {item.job.id: (item.job, item.run.limit) for item in snapshot.queue if item.run.limit is not None}
    before = {claim.job_id for view in snapshot.views() for i in view.instances for claim in i.claims}
    for step in plan.steps:
        listed = {noun.id: noun.jobs for noun in step.saves if isinstance(noun, Spending)}
        new = {claim.job_id for noun in step.saves if isinstance(noun, Instance) for claim in noun.claims} - before
        before |= new
        for job, limit in (limited[job_id] for job_id in sorted(new & limited.keys())):
            if limit is None or address_of(job) not in listed.get(limit.id, ()):
                yield f"job {job.name} gets a place without being listed under its token's limit"
            elif snapshot.tokens[limit.id].money >= limit.dollars:
                yield f"job {job.name} gets a place, but the dollars of the token {limit.token} are spent"
