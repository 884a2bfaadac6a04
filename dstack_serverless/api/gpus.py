"""GPUs over HTTP.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from dstack_serverless.sdk.flow import UNSET, Request, given, segment

if TYPE_CHECKING:
    from chalicelib import contract


def list_gpus(
    project_name: str,
    *,
    run_spec: dict[str, Any],
    group_by: list[Literal["backend", "region", "count"]] | None = UNSET,
    reverse: bool = UNSET,
    full_offers: bool = UNSET,
    unallocated_resources: bool = UNSET,
) -> Request[contract.GpuList]:
    """The kinds of GPUs that the offers for a run have, by model and by what `group_by` says.

    For members of the project.
    """
    return Request(
        "POST",
        f"/api/project/{segment(project_name)}/gpus/list",
        body=given(
            run_spec=run_spec,
            group_by=group_by,
            reverse=reverse,
            full_offers=full_offers,
            unallocated_resources=unallocated_resources,
        ),
        safe=True,
    )
