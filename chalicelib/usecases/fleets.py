"""Fleets: what there is of them, deleting them and single instances."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from chalicelib.domain.events import Target
from chalicelib.domain.fleets import Fleet, FleetBody, FleetStatus
from chalicelib.domain.instances import Instance, InstanceStatus
from chalicelib.domain.instants import Micros
from chalicelib.domain.reasons import InstanceReason
from chalicelib.domain.runs import Run
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.tenants import Project, ProjectRole, User
from chalicelib.errors import Bug, Conflict, Invalid, NotFound, Refused
from chalicelib.machines.fleet import FLEET
from chalicelib.machines.instance import INSTANCE
from chalicelib.machines.table import allows
from chalicelib.machines.table import apply as follow
from chalicelib.store import keys, nouns
from chalicelib.store.port import Store
from chalicelib.usecases import plans
from chalicelib.usecases.context import Plane
from chalicelib.usecases.listing import all_of
from chalicelib.usecases.trail import told

TRIES = 5  # commits under contention before the caller hears of it
_GONE = (FleetStatus.terminated, FleetStatus.failed)


@dataclass(frozen=True)
class FleetRow:
    """A fleet, its spec as it was sent, and its live instances."""

    fleet: Fleet
    spec: str
    instances: tuple[Instance, ...]


@dataclass(frozen=True)
class Filter:
    """Which fleets to list. `prev_*` is the last row of the page before."""

    limit: int = 100
    ascending: bool = False
    prev_created_at: Micros | None = None
    prev_id: str | None = None


# --- read -----------------------------------------------------------------------------------------------------------


def get(plane: Plane, project: Project, *, name: str | None, fleet_id: str | None) -> FleetRow:
    if fleet_id is not None:
        found = nouns.find(plane.store, Fleet, keys.fleet(fleet_id))
        fleet = None if found is None or found.project_id != project.id or found.status in _GONE else found
    elif name is not None:
        fleet = named(plane.store, project, name)
    else:
        raise Invalid("Say which fleet: give `name` or `id`.")
    if fleet is None:
        raise NotFound(f"There is no fleet {(fleet_id or name or '')[:80]} in project {project.name}.")
    return read_row(plane.store, fleet)


def list_rows(plane: Plane, projects: Sequence[Project], wanted: Filter) -> list[tuple[Project, FleetRow]]:
    """A page of fleets of all `projects` together, newest first unless `ascending`."""
    low, high = plans.bounds(wanted.prev_created_at, wanted.prev_id, ascending=wanted.ascending)
    found: list[tuple[Project, Fleet]] = []
    for project in projects:
        page = plane.store.query(
            "gsi1",
            keys.fleets_of(project.id),
            low=low,
            high=high,
            limit=max(1, wanted.limit),
            reverse=not wanted.ascending,
        )
        fleets = (nouns.read(Fleet, record) for record in page.records)
        found += [(project, fleet) for fleet in fleets if fleet.status not in _GONE]
    found.sort(key=lambda row: (row[1].created_at, row[1].id), reverse=not wanted.ascending)
    return [(project, read_row(plane.store, fleet)) for project, fleet in found[: wanted.limit]]


def list_all(plane: Plane, project: Project) -> list[FleetRow]:
    """Every fleet of a project, oldest first."""
    fleets = (nouns.read(Fleet, record) for record in all_of(plane.store, "gsi1", keys.fleets_of(project.id)))
    return [read_row(plane.store, fleet) for fleet in fleets if fleet.status not in _GONE]


def read_row(store: Store, fleet: Fleet) -> FleetRow:
    body = nouns.find(store, FleetBody, keys.fleet_body(fleet.id, fleet.spec_num))
    if body is None:
        raise Bug(f"fleet {fleet.id} has no spec number {fleet.spec_num}")
    return FleetRow(fleet, body.spec, plans.instances_of(store, fleet.id))


def named(store: Store, project: Project, name: str) -> Fleet | None:
    return holder(store, project, name)[0]


def holder(store: Store, project: Project, name: str) -> tuple[Fleet | None, int]:
    """The fleet of that name, and the version of its pointer: who takes the name next does it under that condition."""
    pointer = nouns.find_target(store, keys.fleet_name(project.id, name))
    if pointer is None:
        return None, 0
    fleet = nouns.find(store, Fleet, keys.fleet(pointer[0]))
    return None if fleet is None or fleet.deleted or fleet.status in _GONE else fleet, pointer[1]


# --- delete ---------------------------------------------------------------------------------------------------------


def delete(
    plane: Plane, user: User, project: Project, names: Sequence[str], *, role: ProjectRole | None = None
) -> None:
    """End fleets and all their instances. Nothing is ended when one of them is in use or isn't there."""
    rows = [_required(plane, project, name) for name in dict.fromkeys(names)]
    refuse_ssh(plane, user, role, (FleetSpec.model_validate_json(row.spec) for row in rows))
    for row in rows:
        _refuse_if_used(plane.store, f"The fleet {row.fleet.name} is", row.instances)
    for row in rows:
        _delete(plane, user, row.fleet)


def _delete(plane: Plane, user: User, fleet: Fleet | None) -> None:
    for _ in range(TRIES):
        if fleet is None or not allows(FLEET, fleet.status, "delete"):
            return
        now = plane.clock.now()
        status = FleetStatus(follow(FLEET, fleet.status, "delete"))
        ending = fleet.with_(status=status, to_create=0, last_processed_at=now, due_at=now)
        message = f"{fleet.status.value} → {status.value}: deleted by a user"
        event = told(message, now, fleet_target(fleet), **about(fleet, f"{fleet.id}/{fleet.version}", user))
        try:
            plane.store.commit([nouns.put(ending), nouns.put(event)])
        except Conflict:
            fleet = nouns.find(plane.store, Fleet, keys.fleet(fleet.id))
            continue
        plane.wake([f"fleet/{fleet.id}"])
        return
    raise Refused("The fleet keeps changing.", hint="Try again.")


def delete_instances(
    plane: Plane, user: User, project: Project, name: str, nums: Sequence[int], *, role: ProjectRole | None = None
) -> None:
    """End single instances of a fleet, by their numbers. Nothing is ended when one is in use or isn't there."""
    row = _required(plane, project, name)
    refuse_ssh(plane, user, role, (FleetSpec.model_validate_json(row.spec) for row in [row]))
    by_num = {instance.num: instance for instance in row.instances}
    missing = sorted(set(nums) - by_num.keys())
    if missing:
        listed = ", ".join(map(str, missing[:20]))
        raise NotFound(f"The fleet {name} has no instance {listed}.", hint="See them with: dstack fleet list -v")
    chosen = [by_num[num] for num in dict.fromkeys(nums)]
    for instance in chosen:
        _refuse_if_used(plane.store, f"The instance {instance.name} is", [instance])
    for instance in chosen:
        _end(plane, user, row.fleet, instance)


def _end(plane: Plane, user: User, fleet: Fleet, instance: Instance | None) -> None:
    for _ in range(TRIES):
        if instance is None or not allows(INSTANCE, instance.status, "end"):
            return
        _refuse_if_used(plane.store, f"The instance {instance.name} is", [instance])
        now = plane.clock.now()
        status = InstanceStatus(follow(INSTANCE, instance.status, "end"))
        ending = instance.with_(
            status=status, reason=InstanceReason.terminated_by_user, message="", last_processed_at=now, due_at=now
        )
        message = f"{instance.status.value} → {status.value}: terminated by user"
        event = told(message, now, instance_target(instance), **about(fleet, f"{instance.id}/{instance.version}", user))
        try:
            plane.store.commit([nouns.put(ending), nouns.put(event)])
        except Conflict:
            instance = nouns.find(plane.store, Instance, keys.instance(instance.id))
            continue
        plane.wake([f"instance/{instance.id}"])
        return
    raise Refused("The instance keeps changing.", hint="Try again.")


def refuse_ssh(plane: Plane, user: User, role: ProjectRole | None, fleets: Iterable[FleetSpec]) -> None:
    """Where the installation keeps SSH fleets to admins, refuses others to touch one."""
    if plane.permissions.manage_ssh_fleets(user, role):
        return
    if any(spec.configuration.ssh_config is not None for spec in fleets):
        raise Refused("Only admins of the project may manage its SSH fleets here.", hint="Ask one of them.")


def _refuse_if_used(store: Store, what: str, instances: Sequence[Instance]) -> None:
    run_ids = list(dict.fromkeys(claim.run_id for instance in instances for claim in instance.claims))
    if not run_ids:
        return
    runs = nouns.find_many(store, Run, [keys.run(run_id) for run_id in run_ids])
    names = [run.name if run is not None else run_id for run, run_id in zip(runs, run_ids, strict=True)]
    listed = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    hint = f"Wait for it to end, or stop it: dstack stop {names[0]}"
    raise Refused(f"{what} in use by the run{'s' if len(names) > 1 else ''} {listed}.", hint=hint)


def _required(plane: Plane, project: Project, name: str) -> FleetRow:
    fleet = named(plane.store, project, name)
    if fleet is None:
        raise NotFound(f"There is no fleet {name[:80]} in project {project.name}.")
    return read_row(plane.store, fleet)


# --- events ---------------------------------------------------------------------------------------------------------


def fleet_target(fleet: Fleet) -> Target:
    return Target(type="fleet", id=fleet.id, name=fleet.name)


def instance_target(instance: Instance) -> Target:
    return Target(type="instance", id=instance.id, name=instance.name)


def about(fleet: Fleet, seed: str, actor: User | None = None) -> dict[str, Any]:
    return {"project_id": fleet.project_id, "seed": seed, "actor": actor, "fleet_id": fleet.id}
