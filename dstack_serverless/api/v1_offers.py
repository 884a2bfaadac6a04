"""Offers: machines that a run could have.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def list_project(
    project_name: str,
    *,
    cpu: str = UNSET,
    memory: str = UNSET,
    disk: str | None = UNSET,
    gpu: str = UNSET,
    spot_policy: Literal["spot", "on-demand", "auto"] = UNSET,
    max_price: float | None = UNSET,
    backends: str = UNSET,
    regions: str = UNSET,
    limit: int = UNSET,
) -> Request[contract.V1Offers]:
    """Machines that a task with these requirements could have, whether or not a fleet allows it: the cheapest first.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/offers",
        query=given(
            cpu=cpu,
            memory=memory,
            disk=disk,
            gpu=gpu,
            spot_policy=spot_policy,
            max_price=max_price,
            backends=backends,
            regions=regions,
            limit=limit,
        ),
        safe=True,
    )
