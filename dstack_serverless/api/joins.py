"""Joining of machines over HTTP: the commands for it, and the calls of the machines.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def create(
    project_name: str,
    *,
    name: str,
    expires_in: int = UNSET,
) -> Request[contract.CreatedJoin]:
    """A command with which one machine joins a fleet. It is shown this once, works once, and expires.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/fleets/create_join",
        body=given(
            name=name,
            expires_in=expires_in,
        ),
    )


def list_joins(
    project_name: str,
    *,
    name: str,
) -> Request[list[contract.Join]]:
    """For members of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/fleets/list_joins",
        body=given(
            name=name,
        ),
        safe=True,
    )


def revoke(
    project_name: str,
    *,
    name: str,
    id: str,
) -> Request[None]:
    """For members of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/fleets/revoke_join",
        body=given(
            name=name,
            id=id,
        ),
    )
