"""Stored configurations: adding, listing and deleting them.

A configuration is checked when it is stored, by planning it as its author, and again when it is applied: rights,
backends and volumes may have changed by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from chalicelib.domain import keys
from chalicelib.domain.automations import Automation
from chalicelib.domain.events import EventType, Target
from chalicelib.domain.specs.fleets import FleetSpec
from chalicelib.domain.tenants import GlobalRole, Project, ProjectRole, User
from chalicelib.errors import Invalid, NotFound, Problem, Refused
from chalicelib.store import nouns
from chalicelib.store.listing import page_after
from chalicelib.store.port import Change, Delete
from chalicelib.usecases.audit_events import audit_event, project_target
from chalicelib.usecases.machines import fleet_plans, volumes
from chalicelib.usecases.machines.fleets import refuse_ssh
from chalicelib.usecases.people.projects import undeleted
from chalicelib.usecases.ports import RecordPorts, RunPlanPorts, SealedPorts
from chalicelib.usecases.runs import plans

RUNS = ("task", "dev-environment", "service")
TYPES = (*RUNS, "fleet", "volume")
MOST = 200  # of a project: listing them or adding one reads them all
LARGEST = 150_000  # bytes of a spec: sealed, it is one record


def list_all(plane: RecordPorts, project: Project) -> list[Automation]:
    """The project's configurations in order of their names."""
    found = page_after(plane.store, f"project/{project.id}", "automation/", after="", limit=MOST)
    return [nouns.read(Automation, record) for record in found]


def get(plane: RecordPorts, project: Project, name: str) -> Automation:
    found = nouns.find(plane.store, Automation, keys.automation(project.id, name))
    if found is None:
        hint = "Store it with `dstack automation add -f FILE`; `dstack automation` lists what there is."
        raise NotFound(f"No configuration {name[:80]} is stored in project {project.name}.", hint=hint)
    return found


def add(
    plane: RunPlanPorts, user: User, project: Project, spec: dict[str, Any], role: ProjectRole | None
) -> Automation:
    """Store a configuration, or replace the one of the same name. `spec`: as it is sent to be applied."""
    type_, name = _checked(plane, user, project, spec, role)
    known = nouns.find(plane.store, Automation, keys.automation(project.id, name))
    if known is not None:
        _refuse_foreign(user, role, known)
    elif len(list_all(plane, project)) >= MOST:
        raise Refused(f"Project {project.name} has {MOST} stored configurations already.", hint="Delete some.")
    text = orjson.dumps(spec)
    if len(text) > LARGEST:
        raise Refused(
            f"This specification has {len(text) // 1000} KB; at most {LARGEST // 1000} KB can be stored.",
            hint="Move long commands into a script in a repository or an image.",
        )
    now = plane.clock.now()
    stored = Automation(
        id=plane.random_id() if known is None else known.id,
        version=0 if known is None else known.version,
        project_id=project.id,
        name=name,
        type=type_,
        sealed=plane.seal.seal(text.decode(), context=_context(project.id, name)),
        user_id=user.id,
        user_name=user.name,
        limit=user.limit,
        stored_at=now,
    )
    type = EventType.created if known is None else EventType.changed
    event = audit_event(type, now, *targets(stored, project), project_id=project.id, seed=seed_of(stored), actor=user)
    plane.store.commit([nouns.put(stored), nouns.put(event), undeleted(plane.store, project)])
    return stored


def delete(plane: RecordPorts, user: User, project: Project, names: Sequence[str], role: ProjectRole | None) -> None:
    """Delete all of them or none. Runs and fleets that they describe stay."""
    found = [get(plane, project, name) for name in dict.fromkeys(names)]
    for each in found:
        _refuse_foreign(user, role, each)
    now = plane.clock.now()
    changes: list[Change] = []
    for each in found:
        event_targets = targets(each, project)
        event = audit_event(
            EventType.deleted, now, *event_targets, project_id=project.id, seed=seed_of(each), actor=user
        )
        changes += [Delete(nouns.key_of(each), each.version), nouns.put(event)]
    plane.store.commit(changes)


def opened(plane: SealedPorts, stored: Automation) -> dict[str, Any]:
    spec: dict[str, Any] = orjson.loads(
        plane.seal.open(stored.sealed, context=_context(stored.project_id, stored.name))
    )
    return spec


def targets(stored: Automation, project: Project) -> tuple[Target, Target]:
    return Target(type=Automation.kind, id=stored.id, name=stored.name), project_target(project)


def unknown(name: str) -> Target:
    return Target(type=Automation.kind, id="", name=name)


def seed_of(stored: Automation) -> str:
    return f"{stored.id}/{stored.version}"


def _checked(
    plane: RunPlanPorts, user: User, project: Project, spec: dict[str, Any], role: ProjectRole | None
) -> tuple[str, str]:
    """The type and the name in the spec. Raises the errors that applying it would."""
    configuration = spec.get("configuration")
    written = configuration if isinstance(configuration, dict) else {}
    type_, name = written.get("type"), written.get("name")
    if type_ not in TYPES:
        hint = f"one of {', '.join(f'`{each}`' for each in TYPES)}"
        raise Invalid([Problem("only runs, fleets and volumes can be stored", path="type", hint=hint)])
    if type_ in RUNS:
        name = spec.get("run_name") or name
    if not isinstance(name, str) or not name:
        hint = "rules refer to it by its name"
        raise Invalid([Problem("a stored configuration needs a name", path="name", hint=hint, code="missing")])
    if type_ in RUNS:
        _refuse_uploads(spec)
        spec = {**spec, "run_name": name}
        plans.get_plan(plane, user, project, spec, plans.PlanView(limit=1), role=role)
    elif type_ == "fleet":
        fleet_plans.get_plan(plane, user, project, spec)
        refuse_ssh(plane, user, role, FleetSpec.model_validate(spec))
    else:
        volumes.check(plane, user, project, written, role)
    return type_, name


def _refuse_uploads(spec: dict[str, Any]) -> None:
    """Refuse uploaded files, which are erased when no live run has used them for a while."""
    if spec.get("file_archives") or spec.get("repo_code_hash"):
        raise Refused(
            "A stored configuration can't have files or code that are uploaded with it: they aren't kept for rules.",
            hint="Push your commits, and name the repository by its address; or use an image or a volume.",
        )


def _refuse_foreign(user: User, role: ProjectRole | None, stored: Automation) -> None:
    """Refuse users who may not replace or delete what acts in another user's name."""
    trusted = user.role is GlobalRole.admin or role in (ProjectRole.admin, ProjectRole.manager)
    if not trusted and stored.user_id != user.id:
        raise Refused(
            f"The configuration {stored.name} was stored by {stored.user_name}.",
            hint="Only that user and the project's admins and managers may change or delete it.",
        )


def _context(project_id: str, name: str) -> str:
    return f"automation/{project_id}/{name}"
