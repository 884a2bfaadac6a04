"""Volumes over HTTP.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def list_volumes(
    *,
    project_name: str | None = UNSET,
    only_active: bool = UNSET,
    prev_created_at: str | None = UNSET,
    prev_id: str | None = UNSET,
    limit: int = UNSET,
    ascending: bool = UNSET,
) -> Request[list[contract.Volume]]:
    """For any active user."""
    return Request(
        "POST",
        "/api/volumes/list",
        body=given(
            project_name=project_name,
            only_active=only_active,
            prev_created_at=prev_created_at,
            prev_id=prev_id,
            limit=limit,
            ascending=ascending,
        ),
        safe=True,
    )


def list_project(
    project_name: str,
) -> Request[list[contract.Volume]]:
    """For members of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/volumes/list",
        safe=True,
    )


def get(
    project_name: str,
    *,
    name: str,
) -> Request[contract.Volume]:
    """For members of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/volumes/get",
        body=given(
            name=name,
        ),
        safe=True,
    )


def create(
    project_name: str,
    *,
    configuration: dict[str, Any],
) -> Request[contract.Volume]:
    """Creates a volume, or registers a disk that exists (`volume_id`).

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/volumes/create",
        body=given(
            configuration=configuration,
        ),
    )


def delete(
    project_name: str,
    *,
    names: list[str],
) -> Request[None]:
    """Deletes volumes. A disk that existed before stays at the provider.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/volumes/delete",
        body=given(
            names=names,
        ),
    )
