"""Logs over HTTP: pages, each with the token of the next; no token at the end.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def poll(
    project_name: str,
    *,
    run_name: str,
    job_submission_id: str,
    start_time: str | None = UNSET,
    end_time: str | None = UNSET,
    descending: bool = UNSET,
    next_token: str | None = UNSET,
    limit: int = UNSET,
    diagnose: bool = UNSET,
) -> Request[contract.LogPage]:
    """A page of what a job wrote, oldest first, or newest first with `descending`. With `diagnose` it is what the
    control plane knows of the job instead.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/logs/poll",
        body=given(
            run_name=run_name,
            job_submission_id=job_submission_id,
            start_time=start_time,
            end_time=end_time,
            descending=descending,
            next_token=next_token,
            limit=limit,
            diagnose=diagnose,
        ),
        safe=True,
    )
