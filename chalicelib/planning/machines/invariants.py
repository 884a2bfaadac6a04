"""Invariants of plans that change machines: an effect is committed before it runs, a fleet stays within its limit, and
every machine that isn't gone stays due.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from chalicelib.domain.bundles import follows, others, others_among
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.reasons import InstanceReason
from chalicelib.planning.kernel.lint import Known, id_of
from chalicelib.planning.kernel.plan import Effect, Plan, Step
from chalicelib.planning.kernel.purchases import Create, CreateSeveral, Describe, Terminate, unit_of
from chalicelib.planning.kernel.snapshot import Snapshot
from chalicelib.planning.matching.requirements import merged_fleet
from chalicelib.planning.placing.placement_groups import DeleteGroup

_LEAVING = (InstanceStatus.terminating, InstanceStatus.terminated)
_UNUSED = (InstanceReason.idle_timeout, InstanceReason.max_instances_limit, InstanceReason.terminated_by_user)


def watched(step: Step, known: Known) -> Iterator[str]:
    """Every instance that isn't gone stays due, in case every wake-up is lost."""
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
    """Every effect is intended by the instance that is committed with it."""
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


def bundles(step: Step, known: Known) -> Iterator[str]:
    """The first of a bundle is bought and terminated for all, and the bundle isn't given up while a job uses it."""
    now = {**known, **{(type(noun), id_of(noun)): noun for noun in step.saves}}
    for effect in _one_by_one(step.effects):
        instance = now.get((Instance, effect.unit.partition("/")[2]))
        if not isinstance(instance, Instance) or instance.bundle is None:
            continue
        if isinstance(effect, Create | Terminate) and follows(instance):
            yield f"instance {instance.name} follows another of its bundle, and {type(effect).__name__} is for that one"
        if isinstance(effect, Terminate):
            for other in _others(instance, now):
                if other.status not in _LEAVING:
                    yield f"instance {instance.name} is terminated with {other.name}, which is {other.status.value}"
    for noun in step.saves:
        before = known.get((Instance, id_of(noun)))
        if not isinstance(noun, Instance) or not isinstance(before, Instance) or noun.reason not in _UNUSED:
            continue
        rest = list(_others(noun, now))
        begins = before.status not in _LEAVING and not any(other.status in _LEAVING for other in rest)
        for other in (before, *rest) if begins and noun.bundle is not None else ():
            if other.claims:
                yield f"instance {noun.name} is given up while {other.name} of its bundle is used"


def _others(instance: Instance, now: Known) -> Iterator[Instance]:
    found = (now.get((Instance, each)) for each in others(instance))
    yield from others_among(instance, (each for each in found if isinstance(each, Instance)))


def placement_groups(step: Step, known: Known) -> Iterator[str]:
    """A machine is ordered only in a group that its fleet keeps, and only an empty group is deleted."""
    fleets = [noun for noun in step.saves if isinstance(noun, Fleet)]
    staying = {group.id for fleet in fleets for group in fleet.groups if not group.leaving}
    leaving = {group.id for fleet in fleets for group in fleet.groups if group.leaving}
    for noun in step.saves:
        if isinstance(noun, Instance) and noun.version == 0 and noun.placement_group not in ("", *staying):
            yield f"instance {noun.name} is ordered in a placement group that its fleet doesn't keep"
    for fleet in fleets:
        if fleet.due_at is None and any(group.leaving for group in fleet.groups):
            yield f"fleet {fleet.name} deletes a placement group, but nothing will look at it again"
        before = known.get((Fleet, fleet.id))
        had = {group.id for group in before.groups if not group.leaving} if isinstance(before, Fleet) else set()
        if had - staying and (used := (had - staying) & _groups_in_use(step, known)):
            yield f"fleet {fleet.name} gives up placement group {min(used)}, which is used"
    for effect in step.effects:
        if isinstance(effect, DeleteGroup) and effect.group not in leaving:
            yield f"placement group {effect.group} is deleted without committing it"


def _groups_in_use(step: Step, known: Known) -> set[str]:
    now = {(type(noun), id_of(noun)): noun for noun in step.saves}
    found = (noun for noun in {**known, **now}.values() if isinstance(noun, Instance))
    return {noun.placement_group for noun in found if noun.status is not InstanceStatus.terminated}


def fleet_sizes(snapshot: Snapshot, plan: Plan) -> Iterator[str]:
    """A fleet never exceeds its limit, and an instance is added only together with a commit of its fleet."""
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
