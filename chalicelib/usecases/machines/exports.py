"""Exports and imports: hosts of a project that other projects may use.

Sharing needs an admin of both the hosts' project and each importing project, or a global admin; only global admins
share with every project. An access token must be for both projects. Either side can end it, which ends the importer's
jobs on those hosts. Jobs of other projects get no privileges there: see `planning.matching.requirements` and
`engine.read`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from chalicelib.domain import keys, names
from chalicelib.domain.access_tokens import AccessToken
from chalicelib.domain.events import EventType
from chalicelib.domain.exports import MOST_FLEETS, MOST_IMPORTERS, Export
from chalicelib.domain.fleets import Fleet
from chalicelib.domain.tenants import GlobalRole, Member, Project, ProjectRole, User
from chalicelib.errors import AlreadyExists, Conflict, Contended, Forbidden, Invalid, NotFound, Problem, Refused
from chalicelib.store import nouns
from chalicelib.store.listing import every
from chalicelib.store.port import Change, Delete
from chalicelib.usecases.audit_events import audit_event, project_target
from chalicelib.usecases.context import TRIES
from chalicelib.usecases.machines import fleets
from chalicelib.usecases.people.projects import undeleted
from chalicelib.usecases.ports import ChangePorts, RecordPorts


@dataclass(frozen=True)
class ExportView:
    export: Export
    importers: tuple[Project, ...]
    fleets: tuple[Fleet, ...]


@dataclass(frozen=True)
class ExportChange:
    """The importers and fleets that an export gains and loses, by name."""

    importers: Sequence[str] = ()
    fleets: Sequence[str] = ()
    no_importers: Sequence[str] = ()
    no_fleets: Sequence[str] = ()
    is_global: bool | None = None  # None: unchanged


# --- read ------------------------------------------------------------------------------------------------------------


def list_exports(plane: RecordPorts, project: Project) -> list[ExportView]:
    found = [nouns.read(Export, record) for record in every(plane.store, f"project/{project.id}", "export/")]
    return [_view(plane, export) for export in found]


def list_imports(plane: RecordPorts, project: Project) -> list[ExportView]:
    """The exports that the project imports, without their other importers, which it may not see."""
    found = sorted(plane.read.imports(project.id), key=lambda export: (export.project_name, export.name))
    return [_view(plane, export.with_(importers=())) for export in found]


def _view(plane: RecordPorts, export: Export) -> ExportView:
    projects = nouns.find_many(plane.store, Project, [keys.project(each) for each in export.importers])
    shared = nouns.find_many(plane.store, Fleet, [keys.fleet(each) for each in export.fleets])
    return ExportView(
        export,
        tuple(project for project in projects if project is not None and not project.deleted),
        tuple(fleet for fleet in shared if fleet is not None and not fleet.deleted),
    )


# --- change ----------------------------------------------------------------------------------------------------------


def create(
    plane: ChangePorts,
    actor: User,
    project: Project,
    name: str,
    change: ExportChange,
    token: AccessToken | None = None,
) -> ExportView:
    if wrong := names.problem(name, "export"):
        raise Invalid([Problem(": ".join(wrong), path="name")])
    now = plane.clock.now()
    none = Export(id=plane.random_id(), project_id=project.id, project_name=project.name, name=name, created_at=now)
    for _ in range(TRIES):
        if nouns.find(plane.store, Export, keys.export(project.id, name)) is not None:
            raise AlreadyExists(f"There is an export {name!r} already.", hint="Choose another name, or update it.")
        export = _changed(plane, actor, project, none, change, token)
        try:
            _commit(plane, actor, project, none, export)
        except Conflict:
            continue  # somebody took the name, or the project was deleted: try again
        return _view(plane, export)
    raise Contended(f"The export {name} keeps changing.", hint="Try again.")


def update(
    plane: ChangePorts,
    actor: User,
    project: Project,
    name: str,
    change: ExportChange,
    token: AccessToken | None = None,
) -> ExportView:
    for _ in range(TRIES):
        before = _required(plane, project, name)
        after = _changed(plane, actor, project, before, change, token)
        try:
            _commit(plane, actor, project, before, after)
        except Conflict:
            continue  # somebody else changed it: try again
        return _view(plane, after)
    raise Contended(f"The export {name} keeps changing.", hint="Try again.")


def delete(plane: ChangePorts, actor: User, project: Project, name: str) -> None:
    for _ in range(TRIES):
        before = _required(plane, project, name)
        try:
            _commit(plane, actor, project, before, None)
        except Conflict:
            continue
        return
    raise Contended(f"The export {name} keeps changing.", hint="Try again.")


def delete_import(plane: ChangePorts, actor: User, project: Project, exporter: str, name: str) -> None:
    """End an import from the importing project's side."""
    for _ in range(TRIES):
        found = next((e for e in plane.read.imports(project.id) if (e.project_name, e.name) == (exporter, name)), None)
        if found is None:
            raise NotFound(f"There is no import {exporter[:60]}/{name[:60]} in project {project.name}.")
        if project.id not in found.importers:
            raise Refused(
                f"{exporter}/{name} is shared with every project.", hint="A global admin may end that where it is."
            )
        owner = nouns.find(plane.store, Project, keys.project(found.project_id))
        if owner is None:
            raise NotFound(f"There is no project {exporter[:60]!r}.")
        try:
            left = tuple(each for each in found.importers if each != project.id)
            _commit(plane, actor, owner, found, found.with_(importers=left))
        except Conflict:
            continue
        return
    raise Contended(f"The import {exporter}/{name} keeps changing.", hint="Try again.")


def _required(plane: RecordPorts, project: Project, name: str) -> Export:
    found = (
        nouns.find(plane.store, Export, keys.export(project.id, name))
        if names.problem(name, "export") is None
        else None
    )
    if found is None:
        raise NotFound(f"There is no export {name[:60]!r} in project {project.name}.")
    return found


def _changed(
    plane: RecordPorts, actor: User, project: Project, export: Export, change: ExportChange, token: AccessToken | None
) -> Export:
    everybody = export.is_global if change.is_global is None else change.is_global
    more = not export.is_global or change.fleets  # than every project had before
    if everybody and more and actor.role is not GlobalRole.admin:
        raise Forbidden("Only a global admin may share with every project")
    if everybody and more and token is not None and token.projects:
        raise Forbidden(f"The access token {token.name} is only for some projects, so it can't share with every one")
    added = [_importer(plane, actor, project, name, token) for name in dict.fromkeys(change.importers)]
    seen = _view(plane, export)
    known = {importer.name: importer.id for importer in seen.importers}
    _refuse_unknown("importer", change.no_importers, known, export)
    _refuse_unknown("fleet", change.no_fleets, [fleet.name for fleet in seen.fleets], export)
    dropped = {known[name] for name in change.no_importers}
    shared = [_shareable(plane, project, name) for name in dict.fromkeys(change.fleets)]
    remaining = [fleet for fleet in seen.fleets if fleet.name not in change.no_fleets]
    importers = tuple(dict.fromkeys([*(each for each in export.importers if each not in dropped), *added]))
    found = tuple(dict.fromkeys([*(fleet.id for fleet in remaining), *shared]))
    if len(importers) > MOST_IMPORTERS or len(found) > MOST_FLEETS:
        raise Invalid(
            f"An export has at most {MOST_IMPORTERS} importers and {MOST_FLEETS} fleets.", hint="Make several exports."
        )
    return export.with_(is_global=everybody, importers=importers, fleets=found)


def _importer(plane: RecordPorts, actor: User, project: Project, name: str, token: AccessToken | None) -> str:
    """The id of an importing project. Its own admins must agree, since its jobs will run there. The refusal doesn't
    reveal whether it exists."""
    target = nouns.find_target(plane.store, keys.project_name(name))
    found = None if target is None else nouns.find(plane.store, Project, keys.project(target[0]))
    member = None if found is None else nouns.find(plane.store, Member, keys.member(found.id, actor.id))
    admin = actor.role is GlobalRole.admin or (member is not None and member.role is ProjectRole.admin)
    if found is None or found.deleted or not admin:
        raise NotFound(f"There is no project {name[:60]!r} of which you are an admin.")
    if found.id == project.id:
        raise Refused("A project's own hosts needn't be shared with it.", hint="Name another project.")
    if token is not None and not token.includes(found.id):
        raise Forbidden(f"The access token {token.name} isn't for the project {found.name}, so it can't share with it")
    return found.id


def _refuse_unknown(noun: str, named: Iterable[str], known: Collection[str], export: Export) -> None:
    """Refuse unknown names: something whose name was mistyped would remain shared."""
    for name in named:
        if name not in known:
            listed = f"Its {noun}s are {', '.join(sorted(known))}." if known else f"It has no {noun}s."
            raise NotFound(f"The export {export.name} has no {noun} {name[:60]!r}.", hint=listed)


def _shareable(plane: RecordPorts, project: Project, name: str) -> str:
    fleet = fleets.named(plane.store, project, name)
    if fleet is None:
        raise NotFound(f"There is no fleet {name[:60]!r} in project {project.name}.")
    if plane.read.fleet_spec(fleet.id, fleet.spec_num).configuration.ssh_config is None:
        raise Refused(
            f"The machines of the fleet {name} are bought, and only SSH fleets can be shared.",
            hint="Configure the backend in the other project, and apply a fleet there.",
        )
    return fleet.id


# --- commit ----------------------------------------------------------------------------------------------------------


def _commit(plane: ChangePorts, actor: User, project: Project, before: Export, after: Export | None) -> None:
    """Write the export with its pointers, and an event on either side. Runs that lose their hosts are checked at once,
    and so are the queues of projects that gain some."""
    if after == before and before.version:
        return
    had, has = before.pointers if before.version else frozenset(), after.pointers if after else frozenset()
    target = f"{before.project_id}/{before.name}"
    changes: list[Change] = [nouns.put(after) if after else Delete(nouns.key_of(before), before.version)]
    changes += [nouns.pointer(key, target) for key in sorted(has - had)]
    changes += [Delete(key) for key in sorted(had - has)]
    changes += [undeleted(plane.store, project)] if after else []
    plane.store.commit([*changes, *_events(plane, actor, project, before, after)])
    lost = before.fleets if before.version else ()
    runs = {f"run/{claim.run_id}" for fleet_id in lost for i in plane.read.instances(fleet_id) for claim in i.claims}
    plane.committer.wake([*sorted(runs), *(f"queue/{importer}" for importer in (after.importers if after else ()))])


def _events(
    plane: RecordPorts, actor: User, project: Project, before: Export, after: Export | None
) -> Iterable[Change]:
    outcome = "ended" if after is None else "changed" if before.version else "created"
    name, now = f"{before.project_name}/{before.name}", plane.clock.now()
    ids = dict.fromkeys((*before.importers, *(after.importers if after else ())))
    found = nouns.find_many(plane.store, Project, [keys.project(each) for each in ids])
    for each in (project, *(importer for importer in found if importer is not None)):
        detail = f"export {before.name} {outcome}" if each is project else f"import {name} {outcome}"
        seed = f"{before.id}/{before.version}/{each.id}"
        event = audit_event(
            EventType.changed, now, project_target(each), project_id=each.id, seed=seed, actor=actor, detail=detail
        )
        yield nouns.put(event)
