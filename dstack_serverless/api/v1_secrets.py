"""Secrets. A project's admins manage them, and its managers if the installation allows it.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def list_project(
    project_name: str,
    *,
    limit: int = UNSET,
    cursor: str | None = UNSET,
) -> Request[contract.V1SecretPage]:
    """Secrets of the project by name, without their values.

    For admins of the project, and for its managers if the installation lets them manage secrets.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/secrets",
        query=given(
            limit=limit,
            cursor=cursor,
        ),
        safe=True,
    )


def get(
    project_name: str,
    secret_name: str,
) -> Request[contract.V1Secret]:
    """The secret of this name, with its value.

    For admins of the project, and for its managers if the installation lets them manage secrets.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/secrets/{segment(secret_name)}",
        safe=True,
    )


def put(
    project_name: str,
    secret_name: str,
    *,
    value: str,
    dry_run: bool = UNSET,
) -> Request[contract.V1SecretSummary | contract.V1Change]:
    """Creates a secret, or changes its value.

    For admins of the project, and for its managers if the installation lets them manage secrets.
    """
    return Request(
        "PUT",
        f"/api/v1/projects/{segment(project_name)}/secrets/{segment(secret_name)}",
        query=given(
            dry_run=dry_run,
        ),
        body=given(
            value=value,
        ),
        once=True,
    )


def delete(
    project_name: str,
    secret_name: str,
    *,
    dry_run: bool = UNSET,
) -> Request[contract.V1Change | None]:
    """Deletes a secret.

    For admins of the project, and for its managers if the installation lets them manage secrets.
    """
    return Request(
        "DELETE",
        f"/api/v1/projects/{segment(project_name)}/secrets/{segment(secret_name)}",
        query=given(
            dry_run=dry_run,
        ),
        once=True,
    )
