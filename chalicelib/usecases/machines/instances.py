"""Instances, as lists and by id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chalicelib.domain import keys
from chalicelib.domain.instances import Instance
from chalicelib.domain.instants import Micros
from chalicelib.domain.tenants import Project
from chalicelib.errors import NotFound
from chalicelib.store import nouns
from chalicelib.usecases.ports import RecordPorts


@dataclass(frozen=True)
class InstanceFilter:
    """Which live instances to list. `prev_*` is the last row of the previous page."""

    fleet_ids: frozenset[str] | None
    limit: int
    ascending: bool
    prev_created_at: Micros | None
    prev_id: str | None
    imported: bool = False  # include those that other projects share with these


def get(plane: RecordPorts, project: Project, instance_id: str) -> Instance:
    found = nouns.find(plane.store, Instance, keys.instance(instance_id))
    if found is None or found.project_id != project.id:
        raise NotFound(f"There is no instance {instance_id[:80]} in project {project.name}.")
    return found


def list_rows(plane: RecordPorts, projects: Sequence[Project], wanted: InstanceFilter) -> list[tuple[str, Instance]]:
    """A page of live instances of all `projects` together, newest first unless `ascending`, each with the name of its
    project."""
    fleets = {fleet.id: project.name for project in projects for fleet in plane.read.fleets(project.id)}
    if wanted.imported:
        shared = [found for project in projects for found in plane.read.imported_fleets(project.id)]
        fleets |= {fleet.id: export.project_name for export, fleet in shared if fleet.id not in fleets}
    chosen = [each for each in fleets if wanted.fleet_ids is None or each in wanted.fleet_ids]
    found = [(fleets[fleet_id], instance) for fleet_id in chosen for instance in plane.read.instances(fleet_id)]
    rows = [row for row in found if _after(row[1], wanted)]
    rows.sort(key=lambda row: (row[1].created_at, row[1].id), reverse=not wanted.ascending)
    return rows[: wanted.limit]


def _after(instance: Instance, wanted: InstanceFilter) -> bool:
    """Does the instance come after the last row of the previous page?"""
    if wanted.prev_created_at is None:
        return True
    if wanted.prev_id is None:
        here, last = (instance.created_at, ""), (wanted.prev_created_at, "")
    else:
        here, last = (instance.created_at, instance.id), (wanted.prev_created_at, wanted.prev_id)
    return here > last if wanted.ascending else here < last
