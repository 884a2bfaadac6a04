"""Quotas of projects over HTTP.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def get(
    project_name: str,
) -> Request[contract.Quota]:
    """For members of the project."""
    return Request(
        "POST",
        f"/api/projects/{segment(project_name)}/get_quota",
        safe=True,
    )


def set_quota(
    project_name: str,
    *,
    username: str | None = UNSET,
    each_user: bool = UNSET,
    gpus: int | None = UNSET,
    jobs: int | None = UNSET,
    money: float | None = UNSET,
) -> Request[contract.Quota]:
    """Sets limits of a project, of one of its users (`username`), or of each (`each_user`).

    For admins of the project.
    """
    return Request(
        "POST",
        f"/api/projects/{segment(project_name)}/set_quota",
        body=given(
            username=username,
            each_user=each_user,
            gpus=gpus,
            jobs=jobs,
            money=money,
        ),
    )
