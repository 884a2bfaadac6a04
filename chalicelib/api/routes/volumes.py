"""Volumes over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from chalicelib.api.requests import At, Id, Name, Object, RequestBody
from chalicelib.api.route import Call
from chalicelib.api.wire.volumes import volume_json
from chalicelib.domain.volumes import Volume
from chalicelib.usecases.machines import volumes
from chalicelib.usecases.people.visible_projects import projects_seen


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
    names: list[Name] = Field(max_length=100)


def create(call: Call) -> Any:
    configuration = call.parse(CreateVolumeBody).configuration
    return _shown(call, volumes.create(call.plane, call.actor, call.tenant, configuration, call.role))


def get(call: Call) -> Any:
    return _shown(call, volumes.get(call.plane, call.tenant, call.parse(GetVolumeBody).name))


def _shown(call: Call, volume: Volume) -> Any:
    return volume_json(volume, call.tenant.name, call.plane.clock.now())


def list_project(call: Call) -> Any:
    return [_shown(call, volume) for volume in volumes.list_all(call.plane, call.tenant)]


def list_volumes(call: Call) -> Any:
    body = call.parse(ListVolumesBody)
    names = None if body.project_name is None else (body.project_name,)
    seen = projects_seen(call.plane.store, call.actor, names)
    wanted = volumes.VolumeFilter(
        limit=body.limit,
        only_active=body.only_active,
        ascending=body.ascending,
        prev_created_at=body.prev_created_at,
        prev_id=body.prev_id,
    )
    now = call.plane.clock.now()
    return [volume_json(volume, project.name, now) for project, volume in volumes.list_rows(call.plane, seen, wanted)]


def delete(call: Call) -> None:
    volumes.delete(call.plane, call.actor, call.tenant, call.parse(DeleteVolumesBody).names)
