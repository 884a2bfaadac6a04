"""Quotas of projects and of their users.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def get(
    project_name: str,
) -> Request[contract.V1Quota]:
    """Limits of the project and of its users, and how much of them is used.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/quota",
        safe=True,
    )


def put(
    project_name: str,
    *,
    dry_run: bool = UNSET,
    gpus: int | None = UNSET,
    jobs: int | None = UNSET,
    usd_per_day: float | None = UNSET,
) -> Request[contract.V1Quota | contract.V1Change]:
    """Sets the limits of the project as a whole. Only global admins may.

    For admins of the project.
    """
    return Request(
        "PUT",
        f"/api/v1/projects/{segment(project_name)}/quota",
        query=given(
            dry_run=dry_run,
        ),
        body=given(
            gpus=gpus,
            jobs=jobs,
            usd_per_day=usd_per_day,
        ),
        once=True,
    )


def put_each(
    project_name: str,
    *,
    dry_run: bool = UNSET,
    gpus: int | None = UNSET,
    jobs: int | None = UNSET,
    usd_per_day: float | None = UNSET,
) -> Request[contract.V1Quota | contract.V1Change]:
    """Sets the limits of each user without limits of their own.

    For admins of the project.
    """
    return Request(
        "PUT",
        f"/api/v1/projects/{segment(project_name)}/quota/each-user",
        query=given(
            dry_run=dry_run,
        ),
        body=given(
            gpus=gpus,
            jobs=jobs,
            usd_per_day=usd_per_day,
        ),
        once=True,
    )


def put_user(
    project_name: str,
    user_name: str,
    *,
    dry_run: bool = UNSET,
    gpus: int | None = UNSET,
    jobs: int | None = UNSET,
    usd_per_day: float | None = UNSET,
) -> Request[contract.V1Quota | contract.V1Change]:
    """Sets the limits of one user. Without any, those of each user hold.

    For admins of the project.
    """
    return Request(
        "PUT",
        f"/api/v1/projects/{segment(project_name)}/quota/users/{segment(user_name)}",
        query=given(
            dry_run=dry_run,
        ),
        body=given(
            gpus=gpus,
            jobs=jobs,
            usd_per_day=usd_per_day,
        ),
        once=True,
    )
