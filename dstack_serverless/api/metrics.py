"""Metrics over HTTP: those of one job, which is the only call with query parameters, and all, for Prometheus.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def job(
    project_name: str,
    run_name: str,
    *,
    run_id: str | None = UNSET,
    replica_num: int = UNSET,
    job_num: int = UNSET,
    limit: int = UNSET,
    after: str | None = UNSET,
    before: str | None = UNSET,
) -> Request[contract.JobMetrics]:
    """What a job of the run used of its machine: a series for each name, newest first.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/project/{segment(project_name)}/metrics/job/{segment(run_name)}",
        query=given(
            run_id=run_id,
            replica_num=replica_num,
            job_num=job_num,
            limit=limit,
            after=after,
            before=before,
        ),
        safe=True,
    )


def prometheus() -> Request[str]:
    """The numbers that the caller may see, for Prometheus.

    For any active user.
    """
    return Request(
        "GET",
        "/metrics",
        safe=True,
        text=True,
    )
