"""Events: who did what, and what became of it.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def list_all(
    *,
    limit: int = UNSET,
    cursor: str | None = UNSET,
    run_id: str | None = UNSET,
    fleet_id: str | None = UNSET,
    gateway_id: str | None = UNSET,
    actor_id: str | None = UNSET,
    target_type: str | None = UNSET,
    target: str | None = UNSET,
    user: str | None = UNSET,
    by: Literal["people", "system"] | None = UNSET,
    until: str | None = UNSET,
) -> Request[contract.V1EventPage]:
    """Events of the caller's projects, and those about the caller, newest first. Global admins see all. `target` is
    the type and the name of a thing, such as `run/train`, and `user` the name of who acted; `by` tells people from
    the control plane itself; `until` leaves out later ones.

    For any active user.
    """
    return Request(
        "GET",
        "/api/v1/events",
        query=given(
            limit=limit,
            cursor=cursor,
            run_id=run_id,
            fleet_id=fleet_id,
            gateway_id=gateway_id,
            actor_id=actor_id,
            target_type=target_type,
            target=target,
            user=user,
            by=by,
            until=until,
        ),
        safe=True,
    )


def list_project(
    project_name: str,
    *,
    limit: int = UNSET,
    cursor: str | None = UNSET,
    run_id: str | None = UNSET,
    fleet_id: str | None = UNSET,
    gateway_id: str | None = UNSET,
    actor_id: str | None = UNSET,
    target_type: str | None = UNSET,
    target: str | None = UNSET,
    user: str | None = UNSET,
    by: Literal["people", "system"] | None = UNSET,
    until: str | None = UNSET,
) -> Request[contract.V1EventPage]:
    """Events of the project, newest first, with the same filters.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/events",
        query=given(
            limit=limit,
            cursor=cursor,
            run_id=run_id,
            fleet_id=fleet_id,
            gateway_id=gateway_id,
            actor_id=actor_id,
            target_type=target_type,
            target=target,
            user=user,
            by=by,
            until=until,
        ),
        safe=True,
    )
