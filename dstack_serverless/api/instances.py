"""Instances over HTTP.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def list_instances(
    *,
    project_names: list[str] | None = UNSET,
    fleet_ids: list[str] | None = UNSET,
    only_active: bool = UNSET,
    include_imported: bool = UNSET,
    prev_created_at: str | None = UNSET,
    prev_id: str | None = UNSET,
    limit: int = UNSET,
    ascending: bool = UNSET,
) -> Request[list[contract.Instance]]:
    """Machines of the projects that the caller is in, newest first.

    For any active user.
    """
    return Request(
        "POST",
        "/api/instances/list",
        body=given(
            project_names=project_names,
            fleet_ids=fleet_ids,
            only_active=only_active,
            include_imported=include_imported,
            prev_created_at=prev_created_at,
            prev_id=prev_id,
            limit=limit,
            ascending=ascending,
        ),
        safe=True,
    )


def get(
    project_name: str,
    *,
    id: str,
) -> Request[contract.Instance]:
    """For members of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/instances/get",
        body=given(
            id=id,
        ),
        safe=True,
    )


def get_health_checks(
    project_name: str,
    *,
    fleet_name: str,
    instance_num: int,
    after: str | None = UNSET,
    before: str | None = UNSET,
    limit: int | None = UNSET,
) -> Request[contract.HealthChecks]:
    """A machine's health as its agent reported it, newest first.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/instances/get_instance_health_checks",
        body=given(
            fleet_name=fleet_name,
            instance_num=instance_num,
            after=after,
            before=before,
            limit=limit,
        ),
        safe=True,
    )
