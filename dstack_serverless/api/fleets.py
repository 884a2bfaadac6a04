"""Fleets over HTTP.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract import bodies


def list_fleets(
    *,
    project_name: str | None = UNSET,
    only_active: bool = UNSET,
    include_imported: bool = UNSET,
    prev_created_at: str | None = UNSET,
    prev_id: str | None = UNSET,
    limit: int = UNSET,
    ascending: bool = UNSET,
) -> Request[list[contract.Fleet]]:
    """Fleets of the projects that the caller is in, newest first.

    For any active user.
    """
    return Request(
        "POST",
        "/api/fleets/list",
        body=given(
            project_name=project_name,
            only_active=only_active,
            include_imported=include_imported,
            prev_created_at=prev_created_at,
            prev_id=prev_id,
            limit=limit,
            ascending=ascending,
        ),
        safe=True,
    )


def list_project(
    project_name: str,
    *,
    include_imported: bool = UNSET,
    prev_created_at: str | None = UNSET,
    prev_id: str | None = UNSET,
    limit: int | None = UNSET,
    ascending: bool = UNSET,
) -> Request[list[contract.Fleet]]:
    """The project's fleets. All of them, oldest first, unless `limit` asks for a page.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/fleets/list",
        body=given(
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
    name: str | None = UNSET,
    id: str | None = UNSET,
) -> Request[contract.Fleet]:
    """A fleet, by its name or its id. `project/name` is one that is imported. An access token without the verb
    `fleets` sees no values of environment variables.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/fleets/get",
        body=given(
            name=name,
            id=id,
        ),
        safe=True,
    )


def get_plan(
    project_name: str,
    *,
    spec: dict[str, Any],
) -> Request[contract.FleetPlan]:
    """What applying the fleet would do, and which offers it could have. Nothing is stored.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/fleets/get_plan",
        body=given(
            spec=spec,
        ),
        safe=True,
    )


def apply(
    project_name: str,
    *,
    plan: bodies.FleetPlanBody,
    force: bool = UNSET,
) -> Request[contract.Fleet]:
    """Creates the fleet, or changes the one of this name in place.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/fleets/apply",
        body=given(
            plan=plan,
            force=force,
        ),
    )


def delete(
    project_name: str,
    *,
    names: list[str],
    force: bool = UNSET,
) -> Request[None]:
    """Deletes fleets with their machines. `force` waits for no host that is out of reach.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/fleets/delete",
        body=given(
            names=names,
            force=force,
        ),
    )


def delete_instances(
    project_name: str,
    *,
    name: str,
    instance_nums: list[int],
    force: bool = UNSET,
) -> Request[None]:
    """Deletes some machines of a fleet, by their numbers.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/fleets/delete_instances",
        body=given(
            name=name,
            instance_nums=instance_nums,
            force=force,
        ),
    )
