"""What has changed: one feed for all that a page shows.

Generated: `make docs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstack_serverless.sdk.flow import UNSET, Request, given

if TYPE_CHECKING:
    from chalicelib import contract


def follow(
    *,
    cursor: str | None = UNSET,
    kinds: str = UNSET,
    projects: str = UNSET,
    tail: bool = UNSET,
) -> Request[contract.V1Changes]:
    """What has changed in the caller's projects since the answer with this cursor. Without one, the lists begin: they
    come whole, up to 500 things at a time. With `Accept: text/event-stream` a server of your own keeps the answer
    open, and each event's data is such a document; in AWS the first one is all.

    For any active user.
    """
    return Request(
        "GET",
        "/api/v1/changes",
        query=given(
            cursor=cursor,
            kinds=kinds,
            projects=projects,
            tail=tail,
        ),
        safe=True,
    )
