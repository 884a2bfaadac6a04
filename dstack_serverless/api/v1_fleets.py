"""Fleets.

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
) -> Request[contract.V1FleetPage]:
    """Fleets of the projects that the caller is in, newest first.

    For any active user.
    """
    return Request(
        "GET",
        "/api/v1/fleets",
        query=given(
            limit=limit,
            cursor=cursor,
        ),
        safe=True,
    )


def list_project(
    project_name: str,
    *,
    limit: int = UNSET,
    cursor: str | None = UNSET,
) -> Request[contract.V1FleetPage]:
    """Fleets of the project, newest first.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/fleets",
        query=given(
            limit=limit,
            cursor=cursor,
        ),
        safe=True,
    )


def create(
    project_name: str,
    *,
    body: dict[str, Any],
    dry_run: bool = UNSET,
) -> Request[contract.V1FleetPlan | contract.V1Fleet]:
    """Creates a fleet. The body is its configuration; one without a `name` gets one. Its machines come after the
    answer.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/v1/projects/{segment(project_name)}/fleets",
        query=given(
            dry_run=dry_run,
        ),
        body=body,
        once=True,
    )


def get(
    project_name: str,
    fleet_name: str,
) -> Request[contract.V1Fleet]:
    """The fleet of this name. Values of environment variables are in the caller's own fleets only.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/fleets/{segment(fleet_name)}",
        safe=True,
    )


def delete(
    project_name: str,
    fleet_name: str,
    *,
    dry_run: bool = UNSET,
    force: bool = UNSET,
) -> Request[contract.V1Change | None]:
    """Deletes a fleet with its machines. It is gone some time after the answer.

    For members of the project.
    """
    return Request(
        "DELETE",
        f"/api/v1/projects/{segment(project_name)}/fleets/{segment(fleet_name)}",
        query=given(
            dry_run=dry_run,
            force=force,
        ),
        once=True,
    )


def get_spec(
    project_name: str,
    fleet_name: str,
) -> Request[dict[str, Any]]:
    """The fleet's configuration. Its `ETag` is that of the spec alone.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/fleets/{segment(fleet_name)}/spec",
        safe=True,
    )


def apply(
    project_name: str,
    fleet_name: str,
    *,
    body: dict[str, Any],
    dry_run: bool = UNSET,
) -> Request[dict[str, Any] | contract.V1FleetPlan]:
    """Creates the fleet, or changes it in place, where that is possible. With `If-Match` only if the spec has this
    tag, with `If-None-Match: *` only if there is no such fleet.

    For members of the project.
    """
    return Request(
        "PUT",
        f"/api/v1/projects/{segment(project_name)}/fleets/{segment(fleet_name)}/spec",
        query=given(
            dry_run=dry_run,
        ),
        body=body,
        once=True,
    )


def delete_instance(
    project_name: str,
    fleet_name: str,
    instance_num: str,
    *,
    dry_run: bool = UNSET,
    force: bool = UNSET,
) -> Request[contract.V1Change | None]:
    """Deletes a machine of a fleet, by its number. It is gone some time after the answer.

    For members of the project.
    """
    return Request(
        "DELETE",
        f"/api/v1/projects/{segment(project_name)}/fleets/{segment(fleet_name)}/instances/{segment(instance_num)}",
        query=given(
            dry_run=dry_run,
            force=force,
        ),
        once=True,
    )


def get_health(
    project_name: str,
    fleet_name: str,
    instance_num: str,
) -> Request[contract.V1Health]:
    """A machine's health as its agent reported it in the last week, newest first.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/fleets/{segment(fleet_name)}/instances/{segment(instance_num)}/health",
        safe=True,
    )
