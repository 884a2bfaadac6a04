"""What a rule asks for about an event: a stored configuration is applied, or what it describes is stopped or deleted.

Whoever stored the configuration acts, with the rights that they have now. The effect's commit also records that the
rule is done with the event; a second delivery, or another process at the same moment, finds that or loses against it.
A refusal is recorded too, with the reason, because it would be refused again. What may pass is raised, so that whoever
delivered the event brings it again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.domain import keys
from chalicelib.domain.automations import Automated, Automation
from chalicelib.domain.events import EventType
from chalicelib.domain.specs.automation import Order
from chalicelib.domain.tenants import GlobalRole, Member, Project, ProjectRole, User
from chalicelib.errors import (
    AlreadyExists,
    Conflict,
    Contended,
    DstackError,
    Forbidden,
    Invalid,
    NotFound,
    NotSupported,
    Refused,
)
from chalicelib.store import nouns
from chalicelib.store.port import Change
from chalicelib.usecases import automations, fleet_plans, fleets, run_plans, runs, volumes
from chalicelib.usecases.context import Plane
from chalicelib.usecases.trail import project_target, told

DONE = {"apply": "applied", "stop": "stopped", "delete": "deleted"}
_LASTING = (AlreadyExists, Forbidden, Invalid, NotFound, Refused)


@dataclass(frozen=True)
class _Acting:
    """Who does it, where, with what."""

    plane: Plane
    user: User
    project: Project
    role: ProjectRole | None
    name: str
    spec: dict[str, Any]


def carry_out(plane: Plane, order: Order) -> Automated | None:
    """What has become of the order, now or before. None if its project is gone, and with it the record."""
    project = _project(plane, order.project)
    if project is None:
        return None
    key = keys.automated(project.id, order.rule, order.event)
    if known := nouns.find(plane.store, Automated, key):
        return known
    try:
        stored = automations.get(plane, project, order.configuration)
        acting = _acting(plane, project, stored)
        done = _record(plane, project, order, stored, acting.user)
        once = replace(plane, along=done)
        _carry(order.action, stored.type)(replace(acting, plane=once))
        if once.door.along:  # there was nothing to do
            plane.store.commit(list(done))
    except (Conflict, Contended):
        if nouns.find(plane.store, Automated, key) is None:
            raise  # else another delivery of the same event was faster
    except _LASTING as refused:
        _refuse(plane, project, order, refused)
    return nouns.find(plane.store, Automated, key)


def _project(plane: Plane, name: str) -> Project | None:
    found = nouns.find_target(plane.store, keys.project_name(name))
    project = None if found is None else nouns.find(plane.store, Project, keys.project(found[0]))
    return None if project is None or project.deleted else project


def _acting(plane: Plane, project: Project, stored: Automation) -> _Acting:
    user = nouns.find(plane.store, User, keys.user(stored.user_id))
    member = nouns.find(plane.store, Member, keys.member(project.id, stored.user_id))
    if user is None or not user.active:
        raise Forbidden(f"{stored.user_name}, who stored the configuration {stored.name}, is no active user any more.")
    if member is None and user.role is not GlobalRole.admin:
        raise Forbidden(f"{user.name}, who stored the configuration {stored.name}, is no member of {project.name}.")
    role = None if member is None else member.role
    return _Acting(plane, user, project, role, stored.name, automations.opened(plane, stored))


def _record(
    plane: Plane, project: Project, order: Order, stored: Automation | None, user: User | None, refused: str = ""
) -> tuple[Change, ...]:
    """That the rule is done with the event, for itself and for people."""
    now, name = plane.clock.now(), order.configuration
    mark = Automated(project_id=project.id, rule=order.rule, event_id=order.event, at=now, refused=refused)
    done = f"{name} is {DONE[order.action]} by rule {order.rule}"
    said = f"rule {order.rule} can't {order.action} {name}: {refused}" if refused else done
    about = automations.targets(stored, project) if stored else (automations.unknown(name), project_target(project))
    seed = f"{project.id}/{order.rule}/{order.event}"
    event = told(EventType.automated, now, *about, project_id=project.id, seed=seed, actor=user, detail=said)
    return nouns.put(mark), nouns.put(event)


def _refuse(plane: Plane, project: Project, order: Order, refused: DstackError) -> None:
    stored = nouns.find(plane.store, Automation, keys.automation(project.id, order.configuration))
    try:
        plane.store.commit(list(_record(plane, project, order, stored, None, str(refused)[:1000])))
    except Conflict:
        return  # another delivery of the same event was faster


# --- what can be done -------------------------------------------------------------------------------------------------


def _apply_run(on: _Acting) -> None:
    run_plans.apply_plan(on.plane, on.user, on.project, on.spec, None, force=False, role=on.role)


def _stop_run(on: _Acting) -> None:
    runs.stop(on.plane, on.user, on.project, [on.name], abort=False)


def _delete_run(on: _Acting) -> None:
    runs.delete(on.plane, on.user, on.project, [on.name])


def _apply_fleet(on: _Acting) -> None:
    fleet_plans.apply_plan(on.plane, on.user, on.project, on.spec, None, force=False, role=on.role)


def _delete_fleet(on: _Acting) -> None:
    fleets.delete(on.plane, on.user, on.project, [on.name], role=on.role)


def _apply_volume(on: _Acting) -> None:
    volumes.create(on.plane, on.user, on.project, on.spec["configuration"])


def _delete_volume(on: _Acting) -> None:
    volumes.delete(on.plane, on.user, on.project, [on.name])


_CARRY: dict[tuple[str, str], Callable[[_Acting], None]] = {
    ("apply", "run"): _apply_run,
    ("stop", "run"): _stop_run,
    ("delete", "run"): _delete_run,
    ("apply", "fleet"): _apply_fleet,
    ("delete", "fleet"): _delete_fleet,
    ("apply", "volume"): _apply_volume,
    ("delete", "volume"): _delete_volume,
}


def _carry(action: str, type: str) -> Callable[[_Acting], None]:
    noun = "run" if type in automations.RUNS else type
    found = _CARRY.get((action, noun))
    if found is None:
        raise NotSupported(f"A {noun} can't be stopped.", hint="Use `delete`.")
    return found
