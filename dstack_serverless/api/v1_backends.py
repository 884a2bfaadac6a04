"""Backends of a project. Only its admins see or change them, and their secrets are always hidden.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def list_project(
    project_name: str,
) -> Request[contract.V1Backends]:
    """Backends that were configured for the project, by type.

    For admins of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/backends",
        safe=True,
    )


def get(
    project_name: str,
    backend_type: str,
) -> Request[contract.V1Backend]:
    """The backend of this type.

    For admins of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/backends/{segment(backend_type)}",
        safe=True,
    )


def put(
    project_name: str,
    backend_type: str,
    *,
    body: dict[str, Any],
    dry_run: bool = UNSET,
) -> Request[contract.V1Backend | contract.V1Change]:
    """Adds a backend, or changes its configuration, once the provider takes it.

    For admins of the project.
    """
    return Request(
        "PUT",
        f"/api/v1/projects/{segment(project_name)}/backends/{segment(backend_type)}",
        query=given(
            dry_run=dry_run,
        ),
        body=body,
        once=True,
    )


def delete(
    project_name: str,
    backend_type: str,
    *,
    dry_run: bool = UNSET,
) -> Request[contract.V1Change | None]:
    """Deletes a backend that nothing uses.

    For admins of the project.
    """
    return Request(
        "DELETE",
        f"/api/v1/projects/{segment(project_name)}/backends/{segment(backend_type)}",
        query=given(
            dry_run=dry_run,
        ),
        once=True,
    )
