"""Volumes."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from chalicelib.api.route import Answer, Call, DryRun, asks, takes_both
from chalicelib.api.v1 import answers, cursors
from chalicelib.api.v1.answers import PageQuery
from chalicelib.api.v1.writes import Nothing, WriteQuery, Written, act_once, headers_of
from chalicelib.api.wire.v1.volumes import volume_json, volume_path
from chalicelib.domain import keys
from chalicelib.domain.tenants import Project
from chalicelib.domain.volumes import Volume
from chalicelib.errors import Ended
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
    return _list(call, "/api/v1/volumes", projects_seen(call.plane.store, call.actor, None, call.token), query)


@asks(VolumeQuery)
def list_project(call: Call, query: VolumeQuery) -> Annotated[Answer, contract.V1VolumePage]:
    """Volumes of the project, likewise."""
    return _list(call, f"/api/v1/projects/{call.tenant.name}/volumes", [call.tenant], query)


def _list(call: Call, path: str, projects: Sequence[Project], query: VolumeQuery) -> Answer:
    listing = cursors.listing(path, call.query)
    after = query.after(listing)
    wanted = volumes.VolumeFilter(query.limit, query.active, False, *after)
    rows, now = volumes.list_rows(call.plane, projects, wanted), call.plane.clock.now()
    cursor = query.following(listing, rows, lambda row: (row[1].created_at, row[1].id))
    items = [volume_json(volume, project.name, now) for project, volume in rows]
    return answers.page(call, path, {"items": items, "next": cursor}, cursor)


def get(call: Call) -> Annotated[Answer, contract.V1Volume]:
    """The volume of this name."""
    return answers.resource(call, _shown(call, volumes.get(call.plane, call.tenant, call.params["volume_name"])))


@takes_both(Written, WriteQuery)
def create(
    call: Call, body: Written, query: WriteQuery
) -> Annotated[Answer, contract.V1Volume, HTTPStatus.CREATED, DryRun(contract.V1Change)]:
    """Creates a volume, or registers a disk that exists. The body is its configuration; one without a `name` gets
    one."""
    if query.dry_run:
        checked = volumes.check(call.plane, call.actor, call.tenant, body.root, call.role)
        volumes.refuse_taken(call.plane, call.tenant, checked.name)
        return answers.changed(call, {"action": "create", "why": None})

    def act(plane: Plane, volume_id: str) -> None:
        volumes.create(plane, call.actor, call.tenant, body.root, call.role, new=volume_id)

    acted = act_once(call, "POST", f"/api/v1/projects/{call.tenant.name}/volumes", act)
    volume = nouns.find(call.plane.store, Volume, keys.volume(acted.subject_id))
    if volume is None or volume.deleted:
        raise Ended("The volume that this request made has been deleted.", hint="To make another, send a new key.")
    headers = {"Location": volume_path(call.tenant.name, volume.name), **headers_of(acted)}
    return answers.changed(call, _shown(call, volume), headers, status=HTTPStatus.CREATED)


@takes_both(Nothing, WriteQuery)
def delete(
    call: Call, body: Nothing, query: WriteQuery
) -> Annotated[Answer, HTTPStatus.ACCEPTED, DryRun(contract.V1Change)]:
    """Deletes a volume. A disk that existed before stays at the provider. The volume is gone some time after the
    answer."""
    name = call.params["volume_name"]
    if query.dry_run:
        volumes.refuse_attached(call.plane, call.tenant, [name])
        return answers.changed(call, {"action": "delete", "why": None})

    def act(plane: Plane, _: str) -> None:
        volumes.delete(plane, call.actor, call.tenant, [name])

    acted = act_once(call, "DELETE", volume_path(call.tenant.name, name), act)
    return Answer(b"", status=HTTPStatus.ACCEPTED, headers=headers_of(acted))


def _shown(call: Call, volume: Volume) -> contract.V1Volume:
    return volume_json(volume, call.tenant.name, call.plane.clock.now())
