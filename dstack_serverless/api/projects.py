"""Projects and members over HTTP.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract import bodies


def list_projects(
    *,
    return_total_count: bool = UNSET,
    name_pattern: str | None = UNSET,
    prev_created_at: str | None = UNSET,
    prev_id: str | None = UNSET,
    limit: int = UNSET,
    ascending: bool = UNSET,
    include_not_joined: bool = UNSET,
    username: str | None = UNSET,
) -> Request[list[contract.Project] | contract.ProjectPage]:
    """For any active user."""
    return Request(
        "POST",
        "/api/projects/list",
        body=given(
            return_total_count=return_total_count,
            name_pattern=name_pattern,
            prev_created_at=prev_created_at,
            prev_id=prev_id,
            limit=limit,
            ascending=ascending,
            include_not_joined=include_not_joined,
            username=username,
        ),
        safe=True,
    )


def list_only_no_fleets() -> Request[list[contract.Project]]:
    """For any active user."""
    return Request(
        "POST",
        "/api/projects/list_only_no_fleets",
        safe=True,
    )


def create(
    *,
    project_name: str,
    is_public: bool = UNSET,
    templates_repo: str | None = UNSET,
) -> Request[contract.Project]:
    """For any active user."""
    return Request(
        "POST",
        "/api/projects/create",
        body=given(
            project_name=project_name,
            is_public=is_public,
            templates_repo=templates_repo,
        ),
    )


def delete(
    *,
    projects_names: list[str],
) -> Request[None]:
    """For any active user."""
    return Request(
        "POST",
        "/api/projects/delete",
        body=given(
            projects_names=projects_names,
        ),
    )


def get(
    project_name: str,
) -> Request[contract.Project]:
    """A project, with its quota if the caller is in it: visitors of a public project needn't know how busy it is.

    For members of the project, and for any active user if it is public.
    """
    return Request(
        "POST",
        f"/api/projects/{segment(project_name)}/get",
        safe=True,
    )


def set_members(
    project_name: str,
    *,
    members: list[bodies.Setting],
) -> Request[contract.Project]:
    """For admins of the project."""
    return Request(
        "POST",
        f"/api/projects/{segment(project_name)}/set_members",
        body=given(
            members=members,
        ),
    )


def add_members(
    project_name: str,
    *,
    members: list[bodies.Setting],
) -> Request[contract.Project]:
    """Adds members. Anybody may join a public project.

    For members of the project, and for any active user if it is public.
    """
    return Request(
        "POST",
        f"/api/projects/{segment(project_name)}/add_members",
        body=given(
            members=members,
        ),
    )


def remove_members(
    project_name: str,
    *,
    usernames: list[str],
) -> Request[contract.Project]:
    """Removes members. Anybody may leave.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/projects/{segment(project_name)}/remove_members",
        body=given(
            usernames=usernames,
        ),
    )


def update(
    project_name: str,
    *,
    is_public: bool | None = UNSET,
    templates_repo: str | None = UNSET,
    reset_templates_repo: bool = UNSET,
) -> Request[contract.Project]:
    """For admins of the project."""
    return Request(
        "POST",
        f"/api/projects/{segment(project_name)}/update",
        body=given(
            is_public=is_public,
            templates_repo=templates_repo,
            reset_templates_repo=reset_templates_repo,
        ),
    )
