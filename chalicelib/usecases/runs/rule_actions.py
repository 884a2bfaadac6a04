"""The actions of rules on events: applying a stored configuration, or stopping or deleting what it describes.

An action has the current rights of the user who stored the configuration. Its commit also records that the rule has
handled the event; a second delivery, or a concurrent one, finds that record or conflicts with it. A refusal is recorded
too, with the reason, because it would be repeated. Temporary failures are raised, so that the event is delivered again.
The same commit counts the rule's actions: a rule that causes its own events is refused after a hundred in a day.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.domain import keys
from chalicelib.domain.automations import MOST_A_DAY, Automated, Automation, RuleCount
from chalicelib.domain.events import Event, EventType
from chalicelib.domain.instants import Micros
from chalicelib.domain.specs.automation import AutomationOrder
from chalicelib.domain.tenants import GlobalRole, Member, Project, ProjectRole, User
from chalicelib.errors import (
    AlreadyExists,
    Conflict,
    Contended,
    Forbidden,
    Invalid,
    NotFound,
    NotSupported,
    Refused,
)
from chalicelib.store import nouns
from chalicelib.store.port import Change
from chalicelib.usecases.audit_events import audit_event, project_target
from chalicelib.usecases.context import TRIES, Plane
from chalicelib.usecases.machines import fleet_plans, fleets, volumes
from chalicelib.usecases.ports import RecordPorts
from chalicelib.usecases.runs import automations, plans, runs

DONE = {"apply": "applied", "stop": "stopped", "delete": "deleted"}
_LASTING = (AlreadyExists, Forbidden, Invalid, NotFound, Refused)


@dataclass(frozen=True)
class _Acting:
    """An action: the user, the project, and the configuration."""

    plane: Plane
    user: User
    project: Project
    role: ProjectRole | None
    name: str
    spec: dict[str, Any]


def carry_out(plane: Plane, order: AutomationOrder) -> Automated | None:
    """The outcome of an order, from now or an earlier delivery. None if its project is gone, and the record with it."""
    project = _project(plane, order.project)
    if project is None:
        return None
    key = keys.automated(project.id, order.rule, order.event)
    for _ in range(TRIES):
        if known := nouns.find(plane.store, Automated, key):
            return known
        try:
            return _answered(plane, project, order)
        except (Conflict, Contended):
            continue  # another delivery, another order of the rule, or another caller was faster
    raise Contended(f"What rule {order.rule} asks for about {order.configuration} keeps changing.", hint="Try again.")


def _answered(plane: Plane, project: Project, order: AutomationOrder) -> Automated:
    count = _count(plane, project, order)
    if count.orders > MOST_A_DAY:
        return _stand_still(plane, project, order, count)
    try:
        stored = automations.get(plane, project, order.configuration)
        acting = _acting(plane, project, stored)
        done = _Record(order, count, plane.clock.now())
        once = replace(plane, along=done.changes(project, stored, acting.user))
        _carry(order.action, stored.type)(replace(acting, plane=once))
        if once.committer.along:  # there was nothing to change
            plane.store.commit(once.along)
        return done.mark
    except (Conflict, Contended):
        raise
    except _LASTING as refused:
        return _refuse(plane, project, order, count, str(refused)[:1000])


def _count(plane: RecordPorts, project: Project, order: AutomationOrder) -> RuleCount:
    """The rule's count of actions, including this one."""
    now = plane.clock.now()
    known = nouns.find(plane.store, RuleCount, keys.rule_count(project.id, order.rule))
    return (known or RuleCount(project_id=project.id, rule=order.rule, since=now)).next(now)


def _project(plane: RecordPorts, name: str) -> Project | None:
    found = nouns.find_target(plane.store, keys.project_name(name))
    project = None if found is None else nouns.find(plane.store, Project, keys.project(found[0]))
    return None if project is None or project.deleted else project


def _acting(plane: Plane, project: Project, stored: Automation) -> _Acting:
    user = nouns.find(plane.store, User, keys.user(stored.user_id))
    member = nouns.find(plane.store, Member, keys.member(project.id, stored.user_id))
    if user is None or not user.active:
        raise Forbidden(f"{stored.user_name}, who stored the configuration {stored.name}, is no longer an active user.")
    if member is None and user.role is not GlobalRole.admin:
        raise Forbidden(f"{user.name}, who stored the configuration {stored.name}, isn't a member of {project.name}.")
    role = None if member is None else member.role
    return _Acting(plane, user.with_(limit=stored.limit), project, role, stored.name, automations.opened(plane, stored))


@dataclass(frozen=True)
class _Record:
    """The record that a rule has handled an event, and the audit event about it."""

    order: AutomationOrder
    count: RuleCount
    at: Micros
    refused: str = ""

    @property
    def mark(self) -> Automated:
        order, project_id = self.order, self.count.project_id
        return Automated(project_id=project_id, rule=order.rule, event_id=order.event, at=self.at, refused=self.refused)

    def changes(self, project: Project, stored: Automation | None, user: User | None) -> tuple[Change, ...]:
        return nouns.put(self.mark), nouns.put(self.count), nouns.put(self._event(project, stored, user))

    def _event(self, project: Project, stored: Automation | None, user: User | None) -> Event:
        order, name = self.order, self.order.configuration
        done = f"{name} is {DONE[order.action]} by rule {order.rule}"
        detail = f"rule {order.rule} can't {order.action} {name}: {self.refused}" if self.refused else done
        targets = (
            automations.targets(stored, project) if stored else (automations.unknown(name), project_target(project))
        )
        seed = f"{project.id}/{order.rule}/{order.event}"
        return audit_event(
            EventType.automated, self.at, *targets, project_id=project.id, seed=seed, actor=user, detail=detail
        )


def _refuse(plane: RecordPorts, project: Project, order: AutomationOrder, count: RuleCount, refused: str) -> Automated:
    stored = nouns.find(plane.store, Automation, keys.automation(project.id, order.configuration))
    record = _Record(order, count, plane.clock.now(), refused)
    plane.store.commit(record.changes(project, stored, None))
    return record.mark


def _stand_still(plane: RecordPorts, project: Project, order: AutomationOrder, count: RuleCount) -> Automated:
    """Refuse an action over the daily limit. Only the first is an audit event, since a rule could act on the event."""
    why = (
        f"it has acted {MOST_A_DAY} times within a day. If it causes what it acts on, change that; `retry` tries again."
    )
    if count.orders == MOST_A_DAY + 1:
        return _refuse(plane, project, order, count, why)
    mark = _Record(order, count, plane.clock.now(), why).mark
    plane.store.commit([nouns.put(mark)])
    return mark


# --- what can be done -------------------------------------------------------------------------------------------------


def _apply_run(on: _Acting) -> None:
    plans.apply_plan(on.plane, on.user, on.project, on.spec, None, role=on.role)


def _stop_run(on: _Acting) -> None:
    runs.stop(on.plane, on.user, on.project, [on.name], abort=False)


def _delete_run(on: _Acting) -> None:
    runs.delete(on.plane, on.user, on.project, [on.name])


def _apply_fleet(on: _Acting) -> None:
    fleet_plans.apply_plan(on.plane, on.user, on.project, on.spec, None, role=on.role)


def _delete_fleet(on: _Acting) -> None:
    fleets.delete(on.plane, on.user, on.project, [on.name], role=on.role)


def _apply_volume(on: _Acting) -> None:
    volumes.create(on.plane, on.user, on.project, on.spec["configuration"], on.role)


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
