"""Planning and creating fleets.

A new fleet is one commit: the fleet, its spec, its name and the event. The reconciler creates its instances.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from chalicelib.configuration import references
from chalicelib.configuration.reading import read
from chalicelib.domain import keys
from chalicelib.domain.events import EventType
from chalicelib.domain.fleets import Fleet, FleetBody, FleetStatus
from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.offers import Offer
from chalicelib.domain.specs.fleets import FleetNodesSpec, FleetSpec
from chalicelib.domain.tenants import Project, ProjectRole, User
from chalicelib.engine.read import FleetRow
from chalicelib.errors import AlreadyExists, Conflict, Contended, PreconditionFailed, Problem
from chalicelib.planning.kernel.plan import Plan
from chalicelib.planning.kernel.snapshot import FleetView, NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.planning.machines.hosts import match_hosts
from chalicelib.planning.machines.snapshots import FleetSnapshot
from chalicelib.planning.matching.requirements import merged_fleet, wanted_at_once
from chalicelib.planning.placing import plan_offers
from chalicelib.planning.runs import field_support
from chalicelib.store import nouns, sealed_specs
from chalicelib.usecases import offer_lists, specs
from chalicelib.usecases.context import TRIES
from chalicelib.usecases.machines import hosts
from chalicelib.usecases.machines.fleets import holder, named, refuse_hosts, refuse_ssh
from chalicelib.usecases.people import secrets
from chalicelib.usecases.people.projects import undeleted
from chalicelib.usecases.ports import OfferPorts, SealedPorts


@dataclass(frozen=True)
class FleetPlan:
    spec: str  # as sent; its secrets are sealed for the sender, who returns the plan to apply it
    offers: tuple[Offer, ...]
    total_offers: int
    max_price: float | None
    current: FleetRow | None
    action: Literal["create", "update"]
    remarks: tuple[str, ...]  # notes for the reader
    nodes: FleetNodesSpec | None = None  # None: hosts


@dataclass(frozen=True)
class SeenFleet:
    """The fleet as the client saw it when it planned."""

    id: str
    spec: dict[str, Any]


def get_plan(plane: OfferPorts, user: User, project: Project, raw: dict[str, Any]) -> FleetPlan:
    specs.text_of(raw)  # refuses a spec that is too large
    raw = sealed_specs.from_client(plane.seal, FleetSpec, raw, project.id, user.id)
    spec = specs.read_fleet_spec(raw)
    raw = specs.with_texts(raw, spec)
    specs.refuse(spec, _problems(plane, project, spec))
    name = spec.configuration.name
    fleet = None if name is None else named(plane.store, project, name)
    current = None if fleet is None else plane.read.fleet_row(fleet, sure=True)
    book = plane.catalog.book(project.id)
    offers, total = plan_offers.fleet_offers(spec, book, offer_lists.DEFAULT_OFFERS)
    return FleetPlan(
        spec=specs.text_of(sealed_specs.to_client(plane.seal, FleetSpec, _complete(raw, name), project.id, user.id)),
        offers=tuple(offers),
        total_offers=total,
        max_price=book.dearest([plan_offers.shown_query(merged_fleet(spec))]) if offers else None,
        current=current,
        action="update" if current is not None and not _obstacles(plane, current, spec) else "create",
        remarks=tuple(plan_offers.unready(spec, book, plane.backends.facts(project.id))),
        nodes=spec.configuration.nodes,
    )


def apply_plan(
    plane: OfferPorts,
    user: User,
    project: Project,
    raw: dict[str, Any],
    seen: SeenFleet | None,
    *,
    role: ProjectRole | None = None,
    new: str = "",
    or_change: bool = False,
) -> FleetRow:
    """Creates the fleet, or changes it in place if possible. `seen`: the fleet that the plan was about, which must
    still be as it was; None: whatever is there. `role` is the user's role in the project. With `new`, the id of the
    fleet to make, none is changed, unless `or_change`."""
    specs.text_of(raw)  # refuses a spec that is too large
    raw = sealed_specs.from_client(plane.seal, FleetSpec, raw, project.id, user.id)
    spec = specs.read_fleet_spec(raw)
    raw = specs.with_texts(raw, spec)
    refuse_ssh(plane, user, role, spec)
    specs.refuse(spec, _problems(plane, project, spec))
    name = spec.configuration.name or specs.invented_name(
        plane.random_id(), "fleet", lambda name: plane.store.get(keys.fleet_name(project.id, name)) is not None
    )
    raw = _complete(raw, name)
    for _ in range(TRIES):
        try:
            return _apply(plane, user, project, name, spec, raw, seen, role, new, or_change or not new)
        except Conflict:
            continue  # somebody took the name, or the engine moved the fleet: try again
    raise Contended(f"The fleet {name} keeps changing.", hint="Try again.")


def _problems(plane: OfferPorts, project: Project, spec: FleetSpec) -> list[Problem]:
    facts = plane.backends.facts(project.id).values()
    found = [*references.misplaced(spec), *secrets.missing(plane, project, references.secrets_named(spec))]
    found += [*field_support.fleet_refusals(spec), *field_support.reservation_refusals(spec, facts)]
    found += field_support.option_refusals(spec, facts)
    return [*found, *hosts.problems(spec, reachable=plane.hosts)]


def _complete(raw: dict[str, Any], name: str | None) -> dict[str, Any]:
    """The spec as sent, with the parts that clients require."""
    return {"profile": {}, **raw, "configuration": {**raw["configuration"], "type": "fleet", "name": name}}


def _obstacles(plane: SealedPorts, current: FleetRow, spec: FleetSpec) -> list[str]:
    if current.fleet.status is not FleetStatus.active:
        return [f"it is {current.fleet.status.value}"]
    old = _clear(plane, current)
    return [*specs.needs_new_fleet(old, spec), *hosts.obstacles(old, spec, current)]


def _clear(plane: SealedPorts, row: FleetRow) -> FleetSpec:
    """The current spec with its keys in clear, as in a new spec, so that an unchanged key doesn't count as a change."""
    return sealed_specs.fleet_spec(plane.seal, row.fleet.id, row.spec)


def _apply(
    plane: OfferPorts,
    user: User,
    project: Project,
    name: str,
    spec: FleetSpec,
    raw: dict[str, Any],
    seen: SeenFleet | None,
    role: ProjectRole | None,
    new: str,
    changes: bool,
) -> FleetRow:
    fleet, version = holder(plane.store, project, name)
    current = None if fleet is None else plane.read.fleet_row(fleet, sure=True)
    if seen is not None:
        _check_seen(current, seen, name)
    if current is None:
        return _create(plane, user, project, (name, version), spec, raw, new or plane.random_id())
    if current.fleet.status is not FleetStatus.active:
        hint = "Wait until it is gone."
        raise AlreadyExists(f"There is a fleet {name} already, and it is {current.fleet.status.value}.", hint=hint)
    if not changes:
        raise AlreadyExists(f"There is a fleet {name} already.", hint="Choose another name.")
    obstacles = _obstacles(plane, current, spec)
    if obstacles:
        fields = ", ".join(field.removeprefix("configuration.") for field in obstacles)
        raise AlreadyExists(
            f"There is a fleet {name} already, and this can't be changed in place: {fields}.",
            hint=f"Delete it first (dstack fleet delete {name}) or choose another name.",
        )
    refuse_hosts(plane, user, role, current)
    return _update(plane, user, current, spec, raw)


def _check_seen(current: FleetRow | None, seen: SeenFleet, name: str) -> None:
    if current is not None and current.fleet.id == seen.id:
        then = read(FleetSpec, seen.spec, "current_resource.spec")
        now = FleetSpec.model_validate_json(sealed_specs.shown(FleetSpec, current.spec))  # clients see no keys
        if not specs.changed_fields(then, now):
            return
    what = "was deleted" if current is None else "was changed"
    raise PreconditionFailed(
        f"The fleet {name} {what} since this plan was made.", hint="Plan it again, or apply with --force."
    )


def _create(
    plane: OfferPorts,
    user: User,
    project: Project,
    claim: tuple[str, int],
    spec: FleetSpec,
    raw: dict[str, Any],
    fleet_id: str,
) -> FleetRow:
    """A new fleet. `claim`: its name, and the pointer's version at which that name was free."""
    (name, version), now = claim, plane.clock.now()
    fleet = Fleet(
        id=fleet_id,
        project_id=project.id,
        name=name,
        user_id=user.id,
        created_at=now,
        last_processed_at=now,
        to_create=wanted_at_once(spec.configuration),
        to_add=hosts.wanted(spec, None),
        due_at=now,
    )
    body = stored_body(plane, fleet, raw)
    draft = Draft.of(user, now)
    draft.save(fleet)
    draft.save(body)
    draft.record(EventType.created, fleet)
    draft.wake(f"fleet/{fleet.id}", f"queue/{project.id}")
    pointer = nouns.pointer(keys.fleet_name(project.id, name), fleet.id, version=version)
    plane.committer.take(NounsSnapshot(now, ()), draft.plan(), [pointer, undeleted(plane.store, project)])
    return _with_hosts(plane, FleetRow(fleet.with_(version=1), body.spec, ()), spec)


def _update(plane: OfferPorts, user: User, current: FleetRow, spec: FleetSpec, raw: dict[str, Any]) -> FleetRow:
    changed = specs.changed_fields(_clear(plane, current), spec)
    to_add = hosts.wanted(spec, current)
    if not changed and set(to_add) <= set(current.fleet.to_add):
        return current
    hosts.refuse_busy(plane.store, spec, current)
    now = plane.clock.now()
    fleet = current.fleet.with_(
        spec_num=current.fleet.spec_num + 1,
        to_create=max(0, wanted_at_once(spec.configuration) - len(current.instances)),
        to_add=to_add,
        failed=(),
        networks=hosts.remaining_networks(spec, current),
        consolidation_attempt=0,
        paused_until=None,
        last_processed_at=now,
        due_at=now,
    )
    body = stored_body(plane, fleet, raw)
    change = Draft.of(user, now)
    change.save(fleet)
    change.save(body)
    fields = tuple(name.removeprefix("configuration.") for name in sorted(changed))
    change.record(EventType.changed, fleet, fields=fields)
    change.wake(f"fleet/{fleet.id}", f"queue/{fleet.project_id}")
    plane.committer.take(NounsSnapshot(now, (current.fleet,)), change.plan())
    row = FleetRow(fleet.with_(version=fleet.version + 1), body.spec, current.instances)
    return _with_hosts(plane, row, spec)


def _with_hosts(plane: OfferPorts, row: FleetRow, spec: FleetSpec) -> FleetRow:
    """The fleet with its hosts, added now and not by the next pass: clients watch the instances in the response to
    apply."""
    if not row.fleet.to_add:
        return row
    live = tuple(each for each in row.instances if each.status is not InstanceStatus.terminated)
    view = FleetView(row.fleet, spec, live)
    snapshot = FleetSnapshot(plane.clock.now(), view, plane.catalog.book(row.fleet.project_id))
    steps, _ = match_hosts(snapshot)
    with suppress(Conflict):  # a pass came first and added them
        plane.committer.take(snapshot, Plan(tuple(steps)))
    return plane.read.fleet_row(plane.read.find(Fleet, keys.fleet(row.fleet.id)) or row.fleet, sure=True)


def stored_body(plane: SealedPorts, fleet: Fleet, raw: dict[str, Any]) -> FleetBody:
    text = specs.text_of(sealed_specs.sealed(plane.seal, FleetSpec, raw, sealed_specs.of_fleet(fleet.id)))
    return FleetBody(fleet_id=fleet.id, spec_num=fleet.spec_num, spec=text)
