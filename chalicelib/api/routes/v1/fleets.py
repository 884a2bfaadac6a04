"""Fleets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from chalicelib.api.requests import Object
from chalicelib.api.route import Answer, Call, DryRun, Settling, asks, takes_both
from chalicelib.api.v1 import FLEETS, answers, specs
from chalicelib.api.v1.answers import PageQuery
from chalicelib.api.v1.conditions import Condition
from chalicelib.api.v1.configurations import Written, takes_configuration
from chalicelib.api.v1.writes import ForceQuery, Nothing, WriteQuery, created, creates, going, still, write
from chalicelib.api.wire.v1.machines import (
    fleet_json,
    fleet_path,
    fleet_plan_json,
    fleet_spec_json,
    fleet_summary_json,
    health_json,
)
from chalicelib.domain import keys
from chalicelib.domain.access_tokens import Verb
from chalicelib.domain.fleets import Fleet, FleetStatus
from chalicelib.domain.instances import InstanceStatus
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.tenants import Project, User
from chalicelib.engine.read import FleetRow
from chalicelib.errors import NotFound
from chalicelib.store import nouns
from chalicelib.store.sealed_specs import of_fleet
from chalicelib.usecases.context import Plane
from chalicelib.usecases.machines import fleet_plans, fleets, health
from chalicelib.usecases.people.visible_projects import projects_seen

if TYPE_CHECKING:
    from chalicelib import contract


_COMING = (InstanceStatus.pending, InstanceStatus.provisioning)


@asks(PageQuery)
def list_all(call: Call, query: PageQuery) -> Annotated[Answer, contract.V1FleetPage]:
    """Fleets of the projects that the caller is in, newest first."""
    return _list(call, projects_seen(call.plane.store, call.actor, None, call.token), query)


@asks(PageQuery)
def list_project(call: Call, query: PageQuery) -> Annotated[Answer, contract.V1FleetPage]:
    """Fleets of the project, newest first."""
    return _list(call, [call.tenant], query)


def _list(call: Call, projects: Sequence[Project], query: PageQuery) -> Answer:
    wanted = fleets.FleetFilter(query.limit, False, *query.after(call))
    rows = fleets.list_rows(call.plane, projects, wanted)
    key = lambda row: (row[1].fleet.created_at, row[1].fleet.id)  # noqa: E731
    return answers.page(call, query, rows, key, lambda row: fleet_summary_json(row[1], row[0].name))


def get(call: Call) -> Annotated[Answer, contract.V1Fleet]:
    """The fleet of this name. Values of environment variables are in the caller's own fleets only."""
    row = _row(call)
    return answers.resource(call, _shown(call, row), settling=_settling(call, row))


@takes_configuration
def create(
    call: Call, body: Written, query: WriteQuery
) -> Annotated[Answer, contract.V1Fleet, HTTPStatus.CREATED, DryRun(contract.V1FleetPlan)]:
    """Creates a fleet. The body is its configuration; one without a `name` gets one. Its machines come after the
    answer."""
    spec = {"configuration": specs.meant(body.root, {})}

    def act(plane: Plane, fleet_id: str) -> FleetRow:
        return fleet_plans.apply_plan(plane, call.actor, call.tenant, spec, None, role=call.role, new=fleet_id)

    def made(fleet_id: str) -> FleetRow:
        found = nouns.find(call.plane.store, Fleet, keys.fleet(fleet_id))
        return call.plane.read.fleet_row(still(None if found is None or found.deleted else found, "fleet"))

    def answer(row: FleetRow) -> Answer:
        path = fleet_path(call.tenant.name, row.fleet.name)
        return created(call, _shown(call, row), path, _settling(call, row))

    plan = lambda action: _plan(call, action, spec)  # noqa: E731
    return write(call, query, "create", act, lambda done: answer(done.result or made(done.subject_id)), plan=plan)


def _plan(call: Call, action: str, spec: Object) -> contract.V1FleetPlan:
    return fleet_plan_json(action, fleet_plans.get_plan(call.plane, call.actor, call.tenant, spec))


def get_spec(call: Call) -> Annotated[Answer, contract.Configuration]:
    """The fleet's configuration. Its `ETag` is that of the spec alone."""
    row = _row(call)
    return answers.resource(call, _spec(call, row), tag=_tag(row))


@takes_configuration
def apply(
    call: Call, body: Written, query: WriteQuery
) -> Annotated[Answer, contract.Configuration, HTTPStatus.OK, HTTPStatus.CREATED, DryRun(contract.V1FleetPlan)]:
    """Creates the fleet, or changes it in place, where that is possible. With `If-Match` only if the spec has this
    tag, with `If-None-Match: *` only if there is no such fleet."""
    name, condition = call.params["fleet_name"], Condition.of(call)
    configuration = specs.named(body.root, name)

    def wanted(plane: Plane) -> tuple[FleetRow | None, Object, Object]:
        """The fleet of that name, its spec, and the new one."""
        fleet = fleets.named(plane.store, call.tenant, name)
        current = None if fleet is None else plane.read.fleet_row(fleet, sure=True)
        stored = {} if current is None else specs.raw(current.spec)
        known = {} if current is None else _known(plane, call.actor, current)
        return current, stored, {**stored, "configuration": specs.meant(configuration, known)}

    def act(plane: Plane, fleet_id: str) -> FleetRow:
        current, stored, spec = wanted(plane)
        condition.check(None if current is None else _tag(current))
        seen = fleet_plans.SeenFleet(current.fleet.id, stored) if current is not None and condition.match else None
        return fleet_plans.apply_plan(
            plane, call.actor, call.tenant, spec, seen, role=call.role, new=fleet_id, or_change=not condition.new
        )

    def answer(row: FleetRow, made_id: str) -> Answer:
        return specs.applied(call, _spec(call, row), _tag(row), made=row.fleet.id == made_id)

    verb = creates(lambda: fleets.named(call.plane.store, call.tenant, name))
    made = lambda done: answer(done.result or _row(call), done.subject_id)  # noqa: E731
    plan = lambda action: _plan(call, action, wanted(call.plane)[2])  # noqa: E731
    return write(call, query, verb, act, made, conditional=True, plan=plan)


@takes_both(Nothing, ForceQuery)
def delete(
    call: Call, body: Nothing, query: ForceQuery
) -> Annotated[Answer, HTTPStatus.ACCEPTED, DryRun(contract.V1Change)]:
    """Deletes a fleet with its machines. It is gone some time after the answer."""
    name = call.params["fleet_name"]

    def act(plane: Plane, _: str) -> None:
        fleets.delete(_recorded_last(plane, query), call.actor, call.tenant, [name], role=call.role, force=query.force)

    return write(call, query, "delete", act, going)


@takes_both(Nothing, ForceQuery)
def delete_instance(
    call: Call, body: Nothing, query: ForceQuery
) -> Annotated[Answer, HTTPStatus.ACCEPTED, DryRun(contract.V1Change)]:
    """Deletes a machine of a fleet, by its number. It is gone some time after the answer."""
    name, num = call.params["fleet_name"], _num(call)

    def act(plane: Plane, _: str) -> None:
        where = (_recorded_last(plane, query), call.actor, call.tenant, name)
        fleets.delete_instances(*where, [num], role=call.role, force=query.force)

    return write(call, query, "delete", act, going)


def _recorded_last(plane: Plane, query: ForceQuery) -> Plane:
    """The plane of a deletion that takes several commits, if it is forced: cut off, it must be repeated."""
    return replace(plane, along=()) if query.force else plane


def get_health(call: Call) -> Annotated[Answer, contract.V1Health]:
    """A machine's health as its agent reported it in the last week, newest first."""
    wanted = health.WantedChecks(call.params["fleet_name"], _num(call), limit=100)
    return answers.resource(call, health_json(health.list_checks(call.plane, call.tenant, wanted)))


def _num(call: Call) -> int:
    text = call.params["instance_num"]
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise NotFound(f"There is no instance {text[:40]!r}.", hint="Instances of a fleet are numbered from 0.")
    return int(text)


def _row(call: Call) -> FleetRow:
    return fleets.get(call.plane, call.tenant, name=call.params["fleet_name"], fleet_id=None)


def _shown(call: Call, row: FleetRow) -> contract.V1Fleet:
    return fleet_json(row, call.tenant.name, env=_own(call, row))


def _spec(call: Call, row: FleetRow) -> contract.Configuration:
    return fleet_spec_json(row, env=_own(call, row))


def _settling(call: Call, row: FleetRow) -> Settling | None:
    """A fleet is settled when all machines that it should have are there."""
    coming = row.fleet.to_create or row.fleet.to_add or any(each.status in _COMING for each in row.instances)
    moves = row.fleet.status is not FleetStatus.active or coming
    return Settling(FLEETS, fleet_path(call.tenant.name, row.fleet.name)) if moves else None


def _known(plane: Plane, actor: User, row: FleetRow) -> Object:
    own = row.fleet.user_id == actor.id
    return specs.stored(plane.seal, FleetSpec, row.spec, of_fleet(row.fleet.id), own=own)


def _own(call: Call, row: FleetRow) -> bool:
    return row.fleet.user_id == call.actor.id and call.may(Verb.fleets)


def _tag(row: FleetRow) -> str:
    return f'"{row.fleet.id}.{row.fleet.spec_num}"'
