"""Services: runs that take requests.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import Request, segment

if TYPE_CHECKING:
    from chalicelib import contract


def get(
    project_name: str,
    run_name: str,
) -> Request[contract.V1Service]:
    """The service that the run of this name is: its replicas, how many there should be and why, and its traffic.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/runs/{segment(run_name)}/service",
        safe=True,
    )
