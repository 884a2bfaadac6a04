"""Templates over HTTP.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import Request, segment

if TYPE_CHECKING:
    from chalicelib import contract


def list_templates(
    project_name: str,
) -> Request[list[contract.Template]]:
    """The operator's templates.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/templates/list",
        safe=True,
    )
