"""Planning and creating fleets.

A new fleet is one commit: the fleet, its spec, its name and the event. Its instances are the reconciler's to make.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chalicelib.domain.fleets import Fleet, FleetBody, FleetStatus
from chalicelib.domain.offers import Offer
from chalicelib.domain.specs.fleets import FleetConfiguration, FleetSpec
from chalicelib.domain.tenants import Project, ProjectRole, User
from chalicelib.errors import AlreadyExists, Conflict, Refused
from chalicelib.planning import placement, support
from chalicelib.planning.combine import fleet_query, merged_fleet
from chalicelib.store import keys, nouns
from chalicelib.store.port import Change
from chalicelib.usecases import plans, specs
from chalicelib.usecases.context import Plane
from chalicelib.usecases.fleets import TRIES, FleetRow, about, fleet_target, holder, named, read_row, refuse_ssh
from chalicelib.usecases.trail import told


@dataclass(frozen=True)
class FleetPlan:
    spec: str
    offers: tuple[Offer, ...]
    total_offers: int
    max_price: float | None
    current: FleetRow | None
    action: str  # create, update


@dataclass(frozen=True)
class Seen:
    """The fleet as the client saw it when it planned."""

    id: str
    spec: dict[str, Any]


def get_plan(plane: Plane, project: Project, raw: dict[str, Any]) -> FleetPlan:
    spec = specs.read_fleet_spec(raw)
    specs.refuse(spec, support.fleet_refusals(spec))
    name = spec.configuration.name
    fleet = None if name is None else named(plane.store, project, name)
    current = None if fleet is None else read_row(plane.store, fleet)
    book = plane.catalog.book(project.id)
    offers, total = placement.fleet_offers(spec, book, plane.facts, plans.DEFAULT_OFFERS)
    return FleetPlan(
        spec=specs.text_of(_complete(raw, name)),
        offers=tuple(offers),
        total_offers=total,
        max_price=book.dearest([fleet_query(merged_fleet(spec))]) if offers else None,
        current=current,
        action="update" if current is not None and not _obstacles(current, spec) else "create",
    )


def apply_plan(
    plane: Plane,
    user: User,
    project: Project,
    raw: dict[str, Any],
    seen: Seen | None,
    *,
    force: bool,
    role: ProjectRole | None = None,
) -> FleetRow:
    """Create the fleet, or change it in place where that is possible. `role` is the user's in the project."""
    spec = specs.read_fleet_spec(raw)
    refuse_ssh(plane, user, role, [spec])
    specs.refuse(spec, support.fleet_refusals(spec))
    name = spec.configuration.name or specs.invented_name(
        plane.random_id(), "fleet", lambda name: plane.store.get(keys.fleet_name(project.id, name)) is not None
    )
    raw = _complete(raw, name)
    for _ in range(TRIES):
        try:
            return _apply(plane, user, project, name, spec, raw, seen, force)
        except Conflict:
            continue  # somebody took the name, or the engine moved the fleet: look again
    raise Refused(f"The fleet {name} keeps changing.", hint="Try again.")


def _complete(raw: dict[str, Any], name: str | None) -> dict[str, Any]:
    """The spec as sent, with the parts that clients require."""
    return {"profile": {}, **raw, "configuration": {**raw["configuration"], "type": "fleet", "name": name}}


def _obstacles(current: FleetRow, spec: FleetSpec) -> list[str]:
    if current.fleet.status is not FleetStatus.active:
        return [f"it is {current.fleet.status.value}"]
    return specs.needs_new_fleet(FleetSpec.model_validate_json(current.spec), spec)


def _apply(
    plane: Plane,
    user: User,
    project: Project,
    name: str,
    spec: FleetSpec,
    raw: dict[str, Any],
    seen: Seen | None,
    force: bool,
) -> FleetRow:
    fleet, version = holder(plane.store, project, name)
    current = None if fleet is None else read_row(plane.store, fleet)
    if seen is not None and not force:
        _check_seen(current, seen, name)
    if current is None:
        return _create(plane, user, project, (name, version), spec.configuration, raw)
    if current.fleet.status is not FleetStatus.active:
        hint = "Wait until it is gone."
        raise AlreadyExists(f"There is a fleet {name} already, and it is {current.fleet.status.value}.", hint=hint)
    obstacles = _obstacles(current, spec)
    if obstacles:
        fields = ", ".join(field.removeprefix("configuration.") for field in obstacles)
        raise AlreadyExists(
            f"There is a fleet {name} already, and this can't be changed in place: {fields}.",
            hint=f"Delete it first (dstack fleet delete {name}) or choose another name.",
        )
    return _update(plane, user, current, spec, raw)


def _check_seen(current: FleetRow | None, seen: Seen, name: str) -> None:
    if current is not None and current.fleet.id == seen.id:
        then = specs.read_spec(FleetSpec, seen.spec, "current_resource.spec")
        if not specs.changed_fields(then, FleetSpec.model_validate_json(current.spec)):
            return
    what = "was deleted" if current is None else "was changed"
    raise Refused(f"The fleet {name} {what} since this plan was made.", hint="Plan it again, or apply with --force.")


def _create(
    plane: Plane,
    user: User,
    project: Project,
    claim: tuple[str, int],
    configuration: FleetConfiguration,
    raw: dict[str, Any],
) -> FleetRow:
    """A new fleet. `claim`: the name it takes, and the version at which nobody had that."""
    (name, version), now = claim, plane.clock.now()
    fleet = Fleet(
        id=plane.random_id(),
        project_id=project.id,
        name=name,
        created_at=now,
        last_processed_at=now,
        to_create=wanted_at_once(configuration),
        due_at=now,
    )
    body = FleetBody(fleet_id=fleet.id, spec=specs.text_of(raw))
    event = told("created", now, fleet_target(fleet), **about(fleet, fleet.id, user))
    changes: list[Change] = [nouns.put(noun) for noun in (fleet, body, event)]
    changes.append(nouns.pointer(keys.fleet_name(project.id, name), fleet.id, version=version))
    plane.store.commit(changes)
    plane.wake([f"fleet/{fleet.id}", f"queue/{project.id}"])
    return FleetRow(fleet, body.spec, ())


def _update(plane: Plane, user: User, current: FleetRow, spec: FleetSpec, raw: dict[str, Any]) -> FleetRow:
    changed = specs.changed_fields(FleetSpec.model_validate_json(current.spec), spec)
    if not changed:
        return current
    now = plane.clock.now()
    fleet = current.fleet.with_(
        spec_num=current.fleet.spec_num + 1,
        to_create=max(0, wanted_at_once(spec.configuration) - len(current.instances)),
        consolidation_attempt=0,
        last_processed_at=now,
        due_at=now,
    )
    body = FleetBody(fleet_id=fleet.id, spec_num=fleet.spec_num, spec=specs.text_of(raw))
    fields = ", ".join(name.removeprefix("configuration.") for name in sorted(changed))
    event = told(
        f"changed in place: {fields}",
        now,
        fleet_target(fleet),
        **about(fleet, f"{fleet.id}/{fleet.spec_num}", user),
    )
    plane.store.commit([nouns.put(noun) for noun in (fleet, body, event)])
    plane.wake([f"fleet/{fleet.id}", f"queue/{fleet.project_id}"])
    return FleetRow(fleet, body.spec, current.instances)


def wanted_at_once(configuration: FleetConfiguration) -> int:
    """How many instances an apply makes without waiting for a run."""
    nodes = configuration.nodes
    return 0 if nodes is None else max(nodes.min, nodes.target)
