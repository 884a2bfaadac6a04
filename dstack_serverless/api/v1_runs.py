"""Runs.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def list_all(
    *,
    limit: int = UNSET,
    cursor: str | None = UNSET,
    status: str = UNSET,
    active: bool = UNSET,
    user: str | None = UNSET,
) -> Request[contract.V1RunPage]:
    """Runs of the projects that the caller is in, newest first. With `status` or `user` a page can have fewer than
    `limit`, or none, and yet be followed by another: only the last one has no `next`.

    For any active user.
    """
    return Request(
        "GET",
        "/api/v1/runs",
        query=given(
            limit=limit,
            cursor=cursor,
            status=status,
            active=active,
            user=user,
        ),
        safe=True,
    )


def list_project(
    project_name: str,
    *,
    limit: int = UNSET,
    cursor: str | None = UNSET,
    status: str = UNSET,
    active: bool = UNSET,
    user: str | None = UNSET,
) -> Request[contract.V1RunPage]:
    """Runs of the project, newest first. With `status` or `user` a page can have fewer than `limit`, or none, and yet
    be followed by another: only the last one has no `next`.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/runs",
        query=given(
            limit=limit,
            cursor=cursor,
            status=status,
            active=active,
            user=user,
        ),
        safe=True,
    )


def submit(
    project_name: str,
    *,
    body: dict[str, Any],
    dry_run: bool = UNSET,
) -> Request[contract.V1RunPlan | contract.V1Run]:
    """Submits a run. The body is its configuration; one without a `name` gets one. With `dry_run` the answer is its
    plan, with status 200.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/v1/projects/{segment(project_name)}/runs",
        query=given(
            dry_run=dry_run,
        ),
        body=body,
        once=True,
    )


def get(
    project_name: str,
    run_name: str,
) -> Request[contract.V1Run]:
    """The latest run of this name. Values of environment variables are in the caller's own runs only.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/runs/{segment(run_name)}",
        safe=True,
    )


def delete(
    project_name: str,
    run_name: str,
    *,
    dry_run: bool = UNSET,
) -> Request[contract.V1Change | None]:
    """Deletes a run that has ended.

    For members of the project.
    """
    return Request(
        "DELETE",
        f"/api/v1/projects/{segment(project_name)}/runs/{segment(run_name)}",
        query=given(
            dry_run=dry_run,
        ),
        once=True,
    )


def get_spec(
    project_name: str,
    run_name: str,
) -> Request[dict[str, Any]]:
    """The run's configuration. Its `ETag` is that of the spec alone.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/runs/{segment(run_name)}/spec",
        safe=True,
    )


def apply(
    project_name: str,
    run_name: str,
    *,
    body: dict[str, Any],
    dry_run: bool = UNSET,
) -> Request[dict[str, Any] | contract.V1RunPlan]:
    """Submits the run, or changes the live one in place, where that is possible: its code stays. With `If-Match` only
    if the spec has this tag, with `If-None-Match: *` only if there is no such run.

    For members of the project.
    """
    return Request(
        "PUT",
        f"/api/v1/projects/{segment(project_name)}/runs/{segment(run_name)}/spec",
        query=given(
            dry_run=dry_run,
        ),
        body=body,
        once=True,
    )


def list_revisions(
    project_name: str,
    run_name: str,
    *,
    limit: int = UNSET,
    earlier: bool = UNSET,
) -> Request[contract.V1Revisions]:
    """The specs that the run has had, newest first. With `earlier` also the last specs of the runs that it replaced.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/runs/{segment(run_name)}/revisions",
        query=given(
            limit=limit,
            earlier=earlier,
        ),
        safe=True,
    )


def roll_back(
    project_name: str,
    run_name: str,
    *,
    revision: int,
    dry_run: bool = UNSET,
) -> Request[dict[str, Any] | contract.V1RunPlan]:
    """Gives the live run the spec of one of its earlier revisions, with the values that it had: a new revision. What
    can't be changed while it runs is refused, as when a spec is written.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/v1/projects/{segment(project_name)}/runs/{segment(run_name)}/roll-back",
        query=given(
            dry_run=dry_run,
        ),
        body=given(
            revision=revision,
        ),
        once=True,
    )


def stop(
    project_name: str,
    run_name: str,
    *,
    dry_run: bool = UNSET,
    abort: bool = UNSET,
) -> Request[contract.V1Change | contract.V1Run]:
    """Stops the run: its jobs get time to end. `abort` ends them at once. A run that has ended stays as it is. The run
    ends after the answer, which shows it as it is then.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/v1/projects/{segment(project_name)}/runs/{segment(run_name)}/stop",
        query=given(
            dry_run=dry_run,
            abort=abort,
        ),
        once=True,
    )


def list_jobs(
    project_name: str,
    run_name: str,
    *,
    limit: int = UNSET,
    cursor: str | None = UNSET,
    latest: bool = UNSET,
) -> Request[contract.V1JobPage]:
    """Jobs of the run, the latest submission first: each attempt of each job, or with `latest` only the last one.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/runs/{segment(run_name)}/jobs",
        query=given(
            limit=limit,
            cursor=cursor,
            latest=latest,
        ),
        safe=True,
    )


def read_logs(
    project_name: str,
    run_name: str,
    *,
    limit: int = UNSET,
    cursor: str | None = UNSET,
    job: str | None = UNSET,
    since: str | None = UNSET,
    until: str | None = UNSET,
    newest_first: bool = UNSET,
) -> Request[contract.V1LogPage]:
    """What a job wrote, oldest first: the job with this id, or the latest submission of the run's first job. The pages
    that follow are of the same job, also if there is a later one meanwhile. `resume` is the cursor of what comes
    later, also at the end.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/runs/{segment(run_name)}/logs",
        query=given(
            limit=limit,
            cursor=cursor,
            job=job,
            since=since,
            until=until,
            newest_first=newest_first,
        ),
        safe=True,
    )


def read_metrics(
    project_name: str,
    run_name: str,
    *,
    replica: int = UNSET,
    node: int = UNSET,
    since: str | None = UNSET,
    until: str | None = UNSET,
    limit: int = UNSET,
) -> Request[contract.V1Metrics]:
    """What the latest submission of a job used of its machine.

    For members of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/runs/{segment(run_name)}/metrics",
        query=given(
            replica=replica,
            node=node,
            since=since,
            until=until,
            limit=limit,
        ),
        safe=True,
    )
