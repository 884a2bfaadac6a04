"""States of projects at an instant of the last day, for travelling in time.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def get_state(
    project_name: str,
    *,
    at: str,
) -> Request[contract.V1State]:
    """What the project looked like at an instant of the last 24 hours: its runs, fleets and machines. A final answer
    never changes and can be kept.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/state",
        query=given(
            at=at,
        ),
        safe=True,
    )


def list_marks(
    project_name: str,
    *,
    since: str | None = UNSET,
    until: str | None = UNSET,
) -> Request[contract.V1Marks]:
    """Failures, interruptions, deployments and scaling, oldest first: of the last 24 hours, unless the query says
    otherwise. In a long history the newest, and from where to go on.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/marks",
        query=given(
            since=since,
            until=until,
        ),
        safe=True,
    )
