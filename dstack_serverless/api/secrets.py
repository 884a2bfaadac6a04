"""Secrets over HTTP. A project's admins manage them, and its managers if the installation allows it; a user who
can set a secret can read all of them.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def list_secrets(
    project_name: str,
    *,
    after: str = UNSET,
    limit: int | None = UNSET,
) -> Request[list[contract.Secret]]:
    """Secrets without their values.

    For admins of the project, and for its managers if the installation lets them manage secrets.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/secrets/list",
        body=given(
            after=after,
            limit=limit,
        ),
        safe=True,
    )


def get(
    project_name: str,
    *,
    name: str,
) -> Request[contract.Secret]:
    """For admins of the project, and for its managers if the installation lets them manage secrets."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/secrets/get",
        body=given(
            name=name,
        ),
        safe=True,
    )


def create_or_update(
    project_name: str,
    *,
    name: str,
    value: str,
) -> Request[contract.Secret]:
    """Creates a secret, or changes its value.

    For admins of the project, and for its managers if the installation lets them manage secrets.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/secrets/create_or_update",
        body=given(
            name=name,
            value=value,
        ),
    )


def delete(
    project_name: str,
    *,
    secrets_names: list[str],
) -> Request[None]:
    """For admins of the project, and for its managers if the installation lets them manage secrets."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/secrets/delete",
        body=given(
            secrets_names=secrets_names,
        ),
    )
