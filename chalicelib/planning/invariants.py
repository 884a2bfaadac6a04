"""The invariants of each kind of noun: no block is held twice, a claim and its job change together, a fleet stays
within its limit, an effect is committed before it runs, a finished job never changes again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from chalicelib.domain.fleets import Fleet
from chalicelib.domain.gangs import Gang, GangStatus
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.jobs import Job
from chalicelib.domain.reasons import InstanceReason
from chalicelib.domain.volumes import Volume, VolumeStatus
from chalicelib.domain.workflows import Workflow
from chalicelib.planning.combine import merged_fleet
from chalicelib.planning.lint import Known, id_of
from chalicelib.planning.placement_groups import DeleteGroup
from chalicelib.planning.plan import Effect, Plan, Step
from chalicelib.planning.purchases import Create, CreateSeveral, Describe, Terminate, unit_of
from chalicelib.planning.snapshots import Snapshot
from chalicelib.planning.volumes import CreateVolume, DeleteVolume, RegisterVolume
from chalicelib.planning.workflows import DoStep


def ended_jobs(step: Step, known: Known) -> Iterator[str]:
    """An ended job never changes again."""
    for job in step.saves:
        old = known.get((Job, job.id)) if isinstance(job, Job) else None
        if isinstance(old, Job) and isinstance(job, Job) and old.finished and job.status == old.status:
            yield f"job {job.name} has ended ({old.status.value}) but changes"


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


def gangs(step: Step, known: Known) -> Iterator[str]:
    """A gang is sealed with all its places, and one that has to be undone is looked at."""
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


def watched(step: Step, known: Known) -> Iterator[str]:
    """Every instance that isn't gone is looked at again, even if every wake-up is lost."""
    for noun in step.saves:
        if isinstance(noun, Instance) and noun.due_at is None and noun.status != InstanceStatus.terminated:
            yield f"instance {noun.name} is {noun.status.value}, but nothing will look at it again"


def _one_by_one(effects: Iterable[Effect]) -> Iterator[Effect]:
    for effect in effects:
        if isinstance(effect, CreateSeveral):
            yield from effect.each()
        else:
            yield effect


def purchases(step: Step, known: Known) -> Iterator[str]:
    """The instance committed with an effect intends that effect."""
    saved = {unit_of(noun): noun for noun in step.saves if isinstance(noun, Instance)}
    for effect in _one_by_one(step.effects):
        if not isinstance(effect, Create | Describe | Terminate):
            continue
        instance = saved.get(effect.unit)
        if instance is not None and effect.backend != instance.offer.backend:
            yield f"{effect.unit} belongs to {instance.offer.backend}, but its effect goes to {effect.backend}"
        if isinstance(effect, Create):
            if instance is None or instance.status != InstanceStatus.pending or instance.act_until is None:
                yield f"{effect.unit} is bought without a committed act_until"
            elif instance.act_until != effect.act_until:
                yield f"instance {instance.name} is bought with an act_until other than the committed one"
            elif not instance.bought:
                yield f"instance {instance.name} has no backend to buy it from"
        elif isinstance(effect, Terminate) and (instance is None or instance.status != InstanceStatus.terminating):
            yield f"{effect.unit} is to be terminated, but its status isn't terminating"


def placement_groups(step: Step, known: Known) -> Iterator[str]:
    """A machine is ordered in a group that its fleet has and keeps; only a group that nobody is in is deleted."""
    fleets = [noun for noun in step.saves if isinstance(noun, Fleet)]
    kept = {group.id for fleet in fleets for group in fleet.groups if not group.leaving}
    leaving = {group.id for fleet in fleets for group in fleet.groups if group.leaving}
    for noun in step.saves:
        if isinstance(noun, Instance) and noun.version == 0 and noun.placement_group not in ("", *kept):
            yield f"instance {noun.name} is ordered in a placement group that its fleet doesn't keep"
    for fleet in fleets:
        if fleet.due_at is None and any(group.leaving for group in fleet.groups):
            yield f"fleet {fleet.name} deletes a placement group, but nothing will look at it again"
        before = known.get((Fleet, fleet.id))
        had = {group.id for group in before.groups if not group.leaving} if isinstance(before, Fleet) else set()
        if had - kept and (used := (had - kept) & _groups_in_use(step, known)):
            yield f"fleet {fleet.name} gives up placement group {min(used)}, which is used"
    for effect in step.effects:
        if isinstance(effect, DeleteGroup) and effect.group not in leaving:
            yield f"placement group {effect.group} is deleted without committing it"


def _groups_in_use(step: Step, known: Known) -> set[str]:
    now = {(type(noun), id_of(noun)): noun for noun in step.saves}
    found = (noun for noun in {**known, **now}.values() if isinstance(noun, Instance))
    return {noun.placement_group for noun in found if noun.status is not InstanceStatus.terminated}


def workflows(step: Step, known: Known) -> Iterator[str]:
    """A workflow that hasn't ended is looked at again, and an attempt is committed before it is made."""
    saved = {noun.unit: noun for noun in step.saves if isinstance(noun, Workflow)}
    for workflow in saved.values():
        if not workflow.ended and workflow.due_at is None:
            yield f"workflow {workflow.name} is {workflow.status.value}, but nothing will look at it again"
    for effect in step.effects:
        if isinstance(effect, DoStep):
            workflow_ = saved.get(effect.unit)
            if workflow_ is None or workflow_.act_until != effect.act_until or workflow_.ended:
                yield f"{effect.unit} attempts {effect.step} without committing it"


def volumes(step: Step, known: Known) -> Iterator[str]:
    """A volume is created, registered or deleted only as committed; one that is in use, or isn't ours, is never
    deleted at its provider; one that isn't settled is looked at again."""
    saved = {noun.unit: noun for noun in step.saves if isinstance(noun, Volume)}
    for volume in saved.values():
        unsettled = volume.status not in (VolumeStatus.deleted, VolumeStatus.failed) or volume.remains
        if volume.due_at is None and (unsettled or (volume.attachments and not volume.deleted)):
            yield f"volume {volume.name} is {volume.status.value}, but nothing will look at it again"
        if volume.deleted and volume.attachments:
            yield f"volume {volume.name} is deleted while it is attached"
    for effect in step.effects:
        intended = saved.get(effect.unit)
        if isinstance(effect, CreateVolume | RegisterVolume):
            if intended is None or intended.status != VolumeStatus.submitted:
                yield f"{effect.unit} is created without being submitted"
            elif intended.act_until != effect.act_until:
                yield f"volume {intended.name} is created with an act_until other than the committed one"
            elif intended.external != isinstance(effect, RegisterVolume):
                yield f"volume {intended.name} is registered though it isn't external, or created though it is"
        elif isinstance(effect, DeleteVolume):
            if intended is None or not (intended.status == VolumeStatus.deleting or intended.remains):
                yield f"{effect.unit} is to be deleted at its provider, but isn't being deleted"
            elif intended.attachments or intended.external:
                yield f"volume {intended.name} is to be deleted at its provider while it is attached, or isn't ours"


def fleet_sizes(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """A fleet never exceeds its limit, and whoever adds an instance commits the fleet with it."""
    added: dict[str, int] = {}
    listed = {i.id for view in snapshot.views() for i in view.instances}
    for step in plan.steps:
        fleets = {noun.id for noun in step.saves if isinstance(noun, Fleet)}
        for noun in step.saves:
            if (
                isinstance(noun, Instance)
                and noun.version == 0
                and noun.id not in listed
                and snapshot.unit.partition("/")[0] in ("queue", "fleet")
            ):
                listed.add(noun.id)
                added[noun.fleet_id] = added.get(noun.fleet_id, 0) + 1
                if noun.fleet_id not in fleets:
                    yield f"instance {noun.name} is added without committing its fleet"
    for view in snapshot.views():
        nodes = merged_fleet(view.spec).nodes
        more = added.get(view.fleet.id, 0)
        count = len(view.instances) + more
        if more and nodes is not None and nodes.max is not None and count > nodes.max:
            yield f"fleet {view.fleet.name} would have {count} instances of at most {nodes.max}"
