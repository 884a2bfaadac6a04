"""Services and their tokens over HTTP.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def get(
    project_name: str,
    *,
    run_name: str,
) -> Request[contract.V1Service]:
    """A service's replicas, how many there should be and why, and its traffic.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/services/get",
        body=given(
            run_name=run_name,
        ),
        safe=True,
    )


def create_token(
    project_name: str,
    *,
    run_name: str | None = UNSET,
    expires_in: int = UNSET,
) -> Request[contract.ServiceToken]:
    """A token that may call one service of the project, or all of them, and nothing else.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/services/create_token",
        body=given(
            run_name=run_name,
            expires_in=expires_in,
        ),
    )
