"""Volumes: creating, listing and deleting them.

A new volume is one commit: the volume, its name and the event. The reconciler has it created or registered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from chalicelib.configuration import references
from chalicelib.configuration.reading import read
from chalicelib.domain import keys, names
from chalicelib.domain.events import EventType
from chalicelib.domain.instants import Micros
from chalicelib.domain.names import first_of, those
from chalicelib.domain.specs.volumes import VolumeConfiguration, VolumeSpec
from chalicelib.domain.tenants import GlobalRole, Project, ProjectRole, User
from chalicelib.domain.volumes import Volume, VolumeStatus
from chalicelib.errors import (
    AlreadyExists,
    Conflict,
    Contended,
    Invalid,
    NoBackend,
    NotFound,
    NotSupported,
    Problem,
    Refused,
)
from chalicelib.machines.volume import TO_CREATE
from chalicelib.planning.kernel.requests import delete_volume
from chalicelib.planning.kernel.snapshot import NounsSnapshot
from chalicelib.planning.kernel.transitions import Draft
from chalicelib.store import nouns
from chalicelib.usecases import pages, specs
from chalicelib.usecases.context import TRIES
from chalicelib.usecases.people.projects import undeleted
from chalicelib.usecases.ports import ChangePorts, OfferPorts, RecordPorts


@dataclass(frozen=True)
class VolumeFilter:
    """Which volumes to list. `prev_*` is the last row of the previous page. Deleted ones are listed until their records
    are erased, unless `only_active`."""

    limit: int
    only_active: bool
    ascending: bool
    prev_created_at: Micros | None
    prev_id: str | None


# --- read -----------------------------------------------------------------------------------------------------------


def get(plane: RecordPorts, project: Project, name: str) -> Volume:
    volume = holder(plane, project, name)[0]
    if volume is None:
        raise NotFound(f"There is no volume {name[:80]} in project {project.name}.")
    return volume


def list_all(plane: RecordPorts, project: Project) -> list[Volume]:
    """Every volume of a project, oldest first."""
    return sorted(plane.read.volumes(project.id), key=lambda volume: (volume.created_at, volume.id))


def list_rows(plane: RecordPorts, projects: Sequence[Project], wanted: VolumeFilter) -> list[tuple[Project, Volume]]:
    """A page of volumes of all `projects` together, newest first unless `ascending`."""
    found = [(project, volume) for project in projects for volume in _list_project(plane, project, wanted)]
    found.sort(key=lambda row: (row[1].created_at, row[1].id), reverse=not wanted.ascending)
    return found[: wanted.limit]


def _list_project(plane: RecordPorts, project: Project, wanted: VolumeFilter) -> list[Volume]:
    low, high = pages.bounds(wanted.prev_created_at, wanted.prev_id, ascending=wanted.ascending)
    found: list[Volume] = []
    cursor: str | None = None
    while len(found) < wanted.limit:
        page = plane.store.query(
            "gsi1",
            keys.volumes_of(project.id),
            low=low,
            high=high,
            limit=wanted.limit - len(found),
            cursor=cursor,
            reverse=not wanted.ascending,
        )
        read = (nouns.read(Volume, record) for record in page.records)
        found += [volume for volume in read if not (wanted.only_active and volume.deleted)]
        cursor = page.cursor
        if cursor is None:
            break
    return found


def holder(plane: RecordPorts, project: Project, name: str) -> tuple[Volume | None, int]:
    """The volume of that name, and the version of its pointer, on which the next claim of the name depends."""
    pointer = nouns.find_target(plane.store, keys.volume_name(project.id, name))
    if pointer is None:
        return None, 0
    volume = nouns.find(plane.store, Volume, keys.volume(pointer[0]))
    return None if volume is None or volume.deleted else volume, pointer[1]


# --- create ---------------------------------------------------------------------------------------------------------


def check(
    plane: OfferPorts, user: User, project: Project, raw: dict[str, Any], role: ProjectRole | None
) -> VolumeConfiguration:
    """The configuration, checked as far as possible before creation. `role`: the user's role in the project."""
    configuration = _configuration(raw)
    if configuration.external_id is not None and ProjectRole.admin is not role and user.role is not GlobalRole.admin:
        raise Refused(
            f"Only admins of the project {project.name} register disks that are there already.",
            hint="Ask one of them, or leave out the id and give a `size`: then a new disk is created.",
        )
    _refuse_unavailable(plane, project, configuration)
    return configuration


def create(
    plane: OfferPorts, user: User, project: Project, raw: dict[str, Any], role: ProjectRole | None, *, new: str = ""
) -> Volume:
    """A new volume. `new`: its id, if that is known before."""
    configuration = check(plane, user, project, raw, role)
    name = configuration.name or specs.invented_name(
        plane.random_id(), "volume", lambda name: plane.store.get(keys.volume_name(project.id, name)) is not None
    )
    for _ in range(TRIES):
        found, version = holder(plane, project, name)
        if found is not None:
            raise _taken(found)
        try:
            return _create(plane, user, project, configuration.with_(name=name), version, new or plane.random_id())
        except Conflict:
            continue  # somebody took the name: try again
    raise Contended(f"The volume {name} keeps changing.", hint="Try again.")


def _taken(volume: Volume) -> AlreadyExists:
    if volume.status is VolumeStatus.deleting:
        return AlreadyExists(f"The volume {volume.name} is being deleted.", hint="Wait until it is gone.")
    hint = f"Delete it first (dstack volume delete {volume.name}) or choose another name."
    return AlreadyExists(f"There is a volume {volume.name} already.", hint=hint)


def _configuration(raw: dict[str, Any]) -> VolumeConfiguration:
    """The configuration as sent. Raises Invalid with every problem, each with the path that its author knows."""
    specs.text_of(raw)  # refuses a spec that is too large
    found: list[Problem] = []
    try:
        spec = read(VolumeSpec, {"configuration": raw})
        found = references.misplaced(spec)
    except Invalid as refused:
        found = list(refused.problems)
    name = raw.get("name")
    wrong = names.problem(name, "volume") if isinstance(name, str) else None
    if wrong:
        found.append(Problem(wrong[0], path="name", hint=wrong[1], code="invalid-name"))
    if found:
        raise Invalid([replace(each, path=each.path.removeprefix("configuration.")) for each in found])
    return spec.configuration


def _refuse_unavailable(plane: OfferPorts, project: Project, configuration: VolumeConfiguration) -> None:
    backend = configuration.backend
    facts = plane.backends.facts(project.id)
    able = [name for name, each in facts.items() if each.volumes]
    hint = f"Backends with volumes: {', '.join(able)}." if able else "None of the project's backends has volumes."
    if backend not in facts:
        raise NoBackend(f"The backend {backend} isn't configured for the project {project.name}.", hint=hint)
    if backend not in able:
        raise NotSupported(f"Volumes of the backend {backend} aren't supported yet.", hint=hint)
    size, most = getattr(configuration, "size", None) or 0, facts[backend].largest_volume
    if 0 < most < size:
        text, hint = f"{size:,.0f} GB is too much for one volume", f"at most {most:,} GB on {backend}"
        raise Invalid([Problem(text, path="size", hint=hint, code="too-large")])
    if problem := next(configuration.not_built(), None):
        raise Invalid([problem])


def _create(
    plane: ChangePorts, user: User, project: Project, configuration: VolumeConfiguration, version: int, volume_id: str
) -> Volume:
    """A new volume. `version`: of the name's pointer, at which the name was free."""
    now, external = plane.clock.now(), configuration.external_id or ""
    size = getattr(configuration, "size", None)
    cleanup = configuration.auto_cleanup_duration
    volume = Volume(
        id=volume_id,
        project_id=project.id,
        name=str(configuration.name),
        user_name=user.name,
        configuration=configuration.model_dump_json(),
        backend=configuration.backend,
        region=getattr(configuration, "region", ""),
        zone=getattr(configuration, "availability_zone", None) or "",
        size_gib=None if external or size is None else ceil(size),
        external_id=external,
        tags=dict(configuration.tags or {}),
        auto_cleanup_seconds=cleanup if cleanup is not None and cleanup >= 0 else None,
        read_only=getattr(configuration, "read_only", False),
        blank=not external,
        created_at=now,
        last_processed_at=now,
        deadline=now + TO_CREATE,
        due_at=now,
    )
    draft = Draft.of(user, now)
    draft.save(volume)
    draft.record(EventType.created, volume)
    draft.wake(volume.unit)
    pointer = nouns.pointer(keys.volume_name(project.id, volume.name), volume.id, version=version)
    plane.committer.take(NounsSnapshot(now, ()), draft.plan(), [pointer, undeleted(plane.store, project)])
    return volume.with_(version=1)


# --- delete ---------------------------------------------------------------------------------------------------------


def delete(plane: ChangePorts, user: User, project: Project, names: Sequence[str]) -> None:
    """Deletes volumes; none if one of them is attached or doesn't exist."""
    for volume in [get(plane, project, name) for name in dict.fromkeys(names)]:
        _refuse_if_attached(volume)
    for name in dict.fromkeys(names):
        _delete(plane, user, project, name)


def _delete(plane: ChangePorts, user: User, project: Project, name: str) -> None:
    for _ in range(TRIES):
        volume = holder(plane, project, name)[0]
        if volume is None:
            return
        _refuse_if_attached(volume)
        now = plane.clock.now()
        try:
            plane.committer.take(NounsSnapshot(now, (volume,)), delete_volume(volume, Draft.of(user, now)))
        except Conflict:
            continue
        return
    raise Contended(f"The volume {name} keeps changing.", hint="Try again.")


def _refuse_if_attached(volume: Volume) -> None:
    if not volume.attachments:
        return
    runs = list(dict.fromkeys(each.run_name for each in volume.attachments))
    machines = first_of([each.instance_name for each in volume.attachments])
    raise Refused(
        f"Failed to delete volume {volume.name}. Volume is in use by {those('run', runs)}, on {machines}.",
        hint=f"Wait until it is detached, or stop the run: dstack stop {runs[0]}",
    )
