"""Gateways.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def list_project(
    project_name: str,
    *,
    limit: int = UNSET,
    cursor: str | None = UNSET,
) -> Request[contract.V1GatewayPage]:
    """Gateways of the project, newest first.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/gateways",
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
) -> Request[contract.V1Change | contract.V1Gateway]:
    """Creates a gateway. The body is its configuration; one without a `name` gets one. Its machines come after the
    answer.

    For admins of the project.
    """
    return Request(
        "POST",
        f"/api/v1/projects/{segment(project_name)}/gateways",
        query=given(
            dry_run=dry_run,
        ),
        body=body,
        once=True,
    )


def get(
    project_name: str,
    gateway_name: str,
) -> Request[contract.V1Gateway]:
    """The gateway of this name, with the certificates of its services' hosts.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/gateways/{segment(gateway_name)}",
        safe=True,
    )


def delete(
    project_name: str,
    gateway_name: str,
    *,
    dry_run: bool = UNSET,
) -> Request[contract.V1Change | None]:
    """Deletes a gateway. It is gone some time after the answer.

    For admins of the project.
    """
    return Request(
        "DELETE",
        f"/api/v1/projects/{segment(project_name)}/gateways/{segment(gateway_name)}",
        query=given(
            dry_run=dry_run,
        ),
        once=True,
    )


def get_spec(
    project_name: str,
    gateway_name: str,
) -> Request[dict[str, Any]]:
    """The gateway's configuration. Its `ETag` is that of the spec alone.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/gateways/{segment(gateway_name)}/spec",
        safe=True,
    )


def apply(
    project_name: str,
    gateway_name: str,
    *,
    body: dict[str, Any],
    dry_run: bool = UNSET,
) -> Request[dict[str, Any] | contract.V1Change]:
    """Creates the gateway, or changes it in place, where that is possible. With `If-Match` only if the spec has this
    tag, with `If-None-Match: *` only if there is no such gateway.

    For admins of the project.
    """
    return Request(
        "PUT",
        f"/api/v1/projects/{segment(project_name)}/gateways/{segment(gateway_name)}/spec",
        query=given(
            dry_run=dry_run,
        ),
        body=body,
        once=True,
    )
