"""Projects and their members.

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
) -> Request[contract.V1ProjectPage]:
    """Projects that the caller is in, and public ones; for a global admin, all. Newest first.

    For any active user.
    """
    return Request(
        "GET",
        "/api/v1/projects",
        query=given(
            limit=limit,
            cursor=cursor,
        ),
        safe=True,
    )


def create(
    *,
    name: str,
    dry_run: bool = UNSET,
    public: bool = UNSET,
) -> Request[contract.V1Change | contract.V1Project]:
    """Creates a project, whose admin the caller is.

    For any active user.
    """
    return Request(
        "POST",
        "/api/v1/projects",
        query=given(
            dry_run=dry_run,
        ),
        body=given(
            name=name,
            public=public,
        ),
        once=True,
    )


def get(
    project_name: str,
) -> Request[contract.V1Project]:
    """The project of this name.

    For members of the project, and for any active user if it is public.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}",
        safe=True,
    )


def change(
    project_name: str,
    *,
    dry_run: bool = UNSET,
    public: bool | None = UNSET,
) -> Request[contract.V1Project | contract.V1Change]:
    """Makes a project public or private. What is left out stays as it is.

    For admins of the project.
    """
    return Request(
        "PATCH",
        f"/api/v1/projects/{segment(project_name)}",
        query=given(
            dry_run=dry_run,
        ),
        body=given(
            public=public,
        ),
        once=True,
    )


def delete(
    project_name: str,
    *,
    dry_run: bool = UNSET,
) -> Request[contract.V1Change | None]:
    """Deletes a project in which nothing is any more.

    For admins of the project.
    """
    return Request(
        "DELETE",
        f"/api/v1/projects/{segment(project_name)}",
        query=given(
            dry_run=dry_run,
        ),
        once=True,
    )


def list_members(
    project_name: str,
    *,
    limit: int = UNSET,
    cursor: str | None = UNSET,
) -> Request[contract.V1MemberPage]:
    """Members of the project, the latest first.

    For members of the project, and for any active user if it is public.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/members",
        query=given(
            limit=limit,
            cursor=cursor,
        ),
        safe=True,
    )


def set_member(
    project_name: str,
    user_name: str,
    *,
    role: contract.ProjectRole,
    dry_run: bool = UNSET,
) -> Request[contract.V1Member | contract.V1Change]:
    """Adds a member, or changes the role of one. Anybody may join a public project as a `user`.

    For members of the project, and for any active user if it is public.
    """
    return Request(
        "PUT",
        f"/api/v1/projects/{segment(project_name)}/members/{segment(user_name)}",
        query=given(
            dry_run=dry_run,
        ),
        body=given(
            role=role,
        ),
        once=True,
    )


def remove_member(
    project_name: str,
    user_name: str,
    *,
    dry_run: bool = UNSET,
) -> Request[contract.V1Change | None]:
    """Removes a member. Anybody may leave.

    For members of the project.
    """
    return Request(
        "DELETE",
        f"/api/v1/projects/{segment(project_name)}/members/{segment(user_name)}",
        query=given(
            dry_run=dry_run,
        ),
        once=True,
    )
