"""Stored configurations over HTTP. Any member may store one, since it is applied with its author's rights.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def add(
    project_name: str,
    *,
    spec: dict[str, Any] | None = UNSET,
    text: str | None = UNSET,
) -> Request[contract.Automation]:
    """Stores a configuration that rules about events may apply, with the rights of its author.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/automations/add",
        body=given(
            spec=spec,
            text=text,
        ),
    )


def list_automations(
    project_name: str,
) -> Request[list[contract.Automation]]:
    """For members of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/automations/list",
        safe=True,
    )


def delete(
    project_name: str,
    *,
    names: list[str],
) -> Request[None]:
    """For members of the project."""
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/automations/delete",
        body=given(
            names=names,
        ),
    )
