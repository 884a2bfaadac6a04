"""Costs over time: of a project for who manages it, of all for global admins.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def list_all(
    *,
    since: str | None = UNSET,
    until: str | None = UNSET,
    step: Literal["day", "hour"] = UNSET,
    by: Literal["user", "project", "fleet", "gpu"] = UNSET,
) -> Request[contract.V1Costs]:
    """What the machines of all projects cost, likewise; also by project.

    For global admins.
    """
    return Request(
        "GET",
        "/api/v1/costs",
        query=given(
            since=since,
            until=until,
            step=step,
            by=by,
        ),
        safe=True,
    )


def list_all_csv(
    *,
    since: str | None = UNSET,
    until: str | None = UNSET,
    step: Literal["day", "hour"] = UNSET,
    by: Literal["user", "project", "fleet", "gpu"] = UNSET,
) -> Request[str]:
    """The same for a spreadsheet.

    For global admins.
    """
    return Request(
        "GET",
        "/api/v1/costs.csv",
        query=given(
            since=since,
            until=until,
            step=step,
            by=by,
        ),
        safe=True,
        text=True,
    )


def list_project(
    project_name: str,
    *,
    since: str | None = UNSET,
    until: str | None = UNSET,
    step: Literal["day", "hour"] = UNSET,
    by: Literal["user", "fleet", "gpu"] = UNSET,
) -> Request[contract.V1Costs]:
    """What the project's machines cost, by user, fleet or GPU: in the last 30 days, day by day, unless the query says
    otherwise. `since` and `until` count as whole days. Up to 400 days are kept, and hours are shown for 8 at once.

    For managers and admins of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/costs",
        query=given(
            since=since,
            until=until,
            step=step,
            by=by,
        ),
        safe=True,
    )


def list_project_csv(
    project_name: str,
    *,
    since: str | None = UNSET,
    until: str | None = UNSET,
    step: Literal["day", "hour"] = UNSET,
    by: Literal["user", "fleet", "gpu"] = UNSET,
) -> Request[str]:
    """The same for a spreadsheet: a line for each name and day, or hour.

    For managers and admins of the project.
    """
    return Request(
        "GET",
        f"/api/v1/projects/{segment(project_name)}/costs.csv",
        query=given(
            since=since,
            until=until,
            step=step,
            by=by,
        ),
        safe=True,
        text=True,
    )
