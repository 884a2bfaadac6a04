"""Fleets: listing and deleting them, and deleting single instances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chalicelib.domain import keys
from chalicelib.domain.bundles import others_among
from chalicelib.domain.fleets import Fleet, FleetStatus
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import Micros
from chalicelib.domain.names import those
from chalicelib.domain.runs import Run
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.tenants import Project, ProjectRole, User
from chalicelib.engine.read import FleetRow
from chalicelib.errors import Conflict, Contended, Invalid, NotFound, Refused
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.requests import delete_fleet, end_instance, forget_host
from chalicelib.planning.kernel.snapshot import NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.store import nouns
from chalicelib.store.port import Store
from chalicelib.usecases import pages
from chalicelib.usecases.context import TRIES
from chalicelib.usecases.ports import ChangePorts, RecordPorts

_ENDED = (FleetStatus.terminated, FleetStatus.failed)


@dataclass(frozen=True)
class FleetFilter:
    """Which fleets to list. `prev_*` is the last row of the previous page."""

    limit: int
    ascending: bool
    prev_created_at: Micros | None
    prev_id: str | None


# --- read -----------------------------------------------------------------------------------------------------------


def get(plane: RecordPorts, project: Project, *, name: str | None, fleet_id: str | None) -> FleetRow:
    if fleet_id is not None:
        found = nouns.find(plane.store, Fleet, keys.fleet(fleet_id))
        fleet = None if found is None or found.project_id != project.id or found.status in _ENDED else found
    elif name is not None:
        fleet = named(plane.store, project, name)
    else:
        raise Invalid("Give the `name` or the `id` of the fleet.")
    if fleet is None:
        raise NotFound(f"There is no fleet {(fleet_id or name or '')[:80]} in project {project.name}.")
    return plane.read.fleet_row(fleet)


def list_rows(plane: RecordPorts, projects: Sequence[Project], wanted: FleetFilter) -> list[tuple[Project, FleetRow]]:
    """A page of fleets of all `projects` together, newest first unless `ascending`."""
    low, high = pages.bounds(wanted.prev_created_at, wanted.prev_id, ascending=wanted.ascending)
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
        found += [(project, fleet) for fleet in fleets if fleet.status not in _ENDED]
    found.sort(key=lambda row: (row[1].created_at, row[1].id), reverse=not wanted.ascending)
    return [(project, plane.read.fleet_row(fleet)) for project, fleet in found[: wanted.limit]]


def list_all(plane: RecordPorts, project: Project) -> list[FleetRow]:
    """Every fleet of a project, oldest first."""
    fleets = [fleet for fleet in plane.read.fleets(project.id) if fleet.status not in _ENDED]
    return [plane.read.fleet_row(fleet) for fleet in sorted(fleets, key=lambda fleet: (fleet.created_at, fleet.id))]


def imported(
    plane: RecordPorts, projects: Sequence[Project], wanted: FleetFilter | None = None
) -> list[tuple[str, FleetRow]]:
    """The fleets that other projects share with these, each once, with the name of its own project. `wanted`: a page
    of them."""
    own = {project.id for project in projects}
    found = {
        fleet.id: (export.project_name, fleet)
        for project in projects
        for export, fleet in plane.read.imported_fleets(project.id)
        if fleet.project_id not in own and fleet.status not in _ENDED
    }
    rows = sorted(found.values(), key=lambda row: (row[1].created_at, row[1].id))
    if wanted is not None:
        rows = [row for row in rows if _after(row[1], wanted)]
    return [(name, plane.read.fleet_row(fleet)) for name, fleet in rows]


def get_imported(plane: RecordPorts, project: Project, name: str) -> tuple[str, FleetRow]:
    """The imported fleet of this name, `<project>/<name>`, with the name of its own project."""
    for owner, row in imported(plane, [project]):
        if f"{owner}/{row.fleet.name}" == name:
            return owner, row
    raise NotFound(f"No project shares a fleet {name[:120]} with project {project.name}.")


def _after(fleet: Fleet, wanted: FleetFilter) -> bool:
    """Does the fleet come after the last row of the previous page?"""
    low, high = pages.bounds(wanted.prev_created_at, wanted.prev_id, ascending=wanted.ascending)
    sort = keys.by_time("", fleet.created_at, fleet.id)[1]
    return low <= sort and (not high or sort < high)


def named(store: Store, project: Project, name: str) -> Fleet | None:
    return holder(store, project, name)[0]


def holder(store: Store, project: Project, name: str) -> tuple[Fleet | None, int]:
    """The fleet of that name, and the version of its pointer, on which the next claim of the name depends."""
    pointer = nouns.find_target(store, keys.fleet_name(project.id, name))
    if pointer is None:
        return None, 0
    fleet = nouns.find(store, Fleet, keys.fleet(pointer[0]))
    return None if fleet is None or fleet.deleted or fleet.status in _ENDED else fleet, pointer[1]


# --- delete ---------------------------------------------------------------------------------------------------------


def delete(
    plane: ChangePorts,
    user: User,
    project: Project,
    names: Sequence[str],
    *,
    role: ProjectRole | None = None,
    force: bool = False,
) -> None:
    """Deletes fleets and all their instances; none if one of them is in use or doesn't exist. `force`: don't wait for
    unreachable hosts to be cleared."""
    rows = [_required(plane, project, name) for name in dict.fromkeys(names)]
    for row in rows:
        refuse_hosts(plane, user, role, row)
    for row in rows:
        refuse_if_used(plane.store, f"The fleet {row.fleet.name} is", row.instances)
    for row in rows:
        _delete(plane, user, row.fleet)
        if force:
            _forget(plane, user, row.instances)


def _delete(plane: ChangePorts, user: User, fleet: Fleet | None) -> None:
    for _ in range(TRIES):
        if fleet is None:
            return
        now = plane.clock.now()
        try:
            plane.committer.take(NounsSnapshot(now, (fleet,)), delete_fleet(fleet, Draft.of(user, now)))
        except Conflict:
            fleet = nouns.find(plane.store, Fleet, keys.fleet(fleet.id))
            continue
        return
    raise Contended("The fleet keeps changing.", hint="Try again.")


def delete_instances(
    plane: ChangePorts,
    user: User,
    project: Project,
    name: str,
    nums: Sequence[int],
    *,
    role: ProjectRole | None = None,
    force: bool = False,
) -> None:
    """Deletes single instances of a fleet by number; none if one of them is in use or doesn't exist. `force`: as in
    `delete`."""
    row = _required(plane, project, name)
    refuse_hosts(plane, user, role, row)
    by_num = {instance.num: instance for instance in row.instances}
    missing = sorted(set(nums) - by_num.keys())
    if missing:
        listed = ", ".join(map(str, missing[:20]))
        raise NotFound(f"The fleet {name} has no instance {listed}.", hint="See them with: dstack fleet list -v")
    chosen = [by_num[num] for num in dict.fromkeys(nums)]
    for instance in chosen:
        refuse_if_used(plane.store, f"The instance {instance.name} is", [instance])
        bundle = others_among(instance, row.instances)
        refuse_if_used(plane.store, f"{instance.name} ends with the others of its purchase, which are", bundle)
    for instance in chosen:
        _change(plane, user, instance, end_instance)
    if force:
        _forget(plane, user, chosen)


def _forget(plane: ChangePorts, user: User, instances: Sequence[Instance]) -> None:
    for instance in instances:
        if instance.host is not None:
            _change(plane, user, instance, end_instance)
            _change(plane, user, nouns.find(plane.store, Instance, keys.instance(instance.id)), forget_host)


def _change(
    plane: ChangePorts, user: User, instance: Instance | None, change: Callable[[Instance, Draft], Plan]
) -> None:
    for _ in range(TRIES):
        if instance is None:
            return
        now = plane.clock.now()
        plan = change(instance, Draft.of(user, now))
        if plan.empty:
            return
        refuse_if_used(plane.store, f"The instance {instance.name} is", [instance])
        try:
            plane.committer.take(NounsSnapshot(now, (instance,)), plan)
        except Conflict:
            instance = nouns.find(plane.store, Instance, keys.instance(instance.id))
            continue
        return
    raise Contended("The instance keeps changing.", hint="Try again.")


def refuse_ssh(plane: ChangePorts, user: User, role: ProjectRole | None, spec: FleetSpec) -> None:
    """Refuse everyone but admins if the installation reserves SSH fleets for them."""
    if spec.configuration.ssh_config is not None and not plane.permissions.manage_ssh_fleets(user, role):
        raise Refused("Only admins of the project may manage its SSH fleets here.", hint="Ask one of them.")


def refuse_hosts(plane: ChangePorts, user: User, role: ProjectRole | None, row: FleetRow) -> None:
    """Refuse users who may not change or end a fleet of hosts that weren't bought."""
    spec = FleetSpec.model_validate_json(row.spec)
    refuse_ssh(plane, user, role, spec)
    if spec.configuration.ssh_config is None or plane.permissions.end_hosts(user, role, row.fleet.user_id):
        return
    raise Refused(
        f"Only admins and managers of the project and the user who created it may change or delete the fleet "
        f"{row.fleet.name}: its hosts weren't bought for a run.",
        hint="Ask one of them.",
    )


def refuse_if_used(store: Store, what: str, instances: Sequence[Instance]) -> None:
    """Refuse if a run or a gateway uses one of the instances; a gateway replaces its replica on an unreachable host."""
    seats = (instance.gateway for instance in instances if not instance.unreachable)
    carried = sorted({seat.name for seat in seats if seat is not None and not seat.leaving})
    if carried:
        hint = f"Delete the gateway first: dstack gateway delete {carried[0]}"
        raise Refused(f"{what} in use by {those('gateway', carried)}.", hint=hint)
    run_ids = list(dict.fromkeys(claim.run_id for instance in instances for claim in instance.claims))
    if not run_ids:
        return
    runs = nouns.find_many(store, Run, [keys.run(run_id) for run_id in run_ids])
    if any(run is not None and run.project_id != instances[0].project_id for run in runs):
        hint = "Stop sharing it first, which ends them: dstack export update NAME --remove-fleet FLEET"
        raise Refused(f"{what} in use by runs of other projects.", hint=hint)
    names = [run.name if run is not None else run_id for run, run_id in zip(runs, run_ids, strict=True)]
    hint = f"Wait for it to end, or stop it: dstack stop {names[0]}"
    raise Refused(f"{what} in use by {those('run', names)}.", hint=hint)


def _required(plane: RecordPorts, project: Project, name: str) -> FleetRow:
    fleet = named(plane.store, project, name)
    if fleet is None:
        raise NotFound(f"There is no fleet {name[:80]} in project {project.name}.")
    return plane.read.fleet_row(fleet, sure=True)
