"""Volumes."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from chalicelib.api.route import Answer, Call, DryRun, Settling, asks, takes_both
from chalicelib.api.v1 import answers
from chalicelib.api.v1.answers import PageQuery
from chalicelib.api.v1.configurations import Written, takes_configuration
from chalicelib.api.v1.writes import Nothing, WriteQuery, created, going, still, write
from chalicelib.api.wire.v1.volumes import volume_json, volume_path
from chalicelib.domain import keys
from chalicelib.domain.tenants import Project
from chalicelib.domain.volumes import Volume, VolumeStatus
from chalicelib.store import nouns
from chalicelib.usecases.context import Plane
from chalicelib.usecases.machines import volumes
from chalicelib.usecases.people.visible_projects import projects_seen

if TYPE_CHECKING:
    from chalicelib import contract


class VolumeQuery(PageQuery):
    active: bool = False


@asks(VolumeQuery)
def list_all(call: Call, query: VolumeQuery) -> Annotated[Answer, contract.V1VolumePage]:
    """Volumes of the projects that the caller is in, newest first. Deleted ones are listed for a while, too, unless
    `active` is set."""
    return _list(call, projects_seen(call.plane.store, call.actor, None, call.token), query)


@asks(VolumeQuery)
def list_project(call: Call, query: VolumeQuery) -> Annotated[Answer, contract.V1VolumePage]:
    """Volumes of the project, likewise."""
    return _list(call, [call.tenant], query)


def _list(call: Call, projects: Sequence[Project], query: VolumeQuery) -> Answer:
    wanted = volumes.VolumeFilter(query.limit, query.active, False, *query.after(call))
    rows, now = volumes.list_rows(call.plane, projects, wanted), call.plane.clock.now()
    key = lambda row: (row[1].created_at, row[1].id)  # noqa: E731
    return answers.page(call, query, rows, key, lambda row: volume_json(row[1], row[0].name, now))


def get(call: Call) -> Annotated[Answer, contract.V1Volume]:
    """The volume of this name."""
    volume = volumes.get(call.plane, call.tenant, call.params["volume_name"])
    return answers.resource(call, _shown(call, volume), settling=_settling(call, volume))


@takes_configuration
def create(
    call: Call, body: Written, query: WriteQuery
) -> Annotated[Answer, contract.V1Volume, HTTPStatus.CREATED, DryRun(contract.V1Change)]:
    """Creates a volume, or registers a disk that exists. The body is its configuration; one without a `name` gets
    one."""

    def act(plane: Plane, volume_id: str) -> Volume:
        return volumes.create(plane, call.actor, call.tenant, body.root, call.role, new=volume_id)

    def made(volume_id: str) -> Volume:
        volume = nouns.find(call.plane.store, Volume, keys.volume(volume_id))
        return still(None if volume is None or volume.deleted else volume, "volume")

    def answer(volume: Volume) -> Answer:
        path = volume_path(call.tenant.name, volume.name)
        return created(call, _shown(call, volume), path, _settling(call, volume))

    return write(call, query, "create", act, lambda done: answer(done.result or made(done.subject_id)))


@takes_both(Nothing, WriteQuery)
def delete(
    call: Call, body: Nothing, query: WriteQuery
) -> Annotated[Answer, HTTPStatus.ACCEPTED, DryRun(contract.V1Change)]:
    """Deletes a volume. A disk that existed before stays at the provider. The volume is gone some time after the
    answer."""
    name = call.params["volume_name"]

    def act(plane: Plane, _: str) -> None:
        volumes.delete(plane, call.actor, call.tenant, [name])

    return write(call, query, "delete", act, going)


def _settling(call: Call, volume: Volume) -> Settling | None:
    moves = volume.status in (VolumeStatus.submitted, VolumeStatus.provisioning, VolumeStatus.deleting)
    return Settling(f"volume/{volume.id}", volume_path(call.tenant.name, volume.name)) if moves else None


def _shown(call: Call, volume: Volume) -> contract.V1Volume:
    return volume_json(volume, call.tenant.name, call.plane.clock.now())
