"""Volumes.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def list_all(
    *,
    limit: int = UNSET,
    cursor: str | None = UNSET,
    active: bool = UNSET,
) -> Request[contract.V1VolumePage]:
    """Volumes of the projects that the caller is in, newest first. Deleted ones are listed for a while, too, unless
    `active` is set.

    For any active user.
    """
    return Request(
        "GET",
        "/api/v1/volumes",
        query=given(
            limit=limit,
            cursor=cursor,
            active=active,
        ),
        safe=True,
    )


def list_project(
    project_name: str,
    *,
    limit: int = UNSET,
    cursor: str | None = UNSET,
    active: bool = UNSET,
) -> Request[contract.V1VolumePage]:
    """Volumes of the project, likewise.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/volumes",
        query=given(
            limit=limit,
            cursor=cursor,
            active=active,
        ),
        safe=True,
    )


def create(
    project_name: str,
    *,
    body: dict[str, Any],
    dry_run: bool = UNSET,
) -> Request[contract.V1Change | contract.V1Volume]:
    """Creates a volume, or registers a disk that exists. The body is its configuration; one without a `name` gets one.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/v1/projects/{segment(project_name)}/volumes",
        query=given(
            dry_run=dry_run,
        ),
        body=body,
        once=True,
    )


def get(
    project_name: str,
    volume_name: str,
) -> Request[contract.V1Volume]:
    """The volume of this name.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/volumes/{segment(volume_name)}",
        safe=True,
    )


def delete(
    project_name: str,
    volume_name: str,
    *,
    dry_run: bool = UNSET,
) -> Request[contract.V1Change | None]:
    """Deletes a volume. A disk that existed before stays at the provider. The volume is gone some time after the
    answer.

    For members of the project.
    """
    return Request(
        "DELETE",
        f"/api/v1/projects/{segment(project_name)}/volumes/{segment(volume_name)}",
        query=given(
            dry_run=dry_run,
        ),
        once=True,
    )
