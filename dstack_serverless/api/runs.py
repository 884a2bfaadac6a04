"""Runs over HTTP.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract
    from chalicelib.contract import bodies


def list_runs(
    *,
    project_name: str | None = UNSET,
    repo_id: str | None = UNSET,
    username: str | None = UNSET,
    only_active: bool = UNSET,
    include_jobs: bool = UNSET,
    job_submissions_limit: int | None = UNSET,
    prev_submitted_at: str | None = UNSET,
    prev_run_id: str | None = UNSET,
    limit: int = UNSET,
    ascending: bool = UNSET,
) -> Request[list[contract.Run]]:
    """Runs of the projects that the caller is in, newest first. The next page begins after `prev_submitted_at` and
    `prev_run_id`. Values of environment variables are in the caller's own runs only.

    For any active user.
    """
    return Request(
        "POST",
        "/api/runs/list",
        body=given(
            project_name=project_name,
            repo_id=repo_id,
            username=username,
            only_active=only_active,
            include_jobs=include_jobs,
            job_submissions_limit=job_submissions_limit,
            prev_submitted_at=prev_submitted_at,
            prev_run_id=prev_run_id,
            limit=limit,
            ascending=ascending,
        ),
        safe=True,
    )


def get_plan(
    project_name: str,
    *,
    run_spec: dict[str, Any],
    max_offers: int | None = UNSET,
    reverse_offers: bool = UNSET,
    full_offers: bool = UNSET,
    unallocated_resources: bool = UNSET,
    for_offers_only: bool = UNSET,
) -> Request[contract.RunPlan]:
    """What applying the run would do, and with which offers. Nothing is stored.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/runs/get_plan",
        body=given(
            run_spec=run_spec,
            max_offers=max_offers,
            reverse_offers=reverse_offers,
            full_offers=full_offers,
            unallocated_resources=unallocated_resources,
            for_offers_only=for_offers_only,
        ),
        safe=True,
    )


def apply(
    project_name: str,
    *,
    plan: bodies.RunPlanBody,
    force: bool = UNSET,
) -> Request[contract.Run]:
    """Submits the run, or changes the one of this name. It is refused if `current_resource` isn't what is there any
    more, unless `force` is set. With an `Idempotency-Key` the same request acts once in 24 hours, however often it
    is sent.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/runs/apply",
        body=given(
            plan=plan,
            force=force,
        ),
        once=True,
    )


def get(
    project_name: str,
    *,
    run_name: str | None = UNSET,
    id: str | None = UNSET,
) -> Request[contract.Run]:
    """A run, by its name or its id. An access token without the verb `run` sees no values of environment variables.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/runs/get",
        body=given(
            run_name=run_name,
            id=id,
        ),
        safe=True,
    )


def stop(
    project_name: str,
    *,
    runs_names: list[str],
    abort: bool = UNSET,
) -> Request[None]:
    """Stops runs: their jobs get time to end. `abort` ends them at once.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/runs/stop",
        body=given(
            runs_names=runs_names,
            abort=abort,
        ),
    )


def delete(
    project_name: str,
    *,
    runs_names: list[str],
) -> Request[None]:
    """Deletes runs that have ended.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/runs/delete",
        body=given(
            runs_names=runs_names,
        ),
    )
