"""Instances.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def list_all(
    *,
    limit: int = UNSET,
    cursor: str | None = UNSET,
    fleet_id: str | None = UNSET,
) -> Request[contract.V1InstancePage]:
    """Machines of the projects that the caller is in, newest first.

    For any active user.
    """
    return Request(
        "GET",
        "/api/v1/instances",
        query=given(
            limit=limit,
            cursor=cursor,
            fleet_id=fleet_id,
        ),
        safe=True,
    )


def list_project(
    project_name: str,
    *,
    limit: int = UNSET,
    cursor: str | None = UNSET,
    fleet_id: str | None = UNSET,
) -> Request[contract.V1InstancePage]:
    """Machines of the project, newest first.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/instances",
        query=given(
            limit=limit,
            cursor=cursor,
            fleet_id=fleet_id,
        ),
        safe=True,
    )


def get(
    project_name: str,
    instance_id: str,
) -> Request[contract.V1Instance]:
    """The machine with this id, also when it is gone.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/instances/{segment(instance_id)}",
        safe=True,
    )
