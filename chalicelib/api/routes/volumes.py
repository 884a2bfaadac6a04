"""Volumes over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from chalicelib.api.requests import At, Id, Name, Names, Object, RequestBody
from chalicelib.api.route import Call, takes
from chalicelib.api.wire.volumes import volume_json
from chalicelib.domain.volumes import Volume
from chalicelib.usecases.machines import volumes
from chalicelib.usecases.people.visible_projects import projects_seen

if TYPE_CHECKING:
    from chalicelib import contract


class CreateVolumeBody(RequestBody):
    configuration: Object


class GetVolumeBody(RequestBody):
    name: Name


class ListVolumesBody(RequestBody):
    project_name: Name | None = None
    only_active: bool = False
    prev_created_at: At | None = None
    prev_id: Id | None = None
    limit: Annotated[int, Field(ge=0, le=100)] = 100
    ascending: bool = False


class DeleteVolumesBody(RequestBody):
    names: Names


@takes(CreateVolumeBody)
def create(call: Call, body: CreateVolumeBody) -> contract.Volume:
    """Creates a volume, or registers a disk that exists (`volume_id`)."""
    configuration = body.configuration
    return _shown(call, volumes.create(call.plane, call.actor, call.tenant, configuration, call.role))


@takes(GetVolumeBody)
def get(call: Call, body: GetVolumeBody) -> contract.Volume:
    return _shown(call, volumes.get(call.plane, call.tenant, body.name))


def _shown(call: Call, volume: Volume) -> contract.Volume:
    return volume_json(volume, call.tenant.name, call.plane.clock.now())


def list_project(call: Call) -> list[contract.Volume]:
    return [_shown(call, volume) for volume in volumes.list_all(call.plane, call.tenant)]


@takes(ListVolumesBody)
def list_volumes(call: Call, body: ListVolumesBody) -> list[contract.Volume]:
    names = None if body.project_name is None else (body.project_name,)
    seen = projects_seen(call.plane.store, call.actor, names, call.token)
    wanted = volumes.VolumeFilter(
        limit=body.limit,
        only_active=body.only_active,
        ascending=body.ascending,
        prev_created_at=body.prev_created_at,
        prev_id=body.prev_id,
    )
    now = call.plane.clock.now()
    return [volume_json(volume, project.name, now) for project, volume in volumes.list_rows(call.plane, seen, wanted)]


@takes(DeleteVolumesBody)
def delete(call: Call, body: DeleteVolumesBody) -> None:
    """Deletes volumes. A disk that existed before stays at the provider."""
    volumes.delete(call.plane, call.actor, call.tenant, body.names)
